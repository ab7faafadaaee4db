package drivertest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// engine is a store in memory, written as plainly as possible: one lock, one
// list of claims, and everything is looked at again after each change. Faults
// are planted in it by name; without one it keeps every promise.
type engine struct {
	fault string

	mu       sync.Mutex
	rev      driver.Revision
	claims   []*toyClaim // in order of arrival
	dropNext map[string]bool
	past     map[string]driver.Claim // the last holder of a name
	sessions map[driver.SessionID]*session
	objects  map[object]*value // semaphores, latches, barriers, counters, sequences
	limiters map[string]*toyLimiter
	epochs   uint64 // that limiters had
	keys     map[string]*key
	expiring map[string]*key // those of keys that end by themselves
	events   []driver.Event
	dropped  int // events that are no longer in events
	watchers int
	news     chan struct{} // closed with the next event
	timer    *time.Timer
	tell     []func() // what to call after the lock
}

type object struct {
	kind driver.ResourceKind
	name string
}

// value is a limit, a count or a number.
type value struct {
	n        uint64
	unsigned bool
	over     bool   // a sequence at its end
	made     uint64 // n at first, of what has a limit
}

type session struct {
	id       driver.SessionID
	spec     driver.Spec
	deadline time.Time
	of       *toy
	dead     bool
	shared   *driver.Session // the client's side
	timer    *time.Timer
}

// toyClaim is a request, a hold, or what is left of one until its tail.
type toyClaim struct {
	driver.Request
	session *session
	ctx     context.Context // of its Acquire
	token   driver.Token
	since   time.Time
	changes uint64
	end     time.Time // of MaxHold
	until   time.Time // of a revocation
	tail    time.Time // of MinHold or Delay; the claim has no owner
	upgrade *toyClaim // the reader that this is to replace
	ready   chan struct{}
	asleep  bool // of the fault "wakes one"
	err     error
}

func newEngine(fault string) *engine {
	return &engine{
		fault: fault, dropNext: map[string]bool{}, past: map[string]driver.Claim{}, sessions: map[driver.SessionID]*session{},
		objects: map[object]*value{}, keys: map[string]*key{}, expiring: map[string]*key{}, news: make(chan struct{}),
	}
}

func (e *engine) has(fault string) bool { return e.fault == fault }

// do runs f under the lock, then everything that follows from it.
func (e *engine) do(f func()) {
	e.mu.Lock()
	f()
	e.settle()
	tell := e.tell
	e.tell = nil
	e.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// settle ends what is over, grants what is free and sets the timer.
func (e *engine) settle() {
	now := time.Now()
	e.endSessions(now)
	e.endClaims(now)
	e.endKeys(now)
	e.grant(now)
	next := e.nextDeadline()
	if e.timer != nil {
		e.timer.Stop()
	}
	if !next.IsZero() {
		e.timer = time.AfterFunc(max(time.Until(next), time.Millisecond), func() { e.do(func() {}) })
	}
}

func (e *engine) nextDeadline() time.Time {
	var times []time.Time
	for _, l := range e.sessions {
		if end := l.deadline.Add(l.spec.Grace); l.spec.Policy == driver.AtDeadline || time.Until(end) > 0 {
			times = append(times, end)
		}
	}
	for _, c := range e.claims {
		times = append(times, c.end, c.until, c.tail)
	}
	for _, k := range e.expiring {
		times = append(times, k.expires)
	}
	times = slices.DeleteFunc(times, time.Time.IsZero)
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(times, time.Time.Compare)
}

func (e *engine) endSessions(now time.Time) {
	for _, l := range e.sessions {
		if l.lapsed(now) && e.reclaims(l, now) && !e.has("sessions never end") && !e.has("the dead are renewed") {
			e.endSession(l, true)
		}
	}
}

func (l *session) lapsed(now time.Time) bool { return !l.deadline.IsZero() && !now.Before(l.deadline) }

// reclaims tells whether the policy of a lapsed session lets its names go.
func (e *engine) reclaims(l *session, now time.Time) bool {
	switch {
	case l.spec.Policy == driver.AtDeadline || e.has("policies ignored"):
		return true
	case l.spec.Policy == driver.Never || e.has("never reclaims"):
		return false
	}
	return !now.Before(l.deadline.Add(l.spec.Grace)) && slices.ContainsFunc(e.claims, func(c *toyClaim) bool { return c.token == 0 && c.session != l })
}

// endSession frees what hangs on l; lost: its holder did not wish it.
func (e *engine) endSession(l *session, lost bool) {
	l.dead = true
	delete(e.sessions, l.id)
	if l.timer != nil {
		l.timer.Stop()
	}
	for i, c := range slices.Clone(e.claims) {
		if c.session != l || !c.tail.IsZero() || lost && i > 0 && e.has("only the first is lost") {
			continue
		}
		if c.token == 0 && e.has("dead waiters stay") {
			continue
		}
		e.dropNext[c.Wants[0].Name] = lost && e.has("expiry frees twice")
		e.free(c, lost || c.knownLost(), driver.ErrLost)
	}
	for name, k := range e.keys {
		if k.Session == l.id && !e.has("session keys stay") {
			e.remove(name)
		}
	}
}

// knownLost: its holder has lost it by its MaxHold, a little before it ends here.
func (c *toyClaim) knownLost() bool {
	return !c.end.IsZero() && time.Until(c.end) <= knownBefore
}

func (e *engine) endClaims(now time.Time) {
	passed := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	for _, c := range slices.Clone(e.claims) {
		switch {
		case passed(c.tail), c.token != 0 && c.ctx.Err() != nil && e.has("context ends the hold"):
			e.drop(c)
		case c.tail.IsZero() && passed(c.until):
			e.free(c, true, driver.ErrLost)
		case c.tail.IsZero() && passed(c.end) && !e.has("max-hold ignored"):
			if lost := c.Lost; !e.has("max-hold untold") {
				e.tell = append(e.tell, func() { lost(errors.New("its MaxHold has passed")) })
			}
			e.free(c, true, driver.ErrLost)
		}
	}
}

func (e *engine) drop(c *toyClaim) {
	for _, o := range e.claims {
		o.asleep = false
	}
	e.claims = slices.DeleteFunc(e.claims, func(o *toyClaim) bool { return o == c })
}

// free ends a claim: a waiting one with err, a granted one at once or, after a
// loss or before its least time, when its tail has passed.
func (e *engine) free(c *toyClaim, lost bool, err error) {
	if c.token == 0 {
		e.drop(c)
		c.err = err
		close(c.ready)
		return
	}
	e.emit(c, "released")
	switch now := time.Now(); {
	case c.Delay > 0 && lost && !e.has("delay ignored"), c.Delay > 0 && e.has("delay always"):
		c.tail = now.Add(c.Delay)
	case c.MinHold > 0 && now.Before(c.since.Add(c.MinHold)) && !e.has("min-hold ignored"):
		c.tail = c.since.Add(c.MinHold)
	default:
		e.drop(c)
	}
}

// grant serves the queue: in order of arrival, each claim reserves its names in
// order of name, and the first that it does not get is closed to those behind.
func (e *engine) grant(now time.Time) {
	closed := map[string]bool{}
	var reserved []*toyClaim
	for _, c := range e.waiting() {
		if e.serve(c, closed, &reserved) && !e.has("grant forgotten") {
			e.granted(c, now)
			reserved = nil
			if e.has("wakes one") {
				e.passOver()
				return
			}
		}
	}
}

// passOver leaves those that wait asleep until the next claim ends, however often the
// queue is looked at before.
func (e *engine) passOver() {
	for _, c := range e.waiting() {
		c.asleep = true
	}
}

// waiting is the queue; upgrades go first.
func (e *engine) waiting() []*toyClaim {
	var queue []*toyClaim
	for _, c := range e.claims {
		if c.token == 0 && !c.asleep {
			queue = append(queue, c)
		}
	}
	if e.has("last come first") {
		slices.Reverse(queue)
	}
	if !e.has("upgrade queues") {
		slices.SortStableFunc(queue, func(a, b *toyClaim) int { return cmp.Compare(btoi(a.upgrade == nil), btoi(b.upgrade == nil)) })
	}
	return queue
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// serve reports whether c gets all its names; those that it gets are reserved
// for it against the claims behind.
func (e *engine) serve(c *toyClaim, closed map[string]bool, reserved *[]*toyClaim) bool {
	wants := slices.Clone(c.Wants)
	slices.SortFunc(wants, func(a, b driver.Want) int { return strings.Compare(a.Name, b.Name) })
	for i, w := range wants {
		if closed[w.Name] || !e.fits(c, w, *reserved) {
			closed[w.Name] = !e.overtaken(w)
			for _, later := range wants[i:] {
				closed[later.Name] = closed[later.Name] || e.has("reserves early")
			}
			return false
		}
		*reserved = append(*reserved, &toyClaim{Request: driver.Request{Wants: wants[i : i+1]}, session: c.session})
	}
	return true
}

// overtaken: a fault lets others pass a claim that has to wait.
func (e *engine) overtaken(w driver.Want) bool {
	return w.Kind == driver.RWMutex && e.has("readers overtake") ||
		w.Kind == driver.Semaphore && e.has("light ones overtake") ||
		w.Kind == driver.Latch || w.Kind == driver.Barrier
}

// fits reports whether w can be granted beside what is held and reserved.
func (e *engine) fits(c *toyClaim, w driver.Want, reserved []*toyClaim) bool {
	switch w.Kind {
	case driver.Latch:
		v := e.objects[object{driver.Latch, w.Name}]
		return v.n == 0 || v.n == 1 && e.has("latch opens early")
	case driver.Barrier:
		return e.complete(w.Name)
	}
	var used int64
	for _, o := range slices.Concat(e.claims, reserved) {
		if hw := o.want(w.Name); hw != nil && (o.token != 0 || slices.Contains(reserved, o)) && o != c.upgrade && !e.joins(c, o) {
			if w.Kind != driver.Semaphore && !e.shares(*hw, w) {
				return false
			}
			used += e.weight(hw.Weight)
		}
	}
	return w.Kind != driver.Semaphore || used+e.weight(w.Weight) <= int64(e.limit(w.Name))
}

// joins: faults that take two wishes for one.
func (e *engine) joins(c, o *toyClaim) bool {
	return c.session == o.session && e.has("session joins") ||
		c.Spec.Owner == o.Spec.Owner && e.has("owner joins") ||
		!c.Try && e.has("nobody waits") || c.Try && e.has("try always wins") ||
		c.upgrade != nil && e.has("upgrade waits for nobody")
}

func (e *engine) shares(a, b driver.Want) bool {
	if e.has("writers share") {
		return true
	}
	return a.Mode == driver.Shared && b.Mode == driver.Shared && !e.has("readers exclude")
}

func (e *engine) weight(w int64) int64 {
	if e.has("weight ignored") {
		return 1
	}
	if e.has("weights in 16 bits") {
		return int64(int16(w))
	}
	return max(w, 1)
}

func (e *engine) limit(name string) uint64 {
	v := e.objects[object{driver.Semaphore, name}]
	if v == nil {
		return 0
	}
	if e.has("limit off by one") {
		return v.n - 1
	}
	return v.n
}

// complete reports whether all parties of a barrier wait.
func (e *engine) complete(name string) bool {
	v := e.objects[object{driver.Barrier, name}]
	if v == nil || v.over {
		return v != nil
	}
	waiting := uint64(0)
	for _, c := range e.claims {
		if c.token == 0 && c.want(name) != nil {
			waiting++
		}
	}
	if e.has("barrier early") {
		waiting++
	}
	if waiting < v.n {
		return false
	}
	v.over = true // until the last of them has passed
	return true
}

func (c *toyClaim) want(name string) *driver.Want {
	for i := range c.Wants {
		if c.Wants[i].Name == name {
			return &c.Wants[i]
		}
	}
	return nil
}

// granted makes c a hold.
func (e *engine) granted(c *toyClaim, now time.Time) {
	name := c.Wants[0].Name
	c.token, c.since, c.changes = driver.Token(e.newToken(name)), now, 1
	if c.MaxHold > 0 {
		c.end = now.Add(c.MaxHold)
	}
	if old := c.upgrade; old != nil {
		c.upgrade = nil
		if e.has("upgrade keeps the token") {
			c.token = old.token
		}
		e.drop(old)
	}
	e.past[name] = e.describe(c, name)
	e.emit(c, "acquired")
	close(c.ready)
	e.endRound(c)
	if e.dropNext[name] {
		delete(e.dropNext, name)
		e.drop(c)
	}
	if e.has("lost at once") {
		lost := c.Lost
		e.tell = append(e.tell, func() { lost(errors.New("for no reason")) })
	}
}

// endRound closes a barrier behind the last party of a round.
func (e *engine) endRound(c *toyClaim) {
	if c.Wants[0].Kind != driver.Barrier || e.has("barrier stays open") {
		return
	}
	for _, o := range e.claims {
		if o.token == 0 && o.want(c.Wants[0].Name) != nil {
			return
		}
	}
	e.objects[object{driver.Barrier, c.Wants[0].Name}].over = false
}

// newToken is the revision of a grant.
func (e *engine) newToken(name string) uint64 {
	e.rev++
	switch {
	case e.has("token repeats"):
		return 7
	case e.has("token too great"):
		return uint64(e.rev + 1<<53)
	case e.has("token restarts"):
		old := e.past[name].Token
		if old != 0 && !slices.ContainsFunc(e.claims, func(c *toyClaim) bool { return c.token != 0 && c.want(name) != nil }) {
			return 1
		}
		return uint64(old + 1)
	}
	return uint64(e.rev)
}
