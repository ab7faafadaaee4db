package sim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
)

// client is the shell of a session, and a program that uses it.
type client struct {
	c     *cluster
	id    uint64
	clock clock
	ttl   time.Duration
	keeps bool   // it never lets go by itself
	stays bool   // it asks a node that does not lead again, and waits for its word
	hint  string // what that node said at first

	session  *session.Session
	sessions uint64 // how many it has had
	conn     *conn
	route    *session.Route
	paused   bool
	waiting  []func()
	wake     uint64 // number of the newest wake-up that is scheduled

	calls []*op // in flight or held
}

// op is one call of the program and what became of it.
type op struct {
	call   *session.Call
	kind   core.Op
	name   string
	mode   core.Mode
	weight int64
	amount uint64 // counters: what it adds
	least  uint64 // counters: what had been acknowledged when it was sent
	held   bool   // the program holds it
	base   *op    // of an upgrade: the shared hold
	busy   bool   // an upgrade of it is under way
	s      *session.Session
	began  int64
	epoch  int // of the cluster that was asked
}

func (k *client) now() int64 { return k.clock.local(k.c.now) }

func (k *client) party() uint64 { return clientBase + k.id }

// open begins a new session.
func (k *client) open() {
	k.sessions++
	var id core.SessionID
	binary.LittleEndian.PutUint64(id[:], k.id)
	binary.LittleEndian.PutUint64(id[8:], k.sessions)
	k.session = session.New(session.Config{ID: id, TTL: k.ttl, Owner: "client", Seed: k.c.rng.Uint64()})
	k.c.check.sessions[id] = k
	if k.conn != nil {
		k.do(k.session.Connect(k.now()))
	} else {
		k.dial()
	}
	k.flush()
}

// dial connects to the node that the route has next.
func (k *client) dial() {
	var known []string
	for _, n := range k.c.nodes {
		known = append(known, n.addr)
	}
	if k.route == nil {
		k.route = session.NewRoute(k.c.rng.Uint64(), known...)
	}
	k.route.Set(known...)
	next, _ := k.route.Dial()
	i := slices.Index(known, next)
	if i < 0 { // a hint at a node that is gone
		k.route.Failed(k.now())
		k.dial()
		return
	}
	k.connect(k.c.nodes[i])
}

func (k *client) connect(n *node) {
	id := k.c.newCaller()
	k.conn = &conn{id: id, client: k, node: n.id,
		there: pipe{n: k.c.net, from: k.party(), to: n.id},
		back:  pipe{n: k.c.net, from: n.id, to: k.party(), leaks: k.c.chance(0.3)}}
	k.c.conns[id] = k.conn
	if x := k.conn; !n.up {
		k.c.after(k.c.between(millisecond, second), func() { k.disconnected(x) })
		return
	}
	k.do(k.session.Connect(k.now()))
}

// redial gives the connection up and tries another soon.
func (k *client) redial(hint string) {
	old := k.conn
	if old == nil {
		return
	}
	k.conn = nil
	if hint != "" {
		k.route.Hint(k.now(), hint)
	} else {
		k.route.Failed(k.now())
	}
	delete(k.c.conns, old.id)
	old.closed = true
	if n := k.c.node(old.node); n != nil && n.up {
		n.input(func() { n.replica.StreamClosed(old.id) })
	}
	k.do(k.session.Disconnect(k.now()))
	_, at := k.route.Dial()
	k.c.at(max(k.clock.toTrueTime(at), k.c.now+k.c.between(millisecond, 50*millisecond)), func() {
		k.input(func() {
			if k.conn == nil {
				k.dial()
			}
		})
	})
}

func (k *client) disconnected(x *conn) {
	k.input(func() {
		if k.conn == x {
			k.redial("")
		}
	})
}

// input gives the client something, or keeps it for the end of a pause.
func (k *client) input(do func()) {
	if k.paused {
		k.waiting = append(k.waiting, do)
		return
	}
	do()
	k.flush()
}

func (k *client) pause(d int64) {
	if k.paused {
		return
	}
	k.paused = true
	k.c.after(d, func() {
		k.paused = false
		todo := k.waiting
		k.waiting = nil
		for _, do := range todo {
			k.input(do)
		}
		k.input(func() {})
	})
}

// receive takes what a node sent, also over a connection that was given up:
// telling the two apart is the session's business.
func (k *client) receive(data []byte) {
	k.input(func() {
		for len(data) > 0 {
			m, rest, err := session.DecodeMessage(data)
			if err != nil {
				k.c.violate("a client cannot read what a node sends: %v", err)
				return
			}
			k.renewed(&m)
			if m.Kind != session.KindRefused {
				k.route.Worked()
			}
			k.do(k.session.Receive(k.now(), &m))
			data = rest
		}
	})
}

// renewed checks the answer to a renewal, or to an Open.
func (k *client) renewed(m *session.Message) {
	var r core.Reply
	switch {
	case m.Kind == session.KindRenewed:
		k.c.check.wholeLife(m.Session, m.Now, m.Deadline, int64(k.ttl))
	case m.Kind != session.KindReply || m.Session != k.session.ID() || k.session.Opened(): // it may come to the session before
	case core.DecodeReply(m.Body, &r) != nil:
		k.c.violate("a client cannot read a reply")
	case r.Results[0].Seq == 0:
		k.c.check.wholeLife(m.Session, r.Now, r.Deadline, int64(k.ttl))
	}
}

// flush sends what is due and sets the alarm for the next time.
func (k *client) flush() {
	if k.paused || k.session == nil {
		return
	}
	k.do(k.session.Flush(k.now()))
	at := k.session.Wake()
	if at == session.Never {
		return
	}
	k.wake++
	number := k.wake
	k.c.at(max(k.clock.toTrueTime(at), k.c.now+1), func() {
		if k.wake == number {
			k.input(func() {})
		}
	})
}

// do does what the session asks for. What is to be sent is encoded first: it is
// only valid until the session is used again.
func (k *client) do(actions []session.Action) {
	s := k.session
	steps := slices.Clone(actions)
	sends := make([][]byte, len(steps))
	for i := range steps {
		if steps[i].Kind == session.Send {
			sends[i] = session.AppendMessage(nil, &steps[i].Message)
		}
	}
	for i := range steps {
		k.step(s, &steps[i], sends[i])
	}
}

func (k *client) step(s *session.Session, a *session.Action, send []byte) {
	switch a.Kind {
	case session.Send:
		if a.Message.Kind == session.KindRenewal {
			k.c.res.Renewals++
		}
		k.send(send)
	case session.Done:
		k.done(a.Call)
	case session.Lost:
		k.lost(a.Call, a.Code)
	case session.SessionOver:
		k.sessionEnded(s)
	case session.Redial, session.Silent:
		if k.session == s {
			k.turnTo(a.Endpoint)
		}
	case session.Over:
		if k.session == s {
			k.c.after(k.c.between(millisecond, 300*millisecond), func() { k.input(k.open) })
		}
	}
}

// turnTo goes where a node says the leader is, at once or when the node has had
// no better word for a while.
func (k *client) turnTo(hint string) {
	if k.stays && hint != "" {
		k.hint = hint
		return
	}
	k.redial(cmp.Or(hint, k.hint))
	k.hint = ""
}

func (k *client) send(data []byte) {
	x := k.conn
	if x == nil {
		return
	}
	x.there.send(func() {
		n := k.c.node(x.node)
		if n == nil || x.closed {
			return
		}
		n.input(func() {
			if k.c.conns[x.id] != x {
				return
			}
			if err := n.replica.Receive(n.now(), x.id, data); err != nil {
				k.c.violate("node %d refuses what a client sends: %v", n.id, err)
			}
		})
	})
}

// submit hands a command to the session.
func (k *client) submit(o *op, cmd core.Command) {
	o.call = &session.Call{Command: cmd, Tag: o}
	o.kind, o.s, o.began, o.least = cmd.Op, k.session, k.c.now, k.c.check.acked[o.name]
	o.epoch = k.c.check.epoch()
	k.calls = append(k.calls, o)
	k.c.res.Operations++
	k.do(k.session.Submit(k.now(), o.call))
}

// sessionEnded ends every hold and call of a session, and begins anew when it is over.
func (k *client) sessionEnded(s *session.Session) {
	k.c.res.SessionsLost++
	for _, o := range k.calls {
		if o.s == s {
			o.held = false
		}
	}
}

func (k *client) lost(call *session.Call, code core.Code) {
	o := call.Tag.(*op)
	o.held = false
	k.drop(o)
	if code == core.CodeRevoked {
		k.release(o)
	}
}

func (k *client) drop(o *op) {
	k.calls = slices.DeleteFunc(k.calls, func(x *op) bool { return x == o })
}

// done hears what became of a call.
func (k *client) done(call *session.Call) {
	o := call.Tag.(*op)
	if o.base != nil {
		o.base.busy = false
	}
	k.c.note(k.id, call.Seq(), uint64(call.Outcome), uint64(call.Result.Code), call.Result.Token)
	k.c.check.done(k, o)
	if call.Outcome == session.Answered && call.Result.Code == core.CodeOK && (o.kind == core.OpAcquire || o.kind == core.OpUpgrade) {
		k.granted(o)
		return
	}
	k.drop(o)
}

func (k *client) granted(o *op) {
	if o.base != nil {
		o.base.held = false
		k.drop(o.base)
	}
	o.held = true
	k.letGoLater(o)
}

func (k *client) letGoLater(o *op) {
	if k.keeps {
		return
	}
	longest := 2 * second
	switch {
	case k.c.healing:
		longest = second / 10
	case k.c.chance(0.2):
		longest = 10 * second // so long that it may be lost before
	}
	k.c.after(k.c.between(millisecond, longest), func() { k.input(func() { k.letGo(o) }) })
}

func (k *client) letGo(o *op) {
	if !o.held || o.s != k.session {
		return
	}
	if o.busy {
		k.letGoLater(o)
		return
	}
	o.held = false
	k.drop(o)
	k.release(o)
}

func (k *client) release(o *op) {
	if o.s == k.session {
		k.submit(&op{name: o.name}, core.Command{Op: core.OpRelease, Target: o.call.Seq()})
	}
}

// believes reports whether the client's program may act on a hold at true time
// t.
func (k *client) believes(o *op, t int64) bool {
	d, ok := o.s.Deadline()
	if !o.held || !o.s.Alive() || !ok {
		return false
	}
	if o.call.Deadline != 0 {
		d = min(d, o.call.Deadline)
	}
	return k.clock.local(t) < d
}

func (k *client) believesIn(id core.SessionID, t int64) bool {
	d, ok := k.session.Deadline()
	return k.session.ID() == id && k.session.Alive() && ok && k.clock.local(t) < d
}

// read is a linearizable look at a counter.
type read struct {
	client *client
	began  int64
	name   string
	least  uint64 // what had been acknowledged when it was asked for
}

// read asks a node that may or may not lead for one of the counters.
func (k *client) read(n *node) {
	if !n.up {
		return
	}
	name := fmt.Sprintf("counter-%d", k.c.rng.IntN(counters))
	id := k.c.newCaller()
	k.c.reads[id] = &read{client: k, began: k.c.now, name: name, least: k.c.check.acked[name]}
	n.input(func() { n.replica.Read(n.now(), id) })
}

func (c *cluster) readReady(n *node, id replica.Caller) {
	r := c.reads[id]
	if r == nil {
		return
	}
	delete(c.reads, id)
	c.res.Reads++
	got := n.replica.Machine().Read("", &core.Command{Op: core.OpCount, Count: core.CountLoad, Name: r.name, Unsigned: true})
	c.res.History = append(c.res.History, HistoryOp{Client: int(r.client.id), Name: scoped(r.name, c.check.epoch()), Call: r.began, Return: c.now, Value: got.Number})
	if got.Number < r.least {
		c.violate("a linearizable read of %s on node %d gave %d, after %d had been acknowledged", r.name, n.id, got.Number, r.least)
	}
}
