package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/deadline"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// callerBase is where the numbers of callers begin, among those of clients.
const callerBase = 1 << 16

// caller is a program that keeps its session by hand, without a stream: each of
// its frames travels by itself, and may be lost, come twice, or come after those
// that were sent later.
type caller struct {
	c        *cluster
	id       uint64
	clock    clock
	ttl      int64
	session  core.SessionID
	sessions uint64 // how many it has had
	attempt  uint64
	seq      uint64
	until    int64  // by its own clock: the end of its session, as far as it knows
	ends     bool   // it wants no session any more
	claimed  string // what it asked for, until the cancel of that is answered
}

func (k *caller) now() int64 { return k.clock.local(k.c.now) }

func (k *caller) party() uint64 { return clientBase + k.id }

func (k *caller) believesIn(id core.SessionID, t int64) bool {
	return k.session == id && !k.ends && k.clock.local(t) < k.until
}

// open begins a new session, unless all is healing: what becomes of
// the one before is its own business.
func (k *caller) open() {
	k.sessions++
	k.session = core.SessionID{}
	k.seq, k.until, k.ends, k.claimed = 0, 0, false, ""
	if k.c.healing {
		return
	}
	binary.LittleEndian.PutUint64(k.session[:], k.id)
	binary.LittleEndian.PutUint64(k.session[8:], k.sessions)
	k.c.check.sessions[k.session] = k
	open := core.Command{Op: core.OpOpen, TTL: k.ttl, Owner: "caller"}
	k.ask(open, func(r *core.Reply) {
		k.c.check.wholeLife(k.session, r.Now, r.Deadline, k.ttl)
		k.renew(k.sessions)
		k.next()
	})
}

// next claims something soon, or ends the session now and then.
func (k *caller) next() {
	life := k.sessions
	k.c.after(k.c.between(10*millisecond, 300*millisecond), func() {
		switch {
		case k.sessions != life:
		case k.c.healing || k.c.chance(0.03):
			k.ends = true
			k.ask(core.Command{Op: core.OpEnd}, func(*core.Reply) { k.open() })
		default:
			k.claim()
		}
	})
}

// claim asks for a name and does not wait for the answer: soon it cancels what
// it asked for, whether that has been granted, waits, or has yet to arrive.
func (k *caller) claim() {
	k.c.res.Operations++
	k.seq++
	k.claimed = fmt.Sprintf("mutex-%d", k.c.rng.IntN(mutexes))
	acquire := core.Command{Seq: k.seq, Op: core.OpAcquire, Wants: []core.Want{{Name: k.claimed, Kind: core.Mutex}}}
	k.send(acquire, func(*core.Reply) {})
	life := k.sessions
	k.c.after(k.c.between(0, 200*millisecond), func() {
		if k.sessions == life {
			k.cancel()
		}
	})
}

func (k *caller) cancel() {
	k.c.res.Operations++
	k.seq++
	k.ask(core.Command{Seq: k.seq, Op: core.OpCancel, Target: k.seq - 1}, func(r *core.Reply) {
		k.claimed = ""
		k.next()
	})
}

// renew keeps the session alive.
func (k *caller) renew(life uint64) {
	if k.sessions != life || k.ends {
		return
	}
	k.attempt++
	renewal, sent := core.Renewal{Session: k.session, Attempt: k.attempt}, k.now()
	k.post(func(n *node, id replica.Caller) { n.replica.Renew(n.now(), id, renewal) }, func(a replica.Answer) {
		var r core.Renewed
		if err := core.DecodeRenewed(a.Data, &r); err != nil {
			k.c.violate("a caller cannot read what a node answers: %v", err)
		}
		if k.sessions == life {
			k.c.check.wholeLife(k.session, r.Now, r.Deadline, k.ttl)
			k.heard(sent, r.Now, r.Deadline)
		}
	})
	k.c.after(k.ttl/4, func() { k.renew(life) })
}

// ask sends a command until it is answered.
func (k *caller) ask(cmd core.Command, done func(*core.Reply)) {
	life, answered := k.sessions, false
	var try func()
	try = func() {
		if answered || k.sessions != life {
			return
		}
		k.send(cmd, func(r *core.Reply) {
			if !answered {
				answered = true
				done(r)
			}
		})
		k.c.after(k.c.between(100*millisecond, 500*millisecond), try)
	}
	try()
}

// send sends a command once. Its mark stays at the beginning, so that the group
// has to remember all that it was ever asked for.
func (k *caller) send(cmd core.Command, done func(*core.Reply)) {
	k.attempt++
	life, sent := k.sessions, k.now()
	frame := core.AppendFrame(nil, &core.Frame{Session: k.session, Mark: 1, Attempt: k.attempt, Commands: []core.Command{cmd}})
	k.post(func(n *node, id replica.Caller) { n.replica.Submit(n.now(), id, frame) }, func(a replica.Answer) {
		var r core.Reply
		if err := core.DecodeReply(a.Data, &r); err != nil {
			k.c.violate("a caller cannot read what a node answers: %v", err)
		}
		if k.sessions == life && (cmd.Op == core.OpEnd || k.heard(sent, r.Now, r.Deadline)) {
			done(&r)
		}
	})
}

// heard takes the deadline of an answer; false: the session is over, and another
// has begun.
func (k *caller) heard(sent, n, x int64) bool {
	if x == 0 || k.until != 0 && k.now() >= k.until {
		k.open()
		return false
	}
	k.until = max(k.until, deadline.Map(sent, n, x, time.Duration(k.ttl)))
	return true
}

// post brings a question to some node, mostly the one that leads, and its answer
// back, if neither gets lost.
func (k *caller) post(question func(*node, replica.Caller), answer func(replica.Answer)) {
	n := k.c.leader()
	if n == nil || k.c.chance(0.1) {
		n = k.c.nodes[k.c.rng.IntN(len(k.c.nodes))]
	}
	k.c.net.send(k.party(), n.id, func() {
		n.input(func() {
			id := k.c.newCaller()
			k.c.asks[id] = func(a replica.Answer) {
				k.c.net.send(n.id, k.party(), func() {
					if a.Outcome == replica.Done {
						answer(a)
					}
				})
			}
			question(n, id)
		})
	})
}

// answers gives callers what a node answered.
func (c *cluster) answers(all []replica.Answer) {
	for _, a := range all {
		if f := c.asks[a.Caller]; f != nil {
			delete(c.asks, a.Caller)
			f(a)
		}
	}
}
