package sim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
)

// adderBase is where the numbers of adders begin, among those of clients.
const adderBase = 1 << 17

// adder is a program that counts by plain calls, each with a session of its own,
// so that nothing but the answer tells whether it may ask again: told that
// nothing was done it does so, as a node does that passes calls on to the leader.
type adder struct {
	c        *cluster
	id       uint64
	sessions uint64
	open     []*op // with an outcome that it does not know
}

func (a *adder) party() uint64 { return clientBase + a.id }

// work counts now and then.
func (a *adder) work() {
	a.c.after(a.c.between(20*millisecond, 400*millisecond), func() {
		if !a.c.healing {
			a.add(fmt.Sprintf("counter-%d", a.c.rng.IntN(counters)))
			a.work()
		}
	})
}

// add brings one Add to some node, mostly one that leads.
func (a *adder) add(name string) {
	n := a.c.leader()
	if n == nil || a.c.chance(0.1) {
		n = a.c.nodes[a.c.rng.IntN(len(a.c.nodes))]
	}
	o := &op{kind: core.OpCount, name: name, amount: 1, began: a.c.now, least: a.c.check.acked[name], epoch: a.c.check.epoch()}
	a.open = append(a.open, o)
	a.c.res.Operations++
	session, frame := a.frame(name)
	a.c.net.once(a.party(), n.id, func() {
		n.input(func() {
			id := a.c.newCaller()
			a.c.asks[id] = func(x replica.Answer) {
				a.c.net.once(n.id, a.party(), func() { a.answered(o, x) })
				if x.Outcome != replica.Done && x.Outcome != replica.Unknown {
					a.c.check.notDone(session)
				}
			}
			n.replica.Submit(n.now(), id, frame)
		})
	})
}

func (a *adder) frame(name string) (core.SessionID, []byte) {
	a.sessions++
	var id core.SessionID
	binary.LittleEndian.PutUint64(id[:], a.id)
	binary.LittleEndian.PutUint64(id[8:], a.sessions)
	return id, core.AppendFrame(nil, &core.Frame{Session: id, Mark: 1, Attempt: 1, Commands: []core.Command{
		{Op: core.OpOpen, TTL: second},
		{Op: core.OpCount, Seq: 1, Name: name, Count: core.CountAdd, Unsigned: true, A: 1},
	}})
}

// answered takes an answer, however late. One that does not tell leaves the Add
// open.
func (a *adder) answered(o *op, x replica.Answer) {
	a.c.note(a.id, uint64(x.Outcome))
	switch x.Outcome {
	case replica.Done:
		a.settle(o)
		a.done(o, x.Data)
	case replica.NotDone, replica.Overload:
		a.settle(o)
		a.again(o.name)
	}
}

// again asks once more, soon.
func (a *adder) again(name string) {
	a.c.after(a.c.between(10*millisecond, 500*millisecond), func() {
		if !a.c.healing {
			a.add(name)
		}
	})
}

func (a *adder) settle(o *op) {
	a.open = slices.DeleteFunc(a.open, func(x *op) bool { return x == o })
}

func (a *adder) done(o *op, reply []byte) {
	var r core.Reply
	if err := core.DecodeReply(reply, &r); err != nil || len(r.Results) != 2 {
		a.c.violate("an adder cannot read what a node answers: %v", err)
		return
	}
	o.call = &session.Call{Outcome: session.Answered, Result: r.Results[1]}
	if o.call.Result.Code == core.CodeOK {
		a.c.check.history(a.id, o, true)
		a.c.check.counted(o)
	}
}

// undecided notes the plain Adds with an outcome that no client ever learned.
func (k *checker) undecided() {
	for _, a := range k.c.adders {
		for _, o := range a.open {
			k.doubt(o, HistoryOp{Client: int(a.id), Add: o.amount, Call: o.began}, o.epoch)
			if o.epoch == k.epoch() {
				k.unsure[o.name] += o.amount
			}
		}
	}
}

// notDone notes that a plain call was answered as certainly not done: the session
// that it was to open never is.
func (k *checker) notDone(id core.SessionID) {
	k.undone[id] = true
	if k.opened[id] {
		k.c.violate("session %x: a call that was done is answered as not done", id[:9])
	}
}

// notAdded notes that a change certainly did not happen; the numbers of nodes are
// never used twice.
func (k *checker) notAdded(c replica.Change) {
	for _, e := range c.Add {
		k.refused[e.ID] = true
	}
	for _, n := range k.c.nodes {
		if n.up {
			k.members(n)
		}
	}
}

// members: no node is in the group of which it was said that it was not added. With
// operators the group gives such a number to another.
func (k *checker) members(n *node) {
	if k.c.opts.Operators {
		return
	}
	for _, e := range n.replica.Status().Members.Endpoints {
		if k.refused[e.ID] {
			k.c.violate("node %d is a member, although the change that adds it was answered as not done", e.ID)
		}
	}
}
