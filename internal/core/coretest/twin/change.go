package twin

import (
	"bytes"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// target finds the claim of s that a command is about, or says why there is
// none.
func (t *Twin) target(s *session, seq uint64) (*claim, core.Code) {
	if c := t.claim(s, seq); c != nil {
		return c, core.CodeOK
	}
	for _, r := range s.records {
		if r.result.Seq == seq && r.gone {
			return nil, core.CodeLost
		}
	}
	for _, c := range t.claims {
		if c.s == s && seq != 0 && c.was.seq == seq { // below the mark, but remembered by its upgrade
			return nil, core.CodeLost
		}
	}
	return nil, core.CodeNotExist
}

// holdOf is target for commands that need a hold.
func (t *Twin) holdOf(s *session, seq uint64) (*claim, core.Code) {
	c, code := t.target(s, seq)
	if c != nil && c.state == core.ClaimWaiting {
		return nil, core.CodeInvalid
	}
	return c, code
}

// goodHoldOf is holdOf for commands that a revoked claim refuses.
func (t *Twin) goodHoldOf(s *session, seq uint64) (*claim, core.Code) {
	c, code := t.holdOf(s, seq)
	if c != nil && c.state == core.ClaimRevoked {
		return nil, core.CodeRevoked
	}
	return c, code
}

// byToken finds the hold on a name with a token, whoever's it is.
func (t *Twin) byToken(s *session, n string, token uint64) *claim {
	o := t.find(s.ns, n)
	if o == nil || token == 0 {
		return nil
	}
	for _, c := range t.claims {
		if c.token == token && c.holds(o) {
			return c
		}
	}
	return nil
}

// release gives a hold back; for a revoked one it is the confirmation.
func (t *Twin) release(s *session, cmd core.Command) core.Result {
	c, code := t.toRelease(s, cmd)
	if c == nil {
		return core.Result{Code: code}
	}
	return t.giveBack(c, core.CodeLost, core.CodeOK)
}

func (t *Twin) toRelease(s *session, cmd core.Command) (*claim, core.Code) {
	if cmd.Target != 0 {
		return t.holdOf(s, cmd.Target)
	}
	switch c := t.byToken(s, cmd.Name, cmd.Token); {
	case c == nil || c.s == nil:
		return nil, core.CodeLost
	case c.s != s:
		return nil, core.CodePermission
	default:
		return c, core.CodeOK
	}
}

// giveBack ends a hold that its session gives back.
func (t *Twin) giveBack(c *claim, gone, reason core.Code) core.Result {
	r := core.Result{Revision: t.next()}
	t.tell(c, core.VerbReleased, reason)
	t.record(c, gone)
	t.leave(c, false)
	t.settle()
	return r
}

// cancel settles a number, seen or not.
func (t *Twin) cancel(s *session, cmd core.Command) core.Result {
	switch {
	case cmd.Target == 0 || cmd.Target == cmd.Seq:
		return core.Result{Code: core.CodeInvalid}
	case cmd.Target >= s.mark && cmd.Target-s.mark >= s.window:
		return core.Result{Code: core.CodeWindow}
	}
	c := t.claim(s, cmd.Target)
	switch {
	case c == nil:
		t.never(s, cmd.Target)
		return core.Result{}
	case c.state == core.ClaimWaiting:
		t.drop(c, core.CodeCanceled)
		t.settle()
		return core.Result{}
	case c.was.seq != 0 && (c.state == core.ClaimGranted || c.state == core.ClaimRevoked):
		return t.fallBack(c)
	}
	return t.giveBack(c, core.CodeCanceled, core.CodeCanceled)
}

// never makes sure that a number that was not seen will not have an effect.
func (t *Twin) never(s *session, seq uint64) {
	if _, seen := t.seen(s, seq); seen || seq < s.mark {
		return
	}
	s.records = append(s.records, record{result: core.Result{Seq: seq, Code: core.CodeCanceled, Revision: t.revision}})
}

// fallBack turns a granted upgrade into the shared claim that it was.
func (t *Twin) fallBack(c *claim) core.Result {
	r := core.Result{Revision: t.next()}
	t.record(c, core.CodeCanceled)
	c.seq, c.token, c.since, c.modified, c.version, c.was = c.was.seq, c.was.token, c.was.since, t.revision, c.was.version+1, shared{}
	c.created = c.token
	c.wants[0].Mode = core.Shared
	c.s.records = slices.DeleteFunc(c.s.records, func(r record) bool { return r.result.Seq == c.seq })
	t.tell(c, core.VerbDowngraded, core.CodeCanceled)
	if c.state == core.ClaimRevoked {
		t.push(c, core.ClaimRevoked, core.CodeRevoked)
	}
	t.touch(c, 0)
	t.settle()
	return r
}

// extend moves the max-hold deadline, only forward.
func (t *Twin) extend(s *session, cmd core.Command) core.Result {
	c, code := t.goodHoldOf(s, cmd.Target)
	switch {
	case cmd.MaxHold <= 0:
		return core.Result{Code: core.CodeInvalid}
	case c == nil:
		return core.Result{Code: code}
	case c.deadline == 0:
		return core.Result{Code: core.CodeInvalid}
	}
	if t.now+cmd.MaxHold > c.deadline {
		c.deadline = t.now + cmd.MaxHold
		c.change(t.next())
		t.tell(c, core.VerbExtended, core.CodeOK)
	}
	return core.Result{Revision: t.revision, Token: c.token, Deadline: c.deadline}
}

// upgrade asks to hold exclusively what is held shared. It goes before the
// queue, and only one can.
func (t *Twin) upgrade(s *session, cmd core.Command) core.Result {
	c, code := t.goodHoldOf(s, cmd.Target)
	switch {
	case cmd.Wait < 0:
		return core.Result{Code: core.CodeInvalid}
	case c == nil:
		return core.Result{Code: code}
	case len(c.wants) != 1 || c.wants[0].Kind != core.RWMutex || c.wants[0].Mode != core.Shared:
		return core.Result{Code: core.CodeInvalid}
	}
	n := t.find(c.ns, c.wants[0].Name)
	switch {
	case s.stale:
		return core.Result{Code: core.CodeLost}
	case t.frozen:
		return core.Result{Code: core.CodeUnavailable}
	case t.upgradeAt(n) != nil:
		return core.Result{Code: core.CodeConflict}
	case t.laden(s):
		return core.Result{Code: core.CodeExhausted}
	}
	want := c.wants[0]
	want.Mode = core.Exclusive
	return t.enter(&claim{
		ns: c.ns, s: s, seq: cmd.Seq, wants: []core.Want{want}, state: core.ClaimWaiting, target: c, wait: cmd.Wait, owner: c.owner,
	})
}

// downgrade makes an exclusive hold shared and lets the readers in.
func (t *Twin) downgrade(s *session, cmd core.Command) core.Result {
	c, code := t.goodHoldOf(s, cmd.Target)
	switch {
	case c == nil:
		return core.Result{Code: code}
	case len(c.wants) != 1 || c.wants[0].Kind != core.RWMutex || c.wants[0].Mode != core.Exclusive:
		return core.Result{Code: core.CodeInvalid}
	}
	c.wants[0].Mode = core.Shared
	c.was = shared{}
	r := core.Result{Revision: t.next(), Token: c.token, Deadline: c.ownDeadline()}
	c.change(r.Revision)
	t.tell(c, core.VerbDowngraded, core.CodeOK)
	t.touch(c, 0)
	t.settle()
	return r
}

// election finds the hold that proclaim and handOver are about.
func (t *Twin) election(s *session, seq uint64) (*claim, core.Code) {
	c, code := t.goodHoldOf(s, seq)
	if c != nil && (len(c.wants) != 1 || c.wants[0].Kind != core.Election) {
		return nil, core.CodeInvalid
	}
	return c, code
}

func (t *Twin) proclaim(s *session, cmd core.Command) core.Result {
	c, code := t.election(s, cmd.Target)
	if c == nil {
		return core.Result{Code: code}
	}
	c.value = bytes.Clone(cmd.Value)
	r := core.Result{Revision: t.next(), Token: c.token}
	c.change(r.Revision)
	t.tell(c, core.VerbProclaimed, core.CodeOK)
	return r
}

// handOver releases an election to the first candidate with an owner, past the
// queue.
func (t *Twin) handOver(s *session, cmd core.Command) core.Result {
	c, code := t.election(s, cmd.Target)
	if c == nil {
		return core.Result{Code: code}
	}
	if t.frozen {
		return core.Result{Code: core.CodeUnavailable}
	}
	n := t.find(c.ns, c.wants[0].Name)
	i := slices.IndexFunc(t.claims, func(o *claim) bool {
		return o.standsAt(n) && !o.s.ending && len(o.wants) == 1 && o.owner == cmd.Owner
	})
	if i < 0 {
		return core.Result{Code: core.CodeNotExist}
	}
	successor := t.claims[i]
	r := core.Result{Revision: t.next()}
	t.tell(c, core.VerbReleased, core.CodeOK)
	t.record(c, core.CodeLost)
	t.remove(c)
	t.reserve(successor)
	t.settle()
	return r
}

// force revokes one hold.
func (t *Twin) force(s *session, cmd core.Command) core.Result {
	if cmd.Token == 0 || !goodName(cmd.Name) {
		return core.Result{Code: core.CodeInvalid}
	}
	c := t.byToken(s, cmd.Name, cmd.Token)
	if c == nil {
		return core.Result{Code: core.CodeNotExist}
	}
	t.revokeClaim(c, cmd.Flags&core.Now != 0)
	r := core.Result{Revision: t.revision, Token: cmd.Token, Deadline: c.deadline}
	if !slices.Contains(t.claims, c) {
		r.Deadline = 0
	}
	t.settle()
	return r
}

// revokeClaim decides the end of a hold: at once, or when its holder confirms
// or must know by the deadlines that it had.
func (t *Twin) revokeClaim(c *claim, now bool) {
	if c.state == core.ClaimRevoked && !now {
		return
	}
	t.next()
	t.tell(c, core.VerbRevoked, core.CodeRevoked)
	if now || c.s == nil || c.s.ending {
		t.tell(c, core.VerbExpired, core.CodeRevoked)
		t.push(c, core.ClaimGone, core.CodeRevoked)
		t.record(c, core.CodeRevoked)
		t.endUpgrade(c)
		t.remove(c)
		return
	}
	until := c.s.deadline
	if c.deadline != 0 {
		until = min(until, c.deadline)
	}
	c.state, c.deadline, c.reason = core.ClaimRevoked, until, core.CodeRevoked
	c.change(t.revision)
	t.endUpgrade(c)
	t.push(c, core.ClaimRevoked, core.CodeRevoked)
}

// revoke ends another session of the namespace by revoking all that it has.
func (t *Twin) revoke(by *session, cmd core.Command) core.Result {
	s := t.session(cmd.Session)
	if s == nil || s.ns != by.ns {
		return core.Result{Code: core.CodeNotExist}
	}
	now := cmd.Flags&core.Now != 0
	again := cmd.Seq == 0 && s.revoked && (s.revokedNow || !now)
	r := core.Result{Deadline: s.deadline}
	if !again {
		r.Revision = t.next()
		t.event(s.event(core.VerbRevoked))
		s.revoked, s.revokedNow = true, now
	}
	if s.revokedNow || !t.keeps(s) {
		r.Deadline = 0
	}
	if !again {
		t.decide(s)
		t.walkOn()
		t.settle()
	}
	return r
}

// givesBack says whether a command only gives back: all that a revoked session
// may still do.
func givesBack(op core.Op) bool { return op == core.OpRelease || op == core.OpCancel }
