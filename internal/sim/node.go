package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
	"github.com/holdfast-io/holdfast/internal/watch"
)

const tick = 100 * millisecond

// node is the shell of one replica.
type node struct {
	c       *cluster
	id      uint64
	cluster uint64
	clock   clock
	found   replica.Recovered // what it begins with on an empty disk
	founding

	files  *simdisk.Disk
	faults *simdisk.Faults
	full   bool // every write fails

	compared uint64 // the last state check that it passed
	life     int    // counts starts; what an earlier one began is void
	up       bool
	gone     bool // damaged: never started again
	flipped  bool // a bit of its files is wrong
	paused   bool
	waiting  []func() // what came during the pause
	began    int64

	disk     *disk.Disk
	replica  *replica.Node
	hub      *watch.Hub
	queue    disk.Queue // what waits for the disk
	doing    *disk.Job  // what the disk is at; nil: nothing
	slow     int64      // extra time of every write
	calm     int        // ticks since something was written
	incoming *transfer  // the newest
	leading  bool
}

func endpoint(id uint64) string { return fmt.Sprintf("node-%d", id) }

// peersAt is the address for other nodes of one that clients find at addr.
func peersAt(addr string) string { return addr + "-peers" }

func (n *node) now() int64 { return n.clock.local(n.c.now - n.began) }

// start opens the disk and runs the node. A damaged disk keeps it down; in a run with
// operators the node begins with nothing, as one that lost its disk.
func (n *node) start() {
	n.faults = &simdisk.Faults{FS: n.files, Check: n.fault}
	d, rec, err := disk.Open(n.faults, "data", diskOptions(n.cluster, n.id, n.wipes), n.found)
	if err != nil {
		n.openFailed(err)
		return
	}
	if err := d.Begin(n.id, &rec, n.c.wallClock()); err != nil {
		n.openFailed(errors.Join(err, d.Close()))
		return
	}
	n.dir = n.c.directory(d)
	cfg := replica.Config{ID: n.id, Dir: n.dir, SnapshotEntries: n.c.snapEvery, Trailing: n.c.snapEvery / 5, MinTTL: 1, MaxEntry: 16 << 10, TableRows: 2, Seconds: n.c.wall(), Newest: n.newest(), Solo: n.c.solo(), CheckEvery: n.c.checkEvery, Machine: n.c.machine}
	told, ordinal := rec.Told(), rec.Machine.Ordinal() // before New applies what follows
	r, err := replica.New(cfg, rec)
	if err != nil {
		n.c.violate("node %d does not start: %v", n.id, err)
		return
	}
	n.cfg = cfg
	n.life++
	n.up, n.paused, n.waiting = true, false, nil
	n.began = n.c.now
	n.disk, n.replica = d, r
	n.hub = watch.NewHub(4096, told)
	n.hub.Begun(ordinal)
	n.queue, n.doing, n.calm, n.leading = disk.Queue{}, nil, 0, false
	n.removed = nil
	n.asking, n.proposal = len(n.founders) > 0 && n.id == cmp.Or(n.flag, n.home) && rec.Snapshot.Index == 0, 0
	if n.swapped {
		n.c.violate("node %d starts on the disk of another", n.id)
	}
	n.act()
	n.ticks()
	if n.asking {
		n.ask()
	}
	n.visit()
}

// openFailed decides what a failed start means.
func (n *node) openFailed(err error) {
	switch {
	case n.swapped && errors.Is(err, storage.ErrForeign):
		n.c.res.Foreign++
	case errors.Is(err, storage.ErrDamaged):
		n.c.res.Damaged++
		if n.gone = !n.c.opts.Operators; !n.gone {
			n.c.moveAside(n)
		}
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
	n.c.at(n.c.now+n.clock.toTrueTime(tick), func() {
		if n.life == life && n.up {
			n.input(func() {
				n.calm++
				n.replica.Date(n.c.wall())
				n.replica.Tick(n.now())
			})
			n.look()
			n.ticks()
		}
	})
}

// look sees what came of the last state check: nothing damages a machine here, so that
// all have to agree.
func (n *node) look() {
	if !n.up {
		return
	}
	switch k := n.replica.Status().Checked; k.Nodes[n.id] {
	case replica.CheckDiffers, replica.CheckNoRule, replica.CheckOpen:
		n.c.violate("node %d differs from the others at %d", n.id, k.Index)
	case replica.CheckAgrees:
		if k.Index != n.compared {
			n.compared = k.Index
			n.c.res.Checks++
		}
	}
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
	if err := n.replica.Err(); n.ends(err) {
		n.strange(0)
		return
	} else if err != nil {
		n.c.violate("node %d stopped: %v", n.id, err)
		return
	}
	if out.Removed != nil {
		n.removed = out.Removed
	}
	n.c.check.applied(n, &out)
	n.hub.Publish(out.Events, n.replica.Machine().Revision())
	if out.Jumped {
		n.hub.Jump(n.replica.Machine().Revision())
		n.hub.Begun(n.replica.Machine().Ordinal())
	}
	if len(out.Writes) > 0 {
		n.add(disk.Job{Writes: out.Writes})
	}
	for _, m := range out.Messages {
		h := n.greet(m.To)
		n.c.net.send(n.id, m.To, func() { n.c.deliver(h, m.To, m.Data) })
	}
	for _, f := range out.Frames {
		n.c.toClient(f.Stream, f.Data)
		if f.More {
			n.next(f.Stream)
		}
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

// ends: the node is to stop with this error, since its disk is not what it was.
func (n *node) ends(err error) bool {
	return errors.Is(err, replica.ErrStranger) && (n.wiped || n.behind())
}

// next asks for the next page of a stream, when the client may have taken this one.
func (n *node) next(stream replica.Caller) {
	life := n.life
	n.c.after(n.c.between(0, 20*millisecond), func() {
		if n.life == life && n.up {
			n.input(func() { n.replica.More(n.now(), stream) })
		}
	})
}

// rush has somebody read as soon as the node leads: a client that waited for a leader
// asks it before it knows what its predecessor acknowledged.
func (n *node) rush() {
	was := n.leading
	if _, n.leading = n.replica.Leads(); n.leading && !was {
		k := n.c.clients[n.c.rng.IntN(len(n.c.clients))]
		n.c.after(n.c.between(0, millisecond), func() { k.read(n) })
	}
}

// idle: the node has written nothing for so long that its disk must have vouched
// for its last record.
func (n *node) idle() bool { return n.calm > 12 && n.doing == nil && n.queue.Len() == 0 }

// add gives the disk another job.
func (n *node) add(j disk.Job) {
	n.queue.Add(j)
	n.work()
}

// work does the next job, after the time that it takes.
func (n *node) work() {
	if n.doing != nil || n.queue.Len() == 0 {
		return
	}
	j, life, took := n.queue.Next(), n.life, n.syncTime()
	if j.Run == nil {
		n.calm = 0
	} else {
		took = n.slow + n.c.between(10*microsecond, millisecond)
	}
	n.doing = &j
	n.c.after(took, func() {
		if n.life == life && n.up {
			n.doing = nil
			n.done(&j, j.Do(n.disk))
		}
	})
}

// done tells the node, or the caller that asked for it, how a job went.
func (n *node) done(j *disk.Job, err error) {
	switch {
	case j.Run != nil:
		j.Then(err)
	case err != nil:
		n.failed(err)
	default:
		n.input(func() { n.replica.Written(n.now(), j.Writes[len(j.Writes)-1].ID) })
	}
	if n.up {
		n.work()
	}
}

// must ends the node if the disk failed; else it is given something to do.
func (n *node) must(do func()) func(error) {
	return func(err error) {
		if err != nil {
			n.failed(err)
			return
		}
		n.input(do)
	}
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
	if n.doing != nil && n.c.chance(0.5) {
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
		_ = n.doing.Do(n.disk) // the power goes in the middle of it
	}
	n.files = n.files.Crash(func(k int) int { return n.c.rng.IntN(k) })
	n.up, n.life = false, n.life+1
	n.disk, n.replica = nil, nil
	n.c.closeConnsOf(n.id)
}

// snapshots makes, sends and frees.
func (n *node) snapshots(out *replica.Output) {
	if out.Mark {
		n.add(disk.Job{Run: (*disk.Disk).Mark, Then: n.must(func() {})})
	}
	if out.Compact > 0 {
		index := out.Compact
		n.add(disk.Job{Run: func(d *disk.Disk) error { return d.Compact(index) }, Then: n.must(func() {})})
	}
	if out.Snapshot != nil {
		meta := *out.Snapshot
		n.add(disk.Job{Run: func(d *disk.Disk) error { return d.BeginSnapshot(meta) }, Then: n.must(func() { n.takeChunk(meta.Index) })})
	}
	for _, s := range out.SendSnapshots {
		n.sendSnapshot(s)
	}
}

// takeChunk takes the next chunk of a snapshot from the machine.
func (n *node) takeChunk(index uint64) {
	c := n.replica.SnapshotNext(index, nil, 2048)
	saved := false
	then := func() { n.soon(n.c.between(0, n.c.snapPace), func() { n.takeChunk(index) }) }
	if c.Last {
		then = func() {
			n.replica.SnapshotSaved(n.now(), index, saved)
			if saved {
				n.c.res.Snapshots++
			}
		}
	}
	n.add(disk.Job{Run: func(d *disk.Disk) (err error) { saved, err = d.SaveChunk(c); return err }, Then: n.must(then)})
}

// soon gives the node something to do after a time, unless it has ended by then.
func (n *node) soon(d int64, do func()) {
	life := n.life
	n.c.after(d, func() {
		if n.life == life {
			n.input(do)
		}
	})
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
	meta, sum, life, h := r.Meta(), r.Sum(), n.life, n.greet(s.To)
	n.c.after(n.c.between(5*millisecond, 300*millisecond), func() {
		to := n.c.reached(h, s.To)
		if !n.c.net.open(n.id, s.To) || to == nil || to.paused || !to.hears(h) {
			report(life, false)
			return
		}
		t := &transfer{meta: meta, sum: sum, body: body, message: s.Message, over: func(ok bool) { report(life, ok) }}
		if n.c.chance(0.05) {
			t.flip(n.c.world)
		}
		to.receive(t)
	})
}
