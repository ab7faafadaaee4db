package session_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// delayed gets a hold with a delay, and a deadline of its own if maxHold is not 0.
func (r *rig) delayed(maxHold int64) *session.Call {
	r.t.Helper()
	c := r.submit(core.Command{Op: core.OpAcquire, MaxHold: maxHold, Delay: sec(5), Wants: []core.Want{{Name: "d", Kind: core.RWMutex, Mode: core.Shared}}})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq(), Code: core.CodeOK, Token: 100, Deadline: maxHold})
	return c
}

// answer answers the last frame, which is one command.
func (r *rig) answer(c *session.Call) {
	r.t.Helper()
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq(), Code: core.CodeOK, Token: 100 + c.Seq()})
}

// To the server an End is a release of all that the session has: after a loss it would
// skip the delay. What was given back, or never was a hold, has none.
func TestLostWithADelayIsNotGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		maxHold int64
		before  func(*rig, *session.Call)
		end     func(*rig)
		told    bool
	}{
		"not renewed": {end: expire},
		"upgraded": {before: func(r *rig, c *session.Call) {
			r.answer(r.submit(core.Command{Op: core.OpUpgrade, Target: c.Seq()}))
		}, end: expire},
		"released": {before: func(r *rig, c *session.Call) {
			r.answer(r.submit(core.Command{Op: core.OpRelease, Target: c.Seq()}))
		}, end: expire, told: true},
		"released without an answer": {before: func(r *rig, c *session.Call) {
			r.submit(core.Command{Op: core.OpRelease, Target: c.Seq()})
		}, end: expire, told: true},
		"revoked":         {before: revokeIt, end: expire},
		"revoked, closed": {before: revokeIt, end: closeIt, told: true},
		"unknown to the server": {end: func(r *rig) {
			refuse(r, 0, session.RefusedNoSession)
		}},
		"closed":                 {end: closeIt, told: true},
		"closed before max-hold": {maxHold: sec(20), end: closeIt, told: true},
		"closed after max-hold":  {maxHold: sec(10), end: func(r *rig) { closeIt(r.at(9.9)) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := opened(t, session.Config{})
			call := r.delayed(c.maxHold)
			if c.before != nil {
				c.before(r, call)
			}
			if c.end(r); len(r.dead) != 1 {
				t.Fatalf("dead %v", r.dead)
			}
			if told := len(r.flush()) > 0; told != c.told || told == (r.overs == 1) {
				t.Fatalf("an End was sent: %v, want %v; over %d times", told, c.told, r.overs)
			}
		})
	}
}

func expire(r *rig)  { r.take(r.s.Tick(r.deadline())); r.now = r.deadline() }
func closeIt(r *rig) { r.take(r.s.End(r.now)) }

func revokeIt(r *rig, c *session.Call) {
	r.push(core.Push{Seq: c.Seq(), State: core.ClaimRevoked, Code: core.CodeRevoked})
}

// A waiter had nothing that could be lost.
func TestWaiterWithADelayIsGivenBack(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.submit(core.Command{Op: core.OpAcquire, Delay: sec(5), Wants: []core.Want{{Name: "d", Kind: core.Mutex}}})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq(), Code: core.CodeQueued})
	expire(r)
	if r.flush(); r.commands()[0].Op != core.OpEnd {
		t.Fatalf("sent %+v, want an End", r.commands())
	}
}

// What a policy keeps stays, also if the server errs in that it does not know the session. Of
// a session that was never opened nobody knows what it holds: it is not kept for ever.
func TestPolicyOutlastsALoss(t *testing.T) {
	for name, c := range map[string]struct {
		make func(*testing.T, session.Config) *rig
		end  func(*rig)
		told bool
	}{
		"not renewed":           {opened, expire, false},
		"unknown to the server": {opened, func(r *rig) { refuse(r, 0, session.RefusedNoSession) }, false},
		"closed":                {opened, closeIt, true},
		"never answered":        {unanswered, func(r *rig) { r.at(302).take(r.s.Tick(r.now)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.make(t, session.Config{Policy: core.Never})
			if c.end(r); len(r.dead) != 1 {
				t.Fatalf("dead %v", r.dead)
			}
			if told := r.overs == 0; told != c.told {
				t.Fatalf("an End is to be sent: %v, want %v", told, c.told)
			}
		})
	}
}

// unanswered is a session with an Open that was sent with an acquire, and not answered.
func unanswered(t *testing.T, cfg session.Config) *rig {
	r := newRig(t, cfg).at(1)
	r.take(r.s.Connect(r.now))
	r.acquire("a")
	r.flush()
	r.table(false)
	r.flush()
	return r
}
