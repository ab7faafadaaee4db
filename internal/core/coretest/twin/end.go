package twin

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
)

// due is something whose deadline has passed; exactly one of the three is set.
type due struct {
	deadline int64
	s        *session
	c        *claim
	k        *key
}

// endPass ends what is past its deadline, oldest first and within the budget,
// and only then grants what that frees.
func (t *Twin) endPass() {
	t.walkOn()
	for t.budget > 0 {
		d, ok := t.firstDue()
		if !ok {
			break
		}
		t.budget--
		t.end(d)
	}
	t.settle()
	t.sweep()
	t.dropKeys()
	t.gone = slices.DeleteFunc(t.gone, func(g tombstone) bool { return g.until <= t.now })
}

// firstDue is what ends next.
func (t *Twin) firstDue() (due, bool) {
	var all []due
	for _, s := range t.sessions {
		if at := s.due(); !s.ending && at != 0 && at <= t.now {
			all = append(all, due{deadline: at, s: s})
		}
	}
	for _, c := range t.claims {
		if c.deadline != 0 && c.deadline <= t.now && (c.s == nil || !c.s.ending) {
			all = append(all, due{deadline: c.deadline, c: c})
		}
	}
	for _, k := range t.keys {
		if k.Deadline != 0 && k.Deadline <= t.now {
			all = append(all, due{deadline: k.Deadline, k: k})
		}
	}
	if len(all) == 0 {
		return due{}, false
	}
	return slices.MinFunc(all, compareDue), true
}

func compareDue(a, b due) int {
	if c := cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.rank(), b.rank())); c != 0 {
		return c
	}
	switch {
	case a.s != nil:
		return bytes.Compare(a.s.id[:], b.s.id[:])
	case a.c != nil:
		return cmp.Compare(a.c.arrival, b.c.arrival)
	}
	return compareNames(a.k.ns, a.k.Name, b.k.ns, b.k.Name)
}

func (d due) rank() int {
	switch {
	case d.s != nil:
		return 0
	case d.c != nil:
		return 1
	}
	return 2
}

func compareNames(ns1, n1, ns2, n2 string) int {
	return cmp.Or(strings.Compare(ns1, ns2), strings.Compare(n1, n2))
}

// due is when something happens to s by time alone; 0: never.
func (s *session) due() int64 {
	switch {
	case s.policy == core.AtDeadline || s.revoked || !s.stale:
		return s.deadline
	case s.policy == core.OnNextAcquire && !s.reclaimable:
		return s.deadline + s.grace
	case s.emptied != 0:
		return s.emptied + remember
	}
	return 0
}

// end does what d's deadline calls for.
func (t *Twin) end(d due) {
	switch {
	case d.s != nil:
		t.sessionDue(d.s)
	case d.k != nil:
		t.keyDue(d.k)
	default:
		t.claimDue(d.c)
	}
}

// sessionDue ends a session, or makes it stale if its policy keeps its claims.
func (t *Twin) sessionDue(s *session) {
	switch {
	case s.policy == core.AtDeadline || s.revoked || !t.keeps(s):
		t.beginEnd(s, core.VerbExpired)
		t.walkOn()
	case !s.stale:
		s.stale = true
		t.decide(s)
		t.walkOn()
	default:
		s.reclaimable, s.emptied = s.policy == core.OnNextAcquire, 0
	}
}

// keeps says whether s holds anything that its policy could keep.
func (t *Twin) keeps(s *session) bool {
	return slices.ContainsFunc(t.claims, func(c *claim) bool { return c.s == s && c.state != core.ClaimWaiting })
}

// bySeq lists the claims of s in the order of their numbers.
func (t *Twin) bySeq(s *session) []*claim {
	var own []*claim
	for _, c := range t.claims {
		if c.s == s {
			own = append(own, c)
		}
	}
	slices.SortFunc(own, func(a, b *claim) int { return cmp.Compare(a.seq, b.seq) })
	return own
}

// walkOn goes on with the sessions whose end, or whose becoming stale, was
// decided, within the budget: those decided first come first.
func (t *Twin) walkOn() {
	for _, s := range t.decided() {
		for c := t.nextOf(s); c != nil; c = t.nextOf(s) {
			if t.budget <= 0 {
				return
			}
			t.budget--
			s.walked = c.seq
			t.visit(s, c)
		}
		if s.ending && !t.dropBoundKeys(s) {
			return
		}
		s.walking = false
		t.walked(s)
	}
}

// walked forgets a session that is over: dead, or revoked with nothing left
// that anybody could believe in.
func (t *Twin) walked(s *session) {
	switch {
	case s.ending:
		t.sessions = slices.DeleteFunc(t.sessions, func(o *session) bool { return o == s })
	case s.revoked && !t.keeps(s):
		t.beginEnd(s, core.VerbEnded)
		t.walkOn()
	}
}

// nextOf is the claim of s that the walk comes to next.
func (t *Twin) nextOf(s *session) *claim {
	for _, c := range t.bySeq(s) {
		if c.seq > s.walked {
			return c
		}
	}
	return nil
}

// decide begins a walk over all claims of s.
func (t *Twin) decide(s *session) {
	t.decisions++
	s.decided, s.walking, s.walked = t.decisions, true, 0
}

// decided lists the sessions that walkOn is about.
func (t *Twin) decided() []*session {
	list := slices.DeleteFunc(slices.Clone(t.sessions), func(s *session) bool { return !s.walking })
	slices.SortStableFunc(list, func(a, b *session) int { return cmp.Compare(a.decided, b.decided) })
	return list
}

// visit ends or tells one claim of a session that is dead or late.
func (t *Twin) visit(s *session, c *claim) {
	switch {
	case s.ending:
		t.freeWithSession(c)
	case s.revoked && c.state == core.ClaimWaiting:
		t.push(c, core.ClaimGone, core.CodeRevoked)
		t.drop(c, core.CodeRevoked)
	case s.revoked:
		t.revokeClaim(c, s.revokedNow)
	case c.state == core.ClaimWaiting:
		t.push(c, core.ClaimGone, core.CodeNoSession)
		t.drop(c, core.CodeNoSession)
	default:
		t.tell(c, core.VerbStale, core.CodeOK)
	}
}

// freeWithSession ends a claim because its session has ended.
func (t *Twin) freeWithSession(c *claim) {
	if c.state == core.ClaimWaiting {
		t.drop(c, core.CodeNoSession)
		return
	}
	if c.s.asked {
		t.next()
		t.tell(c, core.VerbReleased, core.CodeOK)
		t.leave(c, false)
		return
	}
	if !c.s.stale {
		t.tell(c, core.VerbStale, core.CodeOK)
	}
	t.next()
	t.tell(c, core.VerbExpired, core.CodeNoSession)
	t.leave(c, true)
}

// claimDue ends a claim by its own deadline.
func (t *Twin) claimDue(c *claim) {
	if c.reason == core.CodeTimeout {
		t.push(c, core.ClaimGone, core.CodeTimeout)
		t.drop(c, core.CodeTimeout)
		return
	}
	t.next()
	t.tell(c, core.VerbExpired, c.reason)
	t.push(c, core.ClaimGone, c.reason)
	lost := c.s != nil
	t.record(c, c.reason)
	t.leave(c, lost)
}

// drop ends a wait without a grant.
func (t *Twin) drop(c *claim, why core.Code) {
	t.tell(c, core.VerbDenied, why)
	t.record(c, why)
	t.remove(c)
}

// leave takes a hold from its session. The name stays taken, ownerless, while
// min-hold or, after a loss, delay lasts.
func (t *Twin) leave(c *claim, lost bool) {
	t.endUpgrade(c)
	until := int64(0)
	if c.s != nil && c.minHold > 0 {
		until = c.since + c.minHold
	}
	if c.s != nil && lost && c.delay > 0 {
		until = max(until, t.now+c.delay)
	}
	if until <= t.now {
		t.remove(c)
		return
	}
	c.s, c.state = nil, core.ClaimGranted
	c.deadline, c.reason = until, core.CodeOK
	t.touch(c, 0)
}

// endUpgrade denies the upgrade that waits to replace c.
func (t *Twin) endUpgrade(c *claim) {
	for _, u := range slices.Clone(t.claims) {
		if u.target == c {
			if !u.s.ending {
				t.push(u, core.ClaimGone, core.CodeLost)
			}
			t.drop(u, core.CodeLost)
		}
	}
}
