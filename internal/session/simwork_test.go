package session_test

import (
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// work does something on the current session, and again after a while.
func (c *client) work() {
	if c.w.healed {
		return
	}
	c.w.after(c.w.upTo(c.w.nature.ttl/6), c.work)
	c.awake(func() {
		for range 1 + c.w.rnd.IntN(3) {
			c.current.act()
		}
		c.flush()
	})
}

// act is one thing that a program might do.
func (u *user) act() {
	w := u.c.w
	switch w.rnd.IntN(12) {
	case 0, 1, 2:
		u.acquire([]string{pick(w, "a", "b")}, core.Mutex, core.Exclusive)
	case 3:
		u.acquire([]string{"rw"}, core.RWMutex, core.Exclusive)
	case 4, 5:
		u.acquire([]string{"rw"}, core.RWMutex, core.Shared)
	case 6:
		u.acquire([]string{"a", "b"}, core.Mutex, core.Exclusive)
	case 7:
		u.upgrade()
	case 8:
		u.force()
	case 9:
		u.abandon()
	default:
		u.count()
	}
}

func (u *user) submit(c core.Command, tag any) *session.Call {
	call := &session.Call{Command: c, Tag: tag}
	u.take(u.s.Submit(u.c.local(), call))
	return call
}

func (u *user) acquire(names []string, kind core.Kind, mode core.Mode) {
	w := u.c.w
	h := &hold{u: u, names: names, mode: mode}
	cmd := core.Command{Op: core.OpAcquire}
	for _, n := range names {
		cmd.Wants = append(cmd.Wants, core.Want{Name: n, Kind: kind, Mode: mode})
	}
	switch w.rnd.IntN(6) {
	case 0:
		cmd.Flags = core.Try
	case 1:
		cmd.Wait = 1 + w.upTo(w.nature.ttl)
	case 2:
		cmd.MaxHold = ms*200 + w.upTo(w.nature.ttl)
	}
	u.holds = append(u.holds, h)
	h.call = &session.Call{Command: cmd, Tag: h}
	w.wishes[u.s.ID()]++
	u.take(u.s.Submit(u.c.local(), h.call))
}

// some is a hold of the session in a state, if there is one.
func (u *user) some(state holdState, mode core.Mode) *hold {
	var of []*hold
	for _, h := range u.holds {
		if h.state == state && h.mode == mode && !h.changing {
			of = append(of, h)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[u.c.w.rnd.IntN(len(of))]
}

func (u *user) upgrade() {
	base := u.some(believed, core.Shared)
	if base == nil {
		return
	}
	base.changing, base.changed = true, true
	h := &hold{u: u, names: base.names, mode: core.Exclusive, base: base}
	u.holds = append(u.holds, h)
	h.call = &session.Call{Command: core.Command{Op: core.OpUpgrade, Target: base.call.Seq()}, Tag: h}
	u.take(u.s.Submit(u.c.local(), h.call))
}

// force ends somebody's hold without waiting for the holder.
func (u *user) force() {
	w := u.c.w
	victim := w.clients[w.rnd.IntN(len(w.clients))]
	h := victim.current.some(believed, core.Exclusive)
	if h == nil {
		return
	}
	w.tally.forced++
	w.say("client %d forces %v of client %d", u.c.index, h.names, victim.index)
	u.submit(core.Command{Op: core.OpForce, Name: h.names[0], Token: h.call.Result.Token}, nil)
}

// abandon gives up a wait.
func (u *user) abandon() {
	h := u.some(wished, pick(u.c.w, core.Exclusive, core.Shared))
	if h == nil {
		return
	}
	u.c.w.tally.cancels++
	h.end(false)
	_, actions := u.s.Abandon(u.c.local(), h.call)
	u.take(actions)
}

// granted begins the hold, and plans its end.
func (h *hold) granted() {
	w := h.u.c.w
	if h.base != nil {
		h.base.end(false)
	}
	h.state = believed
	w.told(h)
	if w.healed {
		h.release()
		return
	}
	w.after(w.upTo(w.nature.ttl*2), func() {
		h.u.c.awake(func() {
			h.release()
			h.u.c.flush()
		})
	})
}

// release gives the hold back. One under an upgrade is left to it.
func (h *hold) release() {
	if h.state == believed && !h.changing {
		h.end(true)
	}
}

// end is the end of belief. tell: the server has to know.
func (h *hold) end(tell bool) {
	h.state = ended
	if h.base != nil {
		h.base.changing = false
		if h.u.c.w.healed {
			h.base.release()
		}
	}
	if tell && !h.u.dead {
		h.u.submit(core.Command{Op: core.OpRelease, Target: h.call.Seq()}, nil)
	}
}

// believes reports whether the program believes in the hold at this instant of
// true time, whatever it is doing: its library compares the clock.
func (h *hold) believes() bool {
	d, _ := h.u.s.Deadline()
	if h.call.Deadline != 0 {
		d = min(d, h.call.Deadline)
	}
	return h.state == believed && !h.u.dead && h.u.c.local() < d
}

// counting marks calls that change the counter or the sequence.
type counting struct{ reserve bool }

// counted is what is known about both.
type counted struct {
	asked, sure, maybe int
	values, blocks     map[uint64]bool
}

func (u *user) count() {
	w := u.c.w
	tag := counting{reserve: w.rnd.IntN(2) == 0}
	if tag.reserve {
		u.submit(core.Command{Op: core.OpReserve, Name: "s", A: 3, B: 1}, tag)
		return
	}
	for range w.rnd.IntN(3) { // some that travel together
		w.counter.asked++
		u.submit(core.Command{Op: core.OpCount, Name: "c", Count: core.CountAdd, A: 1}, tag)
	}
	w.counter.asked++
	call := u.submit(core.Command{Op: core.OpCount, Name: "c", Count: core.CountAdd, A: 1}, tag)
	if w.rnd.IntN(10) == 0 && call.Outcome != session.NotDone {
		out, actions := u.s.Abandon(u.c.local(), call)
		u.take(actions)
		if out == session.Unknown {
			w.counter.maybe++
		}
	}
}

// answered checks "exactly once": every answer has a value of its own.
func (k *counted) answered(w *world, call *session.Call) {
	reserve := call.Tag.(counting).reserve
	switch {
	case call.Outcome == session.NotDone:
		return
	case call.Outcome == session.Unknown:
		if !reserve {
			k.maybe++
		}
		return
	case call.Result.Code != core.CodeOK:
		w.fail("counting answered with code %d %s", call.Result.Code, call.Result.Text)
		return
	}
	seen := k.values
	if reserve {
		seen = k.blocks
	} else {
		k.sure++
	}
	n := call.Result.Number
	if seen[n] || reserve && n%3 != 1 {
		w.fail("number %d was given twice, or is no beginning of a block (reserve %v)", n, reserve)
	}
	seen[n] = true
}

// happened checks every grant in true time: nobody else may believe.
func (w *world) happened(e *core.Event) {
	if e.Verb != core.VerbAcquired && e.Verb != core.VerbUpgraded {
		return
	}
	w.say("granted %s mode %d token %d to %x", e.Name, e.Mode, e.Token, e.Session[:8])
	if w.grants[e.Token] == nil {
		w.grants[e.Token] = &grant{session: e.Session}
		w.tally.grants++
		if e.Verb == core.VerbAcquired {
			w.wishes[e.Session]--
		}
	}
	for _, c := range w.clients {
		for _, u := range c.sessions {
			for _, h := range u.holds {
				if w.clash(h, e) {
					w.fail("%s was granted with token %d while client %d still believes in token %d",
						e.Name, e.Token, c.index, h.call.Result.Token)
				}
			}
		}
	}
}

// clash reports whether a grant contradicts a belief. An upgrade does not
// contradict the belief in its own shared hold, also if its caller has given it
// up and the server does not know yet.
func (w *world) clash(h *hold, e *core.Event) bool {
	if !h.believes() || !slices.Contains(h.names, e.Name) || h.call.Result.Token == e.Token {
		return false
	}
	if e.Verb == core.VerbUpgraded && h.changed && h.u.s.ID() == e.Session {
		return false
	}
	return e.Mode == core.Exclusive || h.mode == core.Exclusive
}

// grant is one that the machine made.
type grant struct {
	session core.SessionID
	told    bool
}

// told checks a grant as the program hears of it: the machine made it, for this
// session, and nobody else was told.
func (w *world) told(h *hold) {
	g := w.grants[h.call.Result.Token]
	if g == nil || g.told || g.session != h.u.s.ID() {
		w.fail("client %d was told the token %d: %+v", h.u.c.index, h.call.Result.Token, g)
		return
	}
	g.told = true
}

// heal ends all trouble and lets the programs finish.
func (w *world) heal() {
	w.healed = true
	w.nature.delay = ms
	w.say("healed")
	w.server.stalledTil = w.now
	for _, c := range w.clients {
		c.pausedTil = w.now
		for _, u := range c.sessions {
			for _, h := range slices.Clone(u.holds) {
				h.release()
			}
		}
		c.flush()
	}
}

// settled checks what is left in a healed world: every wish was answered, every
// name is free, every count is right.
func (w *world) settled() {
	if len(w.failures) > 0 {
		return
	}
	for _, c := range w.clients {
		for _, u := range c.sessions {
			for _, h := range u.holds {
				if h.state != ended && !u.dead {
					w.fail("client %d: %v is still in state %d", c.index, h.names, h.state)
				}
			}
		}
	}
	for id, c := range w.ids {
		rows, _ := w.server.m.Table(id)
		for _, r := range rows {
			if r.State != core.ClaimGone {
				w.fail("claim %d of client %d, session %x, is in state %d and nobody has it", r.Seq, c.index, id[:8], r.State)
			}
		}
		if w.wishes[id] < 0 {
			w.fail("session %x was granted more often than it asked", id)
		}
	}
	k := &w.counter
	r := w.server.m.Read("", &core.Command{Op: core.OpCount, Name: "c", Count: core.CountLoad})
	if n := int(r.Number); n < k.sure || n > k.sure+k.maybe {
		w.fail("the counter is %d after %d sure and %d unknown of %d", n, k.sure, k.maybe, k.asked)
	}
}
