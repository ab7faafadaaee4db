//go:build unix

package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

func median[T ~int64 | ~float64](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

func benchServer(b *testing.B, cfg server.Config) *server.Server {
	b.Helper()
	srv, err := server.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { srv.Close() })
	return srv
}

func benchWire(b *testing.B, srv *server.Server) *wire {
	w := newWire(srv, proposers)
	b.Cleanup(w.end)
	return w
}

func spaceOf(b *testing.B, srv *server.Server) *holdfast.Space {
	b.Helper()
	s, err := srv.Space()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkProposer is one caller that counts through the API, between appends to
// a bare file that is filled already, each with one fdatasync.
func BenchmarkProposer(b *testing.B) {
	dir := b.TempDir()
	c := spaceOf(b, benchServer(b, server.Config{Dir: filepath.Join(dir, "node")})).Counter("n")
	f, err := storage.OS{}.Create(filepath.Join(dir, "bare"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const size, block = 16 << 20, 512
	if _, err := f.WriteAt(make([]byte, size), 0); err != nil {
		b.Fatal(err)
	}
	var node, bare []time.Duration
	data, off := make([]byte, block), int64(0)
	for b.Loop() {
		begin := time.Now()
		if _, err := c.Add(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		if _, err := f.WriteAt(data, off); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		node, bare = append(node, between.Sub(begin)), append(bare, time.Since(between))
		off = (off + block) % size
	}
	b.ReportMetric(float64(median(node))/float64(median(bare)), "p50/append")
	b.ReportMetric(float64(median(node))/1e3, "p50-µs")
}

// proposers is how many callers there are at a time.
const proposers = 1024

// burst lets all proposers work for a while and returns how many commands that
// were, and how many a second.
func burst(work func(i int) (commands int)) (commands, speed float64) {
	var (
		all  sync.WaitGroup
		stop atomic.Bool
		n    atomic.Int64
	)
	begin := time.Now()
	for i := range proposers {
		all.Go(func() {
			for !stop.Load() {
				n.Add(int64(work(i)))
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // the length of a burst
	stop.Store(true)
	all.Wait()
	commands = float64(n.Load())
	return commands, commands / time.Since(begin).Seconds()
}

// side is one of two that work in turns.
type side struct {
	work   func(i int) (commands int) // of proposer i, in this process
	others []*process                 // that take part
}

// turn is a burst; cost is the processor time of a command in seconds, with what
// is done after its answer and in the other processes.
func (s *side) turn() (speed, cost float64) {
	used := s.used()
	commands, speed := burst(s.work)
	s.rest()
	return speed, (s.used() - used).Seconds() / commands
}

// used is the processor time that this process and the others have used.
func (s *side) used() time.Duration {
	sum := processorTime()
	for _, p := range s.others {
		sum += p.used()
	}
	return sum
}

// rest waits until there is little more to do than heartbeats: what a side has
// left undone, as a node that lags behind, must not slow down the other.
func (s *side) rest() {
	const look = 20 * time.Millisecond
	for last := time.Duration(0); ; {
		now := s.used()
		if now-last < look/10 {
			return
		}
		last = now
		time.Sleep(look)
	}
}

// locks is the work of taking a lock and giving it back, one name a proposer.
func locks(b *testing.B, s *holdfast.Space) func(i int) int {
	names := make([]*holdfast.Mutex, proposers)
	for i := range names {
		names[i] = s.Mutex(fmt.Sprintf("bench/some-lock-%08d", i))
	}
	return func(i int) int {
		h, err := names[i].Acquire(context.Background())
		if err == nil {
			err = h.Release()
		}
		if err != nil {
			b.Error(err)
		}
		return 2
	}
}

// entries is the work of the bare loop: a command of 64 bytes, as a lock takes.
func entries(n *bare) func(i int) int {
	done := make([]chan struct{}, proposers)
	for i := range done {
		done[i] = make(chan struct{}, 1)
	}
	data := make([]byte, 64)
	return func(i int) int {
		n.propose(data, done[i])
		return 1
	}
}

// against runs bursts of both in turn; the ratio is of commands a second, and of
// processor time a command, which says more on a busy machine.
func against(b *testing.B, unit string, node, bare side) {
	node.turn() // both warm up
	bare.turn()
	var speeds, rates, costs []float64
	for b.Loop() {
		fast, cheap := bare.turn()
		slow, dear := node.turn()
		speeds, rates, costs = append(speeds, slow), append(rates, fast/slow), append(costs, dear/cheap)
	}
	b.ReportMetric(median(rates), "bare/"+unit)
	b.ReportMetric(median(costs), unit+"-cpu/bare")
	b.ReportMetric(median(speeds), "commands/s")
}

// BenchmarkProposers is 1,024 sessions that lock and unlock on a node alone,
// beside a bare raft loop with as many callers.
func BenchmarkProposers(b *testing.B) {
	w := benchWire(b, benchServer(b, server.Config{Dir: b.TempDir()}))
	against(b, "node", side{work: w.work}, side{work: entries(newBare(b, alone(b)))})
}

// BenchmarkCallers is 1,024 callers of the API that do so in one Space.
func BenchmarkCallers(b *testing.B) {
	s := spaceOf(b, benchServer(b, server.Config{Dir: b.TempDir()}))
	against(b, "space", side{work: locks(b, s)}, side{work: entries(newBare(b, alone(b)))})
}

// alone is a node without others.
func alone(b *testing.B) server.Config { return nodeConfig(1, b.TempDir(), "") }

// BenchmarkThree is the same on three nodes, each a process of its own, over
// sockets; the callers are in that of the leader.
func BenchmarkThree(b *testing.B) {
	ours, theirs := planNodes(b, "node", 3), planNodes(b, "bare", 3)
	srv := benchServer(b, ours.startOthers("SERVER_TEST_TICK=1s")) // their elections come ten times as late
	ours.await("the first node does not lead", func() bool { return serves(srv) })
	w, lead := benchWire(b, srv), newBare(b, theirs.startOthers())
	against(b, "three", side{w.work, ours.procs[1:]}, side{entries(lead), theirs.procs[1:]})
}

// startOthers starts all but the first, whose configuration it returns.
func (g *nodes) startOthers(env ...string) server.Config {
	for i := range g.procs[1:] {
		g.start(i+1, env...)
	}
	return nodeConfig(1, g.dirs[0], g.text())
}
