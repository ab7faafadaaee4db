package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
	"github.com/holdfast-io/holdfast/server"
	"github.com/holdfast-io/holdfast/server/api"
)

// node is one of the group's, over all its starts.
type node struct {
	w         *World
	id        uint64
	ip        string
	rng       *rand.Rand
	snapshots uint64
	disk      *simdisk.Disk // what the next start finds
	whole     *simdisk.Disk // what it was before a file was lost; nil: it is whole

	mu   sync.Mutex
	life *life // nil: it is down
}

// life is one start of a node, with all that ends with it.
type life struct {
	n     *node
	m     *machine
	files *files
	srv   *server.Server
	serve context.CancelFunc
	ended chan struct{} // closed when nothing is served any more
	kill  chan end

	mu    sync.Mutex
	still time.Time // its loop does nothing before
}

// end is how a life ends.
type end struct {
	kind string
	down time.Duration
}

func newNode(w *World, id, snapshots uint64) *node {
	return &node{w: w, id: id, ip: w.ip(id), rng: w.rng("node", id), snapshots: snapshots, disk: simdisk.New()}
}

// peerPort is where nodes listen for each other.
const peerPort = 7421

func (n *node) peer() string   { return fmt.Sprintf("%s:%d", n.ip, peerPort) }
func (n *node) client() string { return n.ip + ":7420" }

// run starts the node again and again until the world is over.
func (n *node) run() {
	for {
		l, err := n.start()
		if err != nil {
			if n.whole != nil && errors.Is(err, storage.ErrDamaged) {
				n.w.count("a start without a file is refused")
				n.disk, n.whole = n.whole, nil
				continue
			}
			if !injected(err) {
				n.w.violate("node %d does not start: %v", n.id, err)
				return
			}
			if !n.rest(time.Second) {
				return
			}
			continue
		}
		n.set(l)
		e := l.wait()
		n.set(nil)
		n.disk, n.whole = l.end(e), nil
		if e.kind == "lost file" {
			n.loseFile()
		}
		if !n.rest(e.down) {
			return
		}
	}
}

// rest is the time until the next start; false: there is none.
func (n *node) rest(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-n.w.over:
		return false
	}
}

// loseFile takes one of the node's files away. A start that does not need it finds as
// much as before.
func (n *node) loseFile() {
	names, err := n.disk.List("data")
	if err != nil || len(names) == 0 {
		return
	}
	before, err := n.found(n.disk)
	if err != nil {
		n.w.violate("node %d: its disk is unusable after an ordinary end: %v", n.id, err)
		return
	}
	less := n.disk.Clone()
	name := names[n.rng.IntN(len(names))]
	_ = less.Remove("data/" + name) // it is there
	_ = less.SyncDir("data")
	if after, err := n.found(less); err == nil && after != before {
		n.w.violate("node %d starts without %s, and has lost something: %+v, before %+v", n.id, name, after, before)
		return
	}
	n.disk, n.whole = less, n.disk
}

// contents is how much a start finds.
type contents struct{ last, term, vote uint64 }

func (n *node) found(d *simdisk.Disk) (contents, error) {
	s, rec, err := storage.Open(d.Clone(), "data", storage.Options{ClusterID: 7, NodeID: n.id, SegmentSize: segment})
	if err != nil {
		return contents{}, err
	}
	defer s.Close()
	return contents{rec.Last, rec.HardState.Term, rec.HardState.Vote}, nil
}

// segment is the size of a log file.
const segment = 64 << 10

func (n *node) set(l *life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life = l
}

// alive is the present life; nil: there is none.
func (n *node) alive() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// start runs a node with its port.
func (n *node) start() (*life, error) {
	l := &life{n: n, m: n.w.net.machine(n.ip), files: newFiles(n.disk, n.rng), ended: make(chan struct{}), kill: make(chan end, 1)}
	h := &host.Host{Files: l.files, SegmentSize: segment, Trailing: n.snapshots / 5, Listen: l.m.listen, Dial: l.m.dial, Applied: l.applied}
	cfg := server.Config{Dir: "data", ClusterID: 7, ID: n.id, Founders: n.w.founders(), Listen: n.peer(), SnapshotEntries: n.snapshots}
	cfg.Limits.Holds = n.w.holds
	cfg.NoReplace = true // a start without a file is to be refused, and told
	host.Put(&cfg, h)
	srv, err := server.New(cfg)
	if err != nil {
		l.m.unplug(0)
		n.disk = l.files.powerOff(n.rng, true)
		return nil, err
	}
	l.srv = srv
	ln, err := l.m.listen(n.client())
	if err != nil {
		return nil, fmt.Errorf("the port for clients: %w", err)
	}
	var ctx context.Context
	ctx, l.serve = context.WithCancel(context.Background())
	var web api.Config
	host.Put(&web, h)
	go func() {
		defer close(l.ended)
		_ = api.Serve(ctx, ln, srv, web) // it tells why the node has stopped
	}()
	return l, nil
}

func (w *World) founders() (out []server.Member) {
	for _, n := range w.nodes {
		out = append(out, server.Member{ID: n.id, Peer: n.peer(), Client: n.client()})
	}
	return out
}

// applied is told on the loop's goroutine what was applied; a pause stops it there.
func (l *life) applied(events []core.Event) {
	l.n.w.truth.applied(l.n.id, events)
	l.mu.Lock()
	d := time.Until(l.still)
	l.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

// wait waits for the end of a life, by order or by its own fault.
func (l *life) wait() end {
	select {
	case e := <-l.kill:
		return e
	case <-l.srv.Done():
		if err := l.srv.Err(); !injected(err) {
			l.n.w.violate("node %d stopped by itself: %v", l.n.id, err)
		}
		return end{"failure", time.Second}
	case <-l.n.w.over:
		return end{"over", 0}
	}
}

// end ends a life and returns the disk that it leaves. What is left of it can
// neither write nor be heard.
func (l *life) end(e end) *simdisk.Disk {
	if e.kind == "stop" || e.kind == "over" {
		l.close()
		l.m.unplug(0)
		return l.files.powerOff(l.n.rng, true)
	}
	silence := time.Duration(0)
	if e.kind == "power" {
		silence = e.down
	}
	l.m.unplug(silence)
	left := l.files.powerOff(l.n.rng, e.kind == "kill")
	l.n.w.ending.Go(l.close)
	return left
}

// close ends what runs.
func (l *life) close() {
	l.serve()
	<-l.ended
	_ = l.srv.Close() // on a failed disk it fails
}

// order ends a life soon; false: it has ended.
func (l *life) order(e end) bool {
	select {
	case l.kill <- e:
		return true
	default:
		return false
	}
}

// leads reports whether the node leads, as it thinks.
func (l *life) leads() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	st, err := l.srv.Status(ctx)
	return err == nil && st.Leading
}

// leader is a node that leads; nil: none does.
func (w *World) leader() *life {
	for _, n := range w.nodes {
		if l := n.alive(); l != nil && l.leads() {
			return l
		}
	}
	return nil
}
