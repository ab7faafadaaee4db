package sim

import (
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/server/disk"
	"github.com/holdfast-io/holdfast/server/replica"
	"github.com/holdfast-io/holdfast/server/storage"
	"github.com/holdfast-io/holdfast/server/storage/simdisk"
	"github.com/holdfast-io/holdfast/watch"
)

const tick = 100 * millisecond

// node is the shell of one replica.
type node struct {
	c       *cluster
	id      uint64
	cluster uint64
	clock   clock
	found   replica.Recovered // what it begins with on an empty disk

	files  *simdisk.Disk
	faults *simdisk.Faults
	full   bool // every write fails

	life    int // counts starts; what an earlier one began is void
	up      bool
	gone    bool // damaged: never started again
	flipped bool // a bit of its files is wrong
	paused  bool
	waiting []func() // what came during the pause
	began   int64

	disk    *disk.Disk
	replica *replica.Node
	hub     *watch.Hub
	pending []replica.Write
	writing bool
	slow    int64 // extra time of every write
	leading bool
}

func endpoint(id uint64) string { return fmt.Sprintf("node-%d", id) }

func (n *node) now() int64 { return n.clock.local(n.c.now - n.began) }

// start opens the disk and runs the node. A damaged disk keeps it down.
func (n *node) start() {
	n.faults = &simdisk.Faults{FS: n.files, Check: n.fault}
	d, rec, err := disk.Open(n.faults, "data", diskOptions(n.cluster, n.id), n.found)
	if err != nil {
		n.openFailed(err)
		return
	}
	cfg := replica.Config{ID: n.id, SnapshotEntries: n.c.snapEvery, Trailing: n.c.snapEvery / 5, MinTTL: 1, MaxEntry: 16 << 10, Seconds: n.c.wall(), Machine: n.c.machine}
	r, err := replica.New(cfg, rec)
	if err != nil {
		n.c.violate("node %d does not start: %v", n.id, err)
		return
	}
	n.life++
	n.up, n.paused, n.waiting = true, false, nil
	n.began = n.c.now
	n.disk, n.replica = d, r
	n.hub = watch.NewHub(4096, rec.Machine.Revision())
	n.pending, n.writing, n.leading = nil, false, false
	n.act()
	n.ticks()
}

// openFailed decides what a failed start means.
func (n *node) openFailed(err error) {
	switch {
	case errors.Is(err, storage.ErrDamaged):
		n.c.res.Damaged++
		n.gone = true
	case n.full:
		n.c.after(second, n.restart)
	default:
		n.c.violate("node %d finds its disk unusable after an ordinary crash: %v", n.id, err)
	}
}

func (n *node) restart() {
	if !n.up && !n.gone && !n.full {
		n.start()
	} else if n.full {
		n.c.after(second, n.restart)
	}
}

func (n *node) fault(op simdisk.Op) error {
	if n.full && (op.Kind == "write" || op.Kind == "create") {
		return errNoSpace
	}
	return nil
}

// ticks calls Tick at the node's own pace.
func (n *node) ticks() {
	life := n.life
	n.c.at(n.c.now+n.clock.true1(tick), func() {
		if n.life == life && n.up {
			n.input(func() { n.replica.Tick(n.now()) })
			n.ticks()
		}
	})
}

// input gives the node something, or keeps it for the end of a pause.
func (n *node) input(do func()) {
	switch {
	case !n.up:
	case n.paused:
		n.waiting = append(n.waiting, do)
	default:
		if do(); n.up {
			n.act()
		}
	}
}

func (n *node) pause(d int64) {
	life := n.life
	if !n.up || n.paused {
		return
	}
	n.paused = true
	n.c.after(d, func() {
		if n.life != life || !n.up {
			return
		}
		n.paused = false
		todo := n.waiting
		n.waiting = nil
		for _, do := range todo {
			n.input(do)
		}
	})
}

// act does what the replica asks for.
func (n *node) act() {
	out := n.replica.Output()
	if err := n.replica.Err(); err != nil {
		n.c.violate("node %d stopped: %v", n.id, err)
		return
	}
	n.c.check.applied(n, &out)
	n.hub.Publish(out.Events, n.replica.Machine().Revision())
	if out.Jumped {
		n.hub.Jump(n.replica.Machine().Revision())
	}
	n.pending = append(n.pending, out.Writes...)
	n.write()
	for _, m := range out.Messages {
		n.c.net.send(n.id, m.To, func() { n.c.deliver(m.To, m.Data) })
	}
	for _, f := range out.Frames {
		n.c.toClient(f.Stream, f.Data)
	}
	n.c.answers(out.Answers)
	for _, s := range out.Closed {
		n.c.closeConn(s)
	}
	for _, r := range out.Reads {
		n.c.readReady(n, r)
	}
	if n.snapshots(&out); n.up { // it may have found its disk broken
		n.rush()
	}
}

// rush has somebody read as soon as the node leads: whoever waited for a leader
// asks it before it knows what its predecessor acknowledged.
func (n *node) rush() {
	was := n.leading
	if n.leading = n.replica.Status().Leading; n.leading && !was {
		k := n.c.clients[n.c.rng.IntN(len(n.c.clients))]
		n.c.after(n.c.between(0, millisecond), func() { k.read(n) })
	}
}

// write makes what waits durable, after the time that a sync takes.
func (n *node) write() {
	if n.writing || len(n.pending) == 0 {
		return
	}
	n.writing = true
	life := n.life
	n.c.after(n.syncTime(), func() {
		if n.life != life || !n.up {
			return
		}
		batch := n.pending
		n.pending, n.writing = nil, false
		if err := n.disk.Write(batch); err != nil {
			n.failed(err)
			return
		}
		n.input(func() { n.replica.Written(n.now(), batch[len(batch)-1].ID) })
		n.write()
	})
}

func (n *node) syncTime() int64 {
	if n.c.rng.IntN(400) == 0 {
		return n.c.between(millisecond, 1500*millisecond)
	}
	return n.slow + n.c.between(100*microsecond, 2*millisecond)
}

// failed ends the node as the disk's failure demands; only a full disk may do
// that.
func (n *node) failed(err error) {
	if !errors.Is(err, errNoSpace) {
		n.c.violate("node %d: the disk failed for no reason: %v", n.id, err)
		return
	}
	n.crash()
	n.c.after(second, n.restart)
}

// crash stops the node at once. What was being written reaches the disk as far
// as chance has it.
func (n *node) crash() {
	if !n.up {
		return
	}
	n.c.note(n.id, 0xdead)
	if n.writing && n.c.chance(0.5) {
		left := n.c.rng.IntN(12)
		n.faults.Check = func(op simdisk.Op) error {
			if op.Writes() {
				left--
			}
			if left < 0 {
				return simdisk.ErrPower
			}
			return n.fault(op)
		}
		_ = n.disk.Write(n.pending) // the power goes in the middle of it
	}
	n.files = n.files.Crash(func(k int) int { return n.c.rng.IntN(k) })
	n.up, n.life = false, n.life+1
	n.disk, n.replica = nil, nil
	n.c.closeConnsOf(n.id)
}

// snapshots makes, sends and frees.
func (n *node) snapshots(out *replica.Output) {
	if out.Snapshot != nil {
		meta := *out.Snapshot
		if err := n.disk.BeginSnapshot(meta); err != nil {
			n.failed(err)
			return
		}
		n.nextChunk(n.life)
	}
	if out.Compact > 0 {
		if err := n.disk.Compact(out.Compact); err != nil {
			n.failed(err)
			return
		}
	}
	for _, s := range out.SendSnapshots {
		n.sendSnapshot(s)
	}
}

func (n *node) nextChunk(life int) {
	n.c.after(n.c.between(millisecond, 20*millisecond), func() {
		if n.life != life || !n.up {
			return
		}
		n.input(func() { n.writeChunk(life) })
	})
}

func (n *node) writeChunk(life int) {
	chunk, done := n.replica.SnapshotNext(nil, 2048)
	err := n.disk.WriteSnapshot(chunk)
	if err == nil && done {
		err = n.disk.EndSnapshot()
	}
	switch {
	case errors.Is(err, errNoSpace):
		n.failed(err)
	case err != nil:
		// An installed snapshot made this one void meanwhile.
		n.replica.SnapshotSaved(n.now(), false)
	case done:
		n.c.res.Snapshots++
		n.replica.SnapshotSaved(n.now(), true)
	default:
		n.nextChunk(life)
	}
}

// sendSnapshot carries the newest snapshot to a peer, or fails to.
func (n *node) sendSnapshot(s replica.SendSnapshot) {
	report := func(life int, ok bool) {
		n.c.after(n.c.net.delay(), func() {
			if n.life == life && n.up {
				n.input(func() { n.replica.SnapshotSent(n.now(), s.To, ok) })
			}
		})
	}
	r, err := n.disk.OpenSnapshot(s.Index)
	if err != nil {
		report(n.life, false)
		return
	}
	defer r.Close()
	body, err := io.ReadAll(r)
	if err != nil {
		n.c.violate("node %d cannot read its snapshot at %d: %v", n.id, s.Index, err)
		return
	}
	meta, sum, life := r.Meta(), r.Sum(), n.life
	n.c.after(n.c.between(5*millisecond, 300*millisecond), func() {
		to := n.c.node(s.To)
		ok := n.c.net.open(n.id, s.To) && to != nil && to.up && !to.paused && to.install(meta, sum, body, s.Message)
		report(life, ok)
	})
}

// install takes a snapshot from a peer.
func (n *node) install(meta storage.SnapshotMeta, sum [32]byte, body, message []byte) bool {
	machine, err := n.take(meta, sum, body)
	if err != nil {
		n.failed(err)
		return false
	}
	n.c.res.Installs++
	n.input(func() {
		if err := n.replica.Arrived(n.now(), message, machine); err != nil {
			n.c.violate("node %d refuses a snapshot: %v", n.id, err)
		}
	})
	return true
}

// take writes a snapshot down as it comes in, and restores it.
func (n *node) take(meta storage.SnapshotMeta, sum [32]byte, body []byte) (*core.Machine, error) {
	in, err := n.disk.Receive(meta)
	if err != nil {
		return nil, err
	}
	for len(body) > 0 {
		k := min(len(body), 1500)
		if _, err := in.Write(body[:k]); err != nil {
			return nil, err
		}
		body = body[k:]
	}
	return in.End(sum)
}
