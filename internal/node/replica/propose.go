package replica

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// stampEvery is how long cluster time may go unwritten while any deadline
// exists: what a failover can lengthen a session by on top of the time without a
// leader.
const stampEvery = int64(time.Minute)

// Submit takes a frame of commands from a caller without a stream. It will be
// answered once: now if it is refused, or when its fate is known.
func (n *Node) Submit(now int64, caller Caller, frame []byte) {
	if !n.begin(now) {
		n.answer(caller, NotDone, nil)
		return
	}
	var f core.Frame
	if err := core.DecodeNew(frame, &f); err != nil {
		n.deny(caller, core.CodeInvalid, err.Error())
		return
	}
	if n.early(&f) {
		n.answer(caller, NotDone, nil)
		return
	}
	if code, text := n.admit(&f); code != core.CodeOK {
		n.deny(caller, code, text)
		return
	}
	n.enqueue(&item{caller: caller, frame: frame, class: admission.OfFrame(&f, n.known), commands: len(f.Commands)})
	n.process()
}

// Renew takes a keepalive from a caller without a stream. It will be answered
// once, with an encoded core.Renewed.
func (n *Node) Renew(now int64, caller Caller, r core.Renewal) {
	if !n.begin(now) {
		n.answer(caller, NotDone, nil)
		return
	}
	if r.TTL < 0 {
		n.deny(caller, core.CodeInvalid, "a session cannot be renewed for less than nothing")
		return
	}
	n.enqueue(&item{caller: caller, renewal: r, short: true})
	n.process()
}

func (n *Node) deny(c Caller, code core.Code, text string) {
	if c == nobody {
		return
	}
	n.out.Answers = append(n.out.Answers, Answer{Caller: c, Outcome: NotDone, Code: code, Text: text})
}

// denyItem is deny, for an item that may have come over a stream.
func (n *Node) denyItem(i *item, code core.Code, text string) {
	switch a := i.at; {
	case a == nil:
		n.deny(i.caller, code, text)
	case !a.over():
		n.denyStream(a.out.stream, a.stream, &core.Frame{Session: a.id, Attempt: i.renewal.Attempt}, code, text)
	}
}

// enqueue takes an item, or refuses it.
func (n *Node) enqueue(i *item) {
	if !n.leading || n.healing != nil {
		n.refuse(i)
		return
	}
	if n.tooMany(i) {
		n.denyItem(i, core.CodeFull, fullText)
		return
	}
	if wait, ok := n.takes(i); !ok {
		n.overload(i, int64(wait))
		return
	}
	n.waiting.add(i)
}

// takes decides whether there is room for an item of its class; if not, wait is
// when to ask again.
func (n *Node) takes(i *item) (wait time.Duration, ok bool) {
	q := &n.waiting
	if wait, ok = (admission.Room{Used: q.commands, Limit: n.cfg.MaxCommands}).Takes(i.class); ok {
		wait, ok = admission.Room{Used: q.bytes, Limit: n.cfg.MaxQueue}.Takes(i.class)
	}
	return wait, ok
}

// known reports whether a session is there.
func (n *Node) known(id core.SessionID) bool {
	_, ok := n.machine.TTL(id)
	return ok
}

// refuse tells an item's caller that it certainly did not happen.
func (n *Node) refuse(i *item) {
	if i.at != nil {
		n.refuseStream(i)
		return
	}
	n.answer(i.caller, NotDone, nil)
}

func (n *Node) overload(i *item, wait int64) {
	if i.at != nil {
		n.busyStream(i, wait)
		return
	}
	n.out.Answers = append(n.out.Answers, Answer{Caller: i.caller, Outcome: Overload, RetryAfter: wait})
}

func (n *Node) answer(c Caller, o Outcome, data []byte) {
	if c == nobody {
		return
	}
	n.out.Answers = append(n.out.Answers, Answer{Caller: c, Outcome: o, Data: data})
}

// propose makes an entry of what waits, as long as few enough fly. Renewals alone
// wait for the next tick, so that those of a tick share a write: they are many
// and not urgent.
func (n *Node) propose(tick bool) {
	for n.serving && n.transfer == 0 && !n.Busy() && (n.waiting.urgent > 0 || tick && n.waiting.len() > 0) {
		batch := n.waiting.batch(n.cfg.MaxEntry)
		if !n.proposeEntry(batch) {
			n.putBack(batch)
			return
		}
	}
}

// Busy reports whether nothing that comes now can be proposed before something
// is written or a message comes.
func (n *Node) Busy() bool { return len(n.flying) >= n.rounds() }

// rounds is how many entries may fly. While sessions end that have much, each entry takes
// long, and one that flies is all that a command waits for: those that come meanwhile share the next.
func (n *Node) rounds() int {
	if n.machine.Behind() {
		return 1
	}
	return n.cfg.Rounds
}

// Rest tells when all that followed from inputs since began is done. What is left of
// the ends of sessions is gone on with by itself only after a pause as long as that has
// taken, so that others have half of the time at least; of a node that was stopped meanwhile after a second.
func (n *Node) Rest(began, now int64) {
	if n.ended {
		n.ended, n.resume = false, now+min(max(0, now-began), int64(time.Second))
	}
}

// Solitary reports whether there is no other node, so that nobody minds this one's
// silence.
func (n *Node) Solitary() bool { return n.members.solitary(n.cfg.ID) }

// proposeEntry stamps and proposes one entry. The clock is sampled here, after
// the last command of the batch arrived: a stamp older than a command could end
// a session too early.
func (n *Node) proposeEntry(batch []item) bool {
	n.number++
	p := proposal{number: n.number, term: n.currentTerm(), items: batch}
	e := core.Entry{Now: n.clock.sample(n.now), Frames: n.frames[:0]}
	size := 64
	for i := range batch {
		size += batch[i].size()
		p.creates += batch[i].creates()
		if batch[i].frame == nil {
			e.Renewals = append(e.Renewals, batch[i].renewal)
		} else {
			e.Frames = append(e.Frames, batch[i].frame)
		}
	}
	if len(e.Frames) > 0 && n.machine.Version() >= 3 {
		e.Seconds = n.date
	}
	flies := n.fly(p, kindCore, size, &e)
	clear(e.Frames)
	n.frames = e.Frames
	return flies
}

// maxSpareEntry bounds the room that is kept for encoding the next entry.
const maxSpareEntry = 1 << 20

// fly hands an entry of about size bytes to raft; false: raft does not take it.
func (n *Node) fly(p proposal, kind byte, size int, e *core.Entry) bool {
	if e.Version == 0 {
		e.Version = n.machine.Version()
	}
	n.entry = core.AppendEntry(header{kind, n.cfg.ID, p.number, p.ruler}.append(slices.Grow(n.entry[:0], size)), e)
	err := n.raft.Propose(n.entry) // which makes a copy
	if cap(n.entry) > maxSpareEntry {
		n.entry = nil
	}
	if err != nil {
		return false
	}
	n.flying = append(n.flying, p)
	n.stamped = n.now
	return true
}

// putBack returns a batch that raft did not take to the head of the queue.
func (n *Node) putBack(batch []item) {
	rest := n.waiting.take()
	for i := range batch {
		n.waiting.add(&batch[i])
	}
	for i := range rest {
		n.waiting.add(&rest[i])
	}
}

// proposeStamp proposes a bare stamp when a deadline is due, and now and then
// while there is one: without it nothing would expire on an idle cluster, and
// with more of them an idle cluster would write for nothing.
func (n *Node) proposeStamp() {
	if !n.serving || len(n.flying) > 0 || n.transfer != 0 || n.waiting.len() > 0 {
		return
	}
	if n.machine.Behind() && n.now < n.resume {
		return
	}
	due, any := n.machine.Due()
	if any && (due <= n.clock.now || n.now-n.stamped >= stampEvery) {
		n.proposeEntry(nil)
	}
}

func (n *Node) currentTerm() uint64 { return n.raft.BasicStatus().HardState.GetTerm() }
