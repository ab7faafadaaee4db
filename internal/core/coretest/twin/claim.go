package twin

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/internal/core"
)

// claim is a request that waits, or a hold, or what is left of one.
type claim struct {
	arrival  uint64
	ns       string
	s        *session // nil: ownerless, until deadline
	seq      uint64
	wants    []core.Want // by name
	state    core.ClaimState
	reserved int    // waiting: so many of wants are set aside for it
	created  uint64 // revision at which it was queued or granted
	token    uint64
	since    int64
	// deadline is its one deadline of its own, reason what then happens to it:
	// CodeTimeout (a wait), CodeMaxHold, CodeRevoked, or CodeOK for an ownerless
	// claim, which is just freed. 0: none.
	deadline int64
	reason   core.Code

	wait, maxHold, minHold, delay int64
	value                         []byte
	owner                         string
	modified                      uint64 // of a hold
	version                       uint32
	target                        *claim // upgrade: the shared claim it grows out of
	was                           shared // granted upgrade: what it was before
}

// shared is what a granted upgrade falls back to when it is cancelled.
type shared struct {
	seq, token uint64
	since      int64
	version    uint32
}

func (c *claim) about(n *name) bool {
	return c.ns == n.ns && slices.ContainsFunc(c.wants, func(w core.Want) bool { return w.Name == n.name })
}

// want is what c wants of n.
func (c *claim) want(n *name) core.Want {
	i := slices.IndexFunc(c.wants, func(w core.Want) bool { return w.Name == n.name })
	return c.wants[i]
}

// standsAt says whether c waits in the queue of n: there, and not before the
// names before it are reserved. An upgrade stands before the queue, not in it.
func (c *claim) standsAt(n *name) bool {
	return c.state == core.ClaimWaiting && c.target == nil && c.ns == n.ns && c.wants[c.reserved].Name == n.name
}

// change notes a change of a hold.
func (c *claim) change(revision uint64) {
	c.modified = revision
	c.version++
}

// holds says whether c has n, ownerless claims too, reservations not.
func (c *claim) holds(n *name) bool { return c.state != core.ClaimWaiting && c.about(n) }

// takes says whether c takes up room of n: it holds it or has it reserved.
func (c *claim) takes(n *name) bool {
	if c.state != core.ClaimWaiting {
		return c.about(n)
	}
	for _, w := range c.wants[:c.reserved] {
		if c.ns == n.ns && w.Name == n.name {
			return true
		}
	}
	return false
}

// ownDeadline is the deadline that the holder is told of: not that of a wait.
func (c *claim) ownDeadline() int64 {
	if c.state == core.ClaimWaiting {
		return 0
	}
	return c.deadline
}

func (t *Twin) claim(s *session, seq uint64) *claim {
	for _, c := range t.claims {
		if c.s == s && c.seq == seq {
			return c
		}
	}
	return nil
}

// claimResult answers the command that made c, as often as it is asked.
func (t *Twin) claimResult(c *claim) core.Result {
	r := core.Result{Seq: c.seq, Revision: c.created, Token: c.token, Deadline: c.ownDeadline()}
	switch c.state {
	case core.ClaimWaiting:
		r.Code, r.Number = core.CodeQueued, t.place(c)
	case core.ClaimRevoked:
		r.Code = core.CodeRevoked
	}
	return r
}

// place is the number of c in the queue that it stands in, 1 being next.
func (t *Twin) place(c *claim) uint64 {
	if c.target != nil {
		return 1
	}
	n := t.find(c.ns, c.wants[c.reserved].Name)
	place := uint64(1)
	for _, o := range t.claims {
		if o.standsAt(n) && o.arrival < c.arrival || t.upgrading(o, n) {
			place++
		}
	}
	return place
}

// upgrading says whether c is an upgrade that waits for n.
func (t *Twin) upgrading(c *claim, n *name) bool {
	return c.state == core.ClaimWaiting && c.target != nil && c.about(n)
}

// run does what the command says.
func (t *Twin) run(s *session, c core.Command) core.Result {
	if s.revoked && !givesBack(c.Op) {
		return core.Result{Code: core.CodeRevoked}
	}
	switch c.Op {
	case core.OpAcquire:
		return t.acquire(s, c)
	case core.OpRelease:
		return t.release(s, c)
	case core.OpCancel:
		return t.cancel(s, c)
	case core.OpExtend:
		return t.extend(s, c)
	case core.OpUpgrade:
		return t.upgrade(s, c)
	case core.OpDowngrade:
		return t.downgrade(s, c)
	case core.OpProclaim:
		return t.proclaim(s, c)
	case core.OpHandOver:
		return t.handOver(s, c)
	case core.OpForce:
		return t.force(s, c)
	case core.OpRevoke:
		return t.revoke(s, c)
	}
	return t.runObject(s, c)
}

// acquire grants, queues or refuses a request.
func (t *Twin) acquire(s *session, c core.Command) core.Result {
	wants := slices.Clone(c.Wants)
	for i, w := range wants {
		wants[i].Name = strings.Clone(w.Name)
		if w.Weight == 0 && w.Kind != core.Semaphore {
			wants[i].Weight = 1
		}
	}
	slices.SortStableFunc(wants, func(a, b core.Want) int { return strings.Compare(a.Name, b.Name) })
	if code := t.check(s, c, wants); code != core.CodeOK {
		return core.Result{Code: code}
	}
	if s.stale { // it has no time left to hold anything
		return core.Result{Code: core.CodeLost}
	}
	if own := t.joinable(s, c, wants); own != nil {
		return core.Result{Revision: t.revision, Token: own.token, Deadline: own.ownDeadline()}
	}
	if t.laden(s) {
		return core.Result{Code: core.CodeExhausted}
	}
	made := t.makeNames(s, wants)
	cl := &claim{
		ns: s.ns, s: s, seq: c.Seq, wants: wants, state: core.ClaimWaiting,
		wait: c.Wait, maxHold: c.MaxHold, minHold: c.MinHold, delay: c.Delay, value: slices.Clone(c.Value),
		owner: cmp.Or(strings.Clone(c.Owner), s.owner),
	}
	if r := t.unqueued(cl, c.Flags&core.Try != 0); r.Code != core.CodeOK {
		t.names = t.names[:len(t.names)-made]
		return r
	}
	return t.enter(cl)
}

// laden says whether s holds and awaits as much as it may.
func (t *Twin) laden(s *session) bool { return above(len(t.bySeq(s))+1, t.cfg.Holds) }

// unqueued refuses what could only be queued: a try, and one waiter too many.
func (t *Twin) unqueued(c *claim, try bool) core.Result {
	switch {
	case t.frozen && try:
		return core.Result{Code: core.CodeUnavailable}
	case !t.frozen && t.free(c):
		return core.Result{}
	case try:
		return t.held(c)
	}
	for _, w := range c.wants {
		if t.waiters(t.find(c.ns, w.Name)) >= t.cfg.Waiters {
			return core.Result{Code: core.CodeExhausted}
		}
	}
	return core.Result{}
}

// waiters counts the claims that wait for n, now or when they get to it.
func (t *Twin) waiters(n *name) (count int) {
	for _, c := range t.claims {
		if c.state == core.ClaimWaiting && c.about(n) {
			count++
		}
	}
	return count
}

// enter puts a claim into the queues and sees whether it is granted at once.
func (t *Twin) enter(c *claim) core.Result {
	t.arrivals++
	c.arrival = t.arrivals
	alone := t.alone(c)
	t.claims = append(t.claims, c)
	if alone {
		c.reserved = len(c.wants) - 1
		t.reserve(c)
	} else {
		t.find(c.ns, c.wants[0].Name).touched = true
		t.settle()
	}
	if c.state != core.ClaimWaiting {
		return t.claimResult(c)
	}
	c.created = t.next()
	if c.wait > 0 {
		c.deadline, c.reason = t.now+c.wait, core.CodeTimeout
	}
	t.tell(c, core.VerbQueued, core.CodeOK)
	return t.claimResult(c)
}

// alone says whether nobody waits for what c wants, and there is room for it. An open
// latch has room for everybody.
func (t *Twin) alone(c *claim) bool {
	for _, w := range c.wants {
		n := t.find(c.ns, w.Name)
		if n.kind == core.Barrier || n.kind != core.Latch && t.waiters(n) > 0 || !t.fits(c, n) {
			return false
		}
	}
	return !t.frozen
}

// joinable finds the granted claim that a re-entrant request joins.
func (t *Twin) joinable(s *session, c core.Command, wants []core.Want) *claim {
	if c.Flags&core.Reentrant == 0 || len(wants) != 1 {
		return nil
	}
	for _, o := range byToken(t.claims) {
		if o.s == s && o.state == core.ClaimGranted && len(o.wants) == 1 &&
			o.wants[0].Name == wants[0].Name && o.wants[0].Mode == wants[0].Mode {
			return o
		}
	}
	return nil
}

// makeNames makes the names that are new and says how many.
func (t *Twin) makeNames(s *session, wants []core.Want) (made int) {
	for _, w := range wants {
		if t.find(s.ns, w.Name) == nil {
			t.names = append(t.names, &name{ns: s.ns, name: w.Name, kind: w.Kind, limit: w.Limit})
			made++
		}
	}
	return made
}

// check says what is wrong with a request before anything changes.
func (t *Twin) check(s *session, c core.Command, wants []core.Want) core.Code {
	if len(wants) == 0 || c.Wait < 0 || c.MaxHold < 0 || c.MinHold < 0 || c.Delay < 0 {
		return core.CodeInvalid
	}
	for i, w := range wants {
		if i > 0 && wants[i-1].Name == w.Name || !sensible(w) || len(wants) > 1 && (w.Kind == core.Latch || w.Kind == core.Barrier) {
			return core.CodeInvalid
		}
	}
	made := 0
	for _, w := range wants {
		if code := t.checkName(s, w); code != core.CodeOK {
			return code
		}
		if t.find(s.ns, w.Name) == nil {
			made++
		}
	}
	if made > 0 && t.crowded(s.ns, made) {
		return core.CodeExhausted
	}
	return core.CodeOK
}

// sensible says whether a want makes sense by itself.
func sensible(w core.Want) bool {
	if !goodName(w.Name) || w.Limit < 0 {
		return false
	}
	if w.Kind != core.Semaphore && w.Weight != 1 {
		return false
	}
	switch w.Kind {
	case core.Mutex, core.Election:
		return w.Mode == core.Exclusive && w.Limit == 0
	case core.RWMutex:
		return w.Mode <= core.Shared && w.Limit == 0
	case core.Semaphore:
		return w.Mode == core.Shared && w.Weight >= 1
	case core.Latch, core.Barrier:
		return w.Mode == core.Shared
	}
	return false
}

func goodName(n string) bool {
	return len(n) >= 1 && len(n) <= 512 && utf8.ValidString(n) && !strings.ContainsFunc(n, unicode.IsControl)
}

// checkName says whether a want fits what its name is.
func (t *Twin) checkName(s *session, w core.Want) core.Code {
	n := t.find(s.ns, w.Name)
	limit := w.Limit
	switch limited := w.Kind == core.Semaphore || w.Kind == core.Barrier || w.Kind == core.Latch; {
	case n != nil && n.kind != w.Kind:
		return core.CodeConflict
	case n == nil && limited && limit == 0:
		return core.CodeNotExist
	case n == nil && w.Kind == core.Barrier && limit > int64(t.cfg.Budget):
		return core.CodeInvalid
	case n != nil && limited && w.Kind != core.Latch && limit != 0 && limit != n.limit:
		return core.CodeConflict
	case n != nil:
		limit = n.limit
	}
	if w.Kind == core.Semaphore && w.Weight > limit {
		return core.CodeInvalid
	}
	return core.CodeOK
}

// tell emits one event for each name of c.
func (t *Twin) tell(c *claim, v core.Verb, reason core.Code) {
	for _, w := range c.wants {
		e := core.Event{
			Kind: eventKind(w.Kind), Verb: v, Namespace: c.ns, Name: w.Name,
			Token: c.token, Mode: w.Mode, Weight: w.Weight, Reason: reason,
		}
		if c.s != nil {
			e.Session, e.Owner = c.s.id, c.owner
		}
		if c.token != 0 {
			e.Modified, e.Version, e.Value = c.modified, c.version, c.value
		}
		t.event(e)
	}
}

func eventKind(k core.Kind) core.EventKind {
	return map[core.Kind]core.EventKind{
		core.Mutex: core.EventLock, core.RWMutex: core.EventRWLock, core.Semaphore: core.EventSemaphore,
		core.Election: core.EventElection, core.Latch: core.EventLatch, core.Barrier: core.EventBarrier,
		core.Counter: core.EventCounter, core.Sequence: core.EventSequence, core.Limiter: core.EventLimit,
	}[k]
}
