package world

import (
	"context"
	"io"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// nemesis does something bad now and then.
func (w *World) nemesis() {
	rng := w.rng("nemesis", 0)
	_ = sleep(w.ctx, 3*time.Second) // a leader is elected
	for time.Since(w.began) < w.opts.Time {
		w.bad(rng)
		_ = sleep(w.ctx, between(rng, 100*time.Millisecond, 4*time.Second))
	}
}

func between(rng *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(rng.Int64N(int64(b-a)+1))
}

func (w *World) bad(rng *rand.Rand) {
	n := w.nodes[rng.IntN(len(w.nodes))]
	switch rng.IntN(20) {
	case 0:
		w.crash(rng, n)
	case 1:
		if l := w.leader(); l != nil {
			w.crash(rng, l.n)
		}
	case 2:
		w.isolate(rng, n)
	case 3:
		w.cutPair(rng)
	case 4:
		w.cutClient(rng)
	case 5:
		w.breakConns(rng, n)
	case 6:
		w.deafen(rng)
	case 7:
		w.pause(rng, n)
	case 8:
		if l := w.leader(); l != nil {
			w.pause(rng, l.n)
		}
	case 9:
		w.slowDisk(rng, n)
	case 10:
		w.failDisk(rng, n)
	case 11:
		w.delays(rng, n)
	case 12:
		w.corrupt(rng, n)
	case 13:
		w.powerSoon(rng, n)
	case 14:
		switch rng.IntN(4) {
		case 1, 2:
			w.slowLag(rng, n)
		case 0:
			w.count("fault all at once")
			for _, n := range w.nodes {
				w.crash(rng, n)
			}
		}
	case 15:
		w.lag(rng, n)
	case 16:
		w.lose(rng, n)
	case 17:
		w.deafen(rng)
	case 18:
		if l := n.alive(); l != nil {
			later := between(rng, 0, time.Second)
			w.ending.Go(func() { w.backUp(l, later) })
		}
	case 19:
		w.transferLead(rng)
	}
}

// transferLead has the leader hand over to some node, which may be itself or gone.
func (w *World) transferLead(rng *rand.Rand) {
	l := w.leader()
	if l == nil {
		return
	}
	w.count("fault leadership handed over")
	to := w.nodes[rng.IntN(len(w.nodes))].id
	w.ending.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), healthy)
		defer cancel()
		_ = l.srv.Transfer(ctx, to) // it may fail
	})
}

// deafen cuts the way to the leader, so long that the others may elect another, take
// what it had sent to them, make a snapshot of that and free their logs.
func (w *World) deafen(rng *rand.Rand) {
	l := w.leader()
	if l == nil {
		return
	}
	w.count("fault deaf leader")
	d := between(rng, 2*time.Second, 12*time.Second)
	w.outage(l, d, rng.IntN(4) > 0)
}

// outage cuts the way to a node. If the connections do not outlive it, what was sent
// meanwhile is lost; else it comes late.
func (w *World) outage(l *life, d time.Duration, broken bool) {
	for _, o := range w.nodes {
		if o != l.n {
			w.net.cut(o.ip, l.n.ip, d)
		}
	}
	if broken {
		time.AfterFunc(d-time.Millisecond, func() {
			for c := range l.m.all() {
				if c.local.Port == peerPort {
					c.reset(0, 0)
				}
			}
		})
	}
}

// lag cuts the way to a node, so long that it needs a snapshot.
func (w *World) lag(rng *rand.Rand, n *node) {
	if l := n.alive(); l != nil {
		w.count("fault lag")
		w.outage(l, between(rng, 5*time.Second, 15*time.Second), rng.IntN(4) > 0)
	}
}

// slowLag makes the disk of a node so slow that its own snapshot takes long, and cuts
// the way to it, so that it needs one of the leader meanwhile.
func (w *World) slowLag(rng *rand.Rand, n *node) {
	l := n.alive()
	if l == nil {
		return
	}
	w.count("fault slow disk that lags")
	l.files.slowDown(between(rng, 50*time.Millisecond, 500*time.Millisecond))
	d := between(rng, 3*time.Second, 8*time.Second)
	time.AfterFunc(2*d, func() { l.files.slowDown(0) })
	w.outage(l, d, true)
}

// backUp has a node save its state some time later. It makes a snapshot of its own
// for that, also while one of the leader is on its way.
func (w *World) backUp(l *life, later time.Duration) {
	if sleep(w.ctx, later) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthy)
	defer cancel()
	if err := l.srv.Backup(ctx, io.Discard); err != nil {
		w.count("backup failed")
	} else {
		w.count("backup saved")
	}
}

// lose takes a file away from a node that is down, and brings it back after the node
// has tried to start: without the file it must find everything, or refuse.
func (w *World) lose(rng *rand.Rand, n *node) {
	if l := n.alive(); l != nil && l.order(end{"lost file", between(rng, 10*time.Millisecond, time.Second)}) {
		w.count("fault lost file")
	}
}

// pause stops a node for a while, as SIGSTOP does: nothing is heard of it, its disk
// and its loop stand still, and what was sent to it is there when it goes on.
func (w *World) pause(rng *rand.Rand, n *node) {
	l := n.alive()
	if l == nil {
		return
	}
	w.count("fault pause")
	d := between(rng, 10*time.Millisecond, 8*time.Second)
	l.mu.Lock()
	l.still = time.Now().Add(d)
	l.mu.Unlock()
	l.files.hold(d)
	for i := range uint64(firstClient + 20) {
		w.net.cut(n.ip, w.ip(i), d)
		w.net.cut(w.ip(i), n.ip, d)
	}
	w.ending.Go(func() {
		_ = l.srv.Look(context.Background(), func(*core.Machine, int64) { time.Sleep(d) }) // it fails where nobody leads
	})
}

func (w *World) slowDisk(rng *rand.Rand, n *node) {
	if l := n.alive(); l != nil {
		w.count("fault slow disk")
		l.files.slowDown(between(rng, time.Millisecond, 100*time.Millisecond))
		time.AfterFunc(between(rng, time.Second, 5*time.Second), func() { l.files.slowDown(0) })
	}
}

// failDisk has the next operation of a kind fail.
func (w *World) failDisk(rng *rand.Rand, n *node) {
	kind := []string{"sync", "read", "write", "open", "create", "rename", "sync directory"}[rng.IntN(7)]
	if l := n.alive(); l != nil {
		w.count("fault EIO at " + kind)
		l.files.sicken(kind, syscall.EIO)
	}
}

// delays makes a direction of a node slow, for the others and for clients.
func (w *World) delays(rng *rand.Rand, n *node) {
	w.count("fault delay")
	d := between(rng, time.Millisecond, 300*time.Millisecond)
	others := []string{w.nodes[rng.IntN(len(w.nodes))].ip, w.ip(firstClient + uint64(rng.IntN(6)))}
	for _, ip := range others {
		w.net.delay(n.ip, ip, d)
		time.AfterFunc(between(rng, time.Second, 8*time.Second), func() { w.net.delay(n.ip, ip, 0) })
	}
}

// corrupt flips a bit of what peers send to a node: they have checksums of their own.
func (w *World) corrupt(rng *rand.Rand, n *node) {
	l := n.alive()
	if l == nil {
		return
	}
	w.count("fault corrupt")
	for c := range l.m.all() {
		if c.local.Port == peerPort || c.remote.Port == peerPort {
			c.in.befall(mishap{flip: 1 + rng.IntN(2000)})
		}
	}
}

// powerSoon cuts the power in the middle of some write to come.
func (w *World) powerSoon(rng *rand.Rand, n *node) {
	if l := n.alive(); l != nil {
		w.count("fault power during a write")
		l.files.cutSoon(rng.IntN(12))
	}
}

// transfer is what happens to a snapshot on its way: as often as not something.
func (w *World) transfer(to string) mishap {
	if w.ctx.Err() != nil {
		return mishap{}
	}
	w.count("snapshot sent")
	switch w.fate.IntN(8) {
	case 0:
		w.count("fault snapshot corrupted")
		return mishap{flip: 43 + w.fate.IntN(8000)}
	case 1:
		w.count("fault snapshot broken off")
		return mishap{end: 43 + w.fate.IntN(8000)}
	case 2:
		w.count("fault snapshot delayed")
		return mishap{drags: time.Duration(w.fate.IntN(3000)) * time.Millisecond}
	case 3, 4:
		w.count("fault snapshot meets another")
		w.meet(to)
	}
	return mishap{}
}

// meet has the node that a snapshot is on its way to make one of its own, slowly.
func (w *World) meet(ip string) {
	for _, n := range w.nodes {
		if l := n.alive(); l != nil && n.ip == ip {
			l.files.slowDown(time.Duration(50+w.fate.IntN(500)) * time.Millisecond)
			time.AfterFunc(4*time.Second, func() { l.files.slowDown(0) })
			later := time.Duration(w.fate.IntN(1500)) * time.Millisecond
			w.ending.Go(func() { w.backUp(l, later) })
		}
	}
}

// crash ends a node, in one of the ways that nodes end.
func (w *World) crash(rng *rand.Rand, n *node) {
	kind := []string{"kill", "power", "power", "stop"}[rng.IntN(4)]
	if l := n.alive(); l != nil && l.order(end{kind, between(rng, 10*time.Millisecond, 4*time.Second)}) {
		w.count("fault " + kind)
	}
}

// isolate cuts a node off from the others.
func (w *World) isolate(rng *rand.Rand, n *node) {
	w.count("fault isolate")
	d := between(rng, 10*time.Millisecond, 8*time.Second)
	for _, o := range w.nodes {
		if o != n {
			w.net.cut(n.ip, o.ip, d)
			w.net.cut(o.ip, n.ip, d)
		}
	}
}

// cutPair cuts one direction between two nodes.
func (w *World) cutPair(rng *rand.Rand) {
	a, b := w.nodes[rng.IntN(len(w.nodes))], w.nodes[rng.IntN(len(w.nodes))]
	if a != b {
		w.count("fault one-way cut")
		w.net.cut(a.ip, b.ip, between(rng, 10*time.Millisecond, 8*time.Second))
	}
}

// cutClient cuts a client off, in one direction or both.
func (w *World) cutClient(rng *rand.Rand) {
	w.count("fault client cut")
	ip, d := w.ip(firstClient+uint64(rng.IntN(6))), between(rng, 10*time.Millisecond, 8*time.Second)
	there, back := rng.IntN(5) > 0, rng.IntN(5) > 0
	for _, n := range w.nodes {
		if there {
			w.net.cut(ip, n.ip, d)
		}
		if back {
			w.net.cut(n.ip, ip, d)
		}
	}
}

// breakConns breaks the connections of a node, in the middle of what they carry.
func (w *World) breakConns(rng *rand.Rand, n *node) {
	l := n.alive()
	if l == nil {
		return
	}
	w.count("fault connections broken")
	for c := range l.m.all() {
		if rng.IntN(2) == 0 {
			c.reset(rng.IntN(2000), rng.IntN(2000))
		}
	}
}

// heal ends all faults. Cuts end by themselves.
func (w *World) heal() {
	for _, n := range w.nodes {
		if l := n.alive(); l != nil {
			l.files.heal()
		}
	}
}
