package core

import (
	"math"

	"github.com/holdfast-io/holdfast/limit"
)

// limiter is a rate and what its keys have used at it. A new rate is a new limiter,
// with a number of its own: the keys of the old one are left behind, not walked over,
// and dropped a few with every entry.
type limiter struct {
	number  uint64
	ns      *namespace
	rate    limit.Rate // without a name
	keys    tree[string, *usage]
	givenUp bool // nobody can ask it any more
}

func (l *limiter) id() uint64 { return l.number }

// usage is what one key of a limiter has used.
type usage struct {
	node
	heapPos int32
	of      *limiter
	key     string
	state   limit.State
	due     int64 // when to look whether it is as if it had never been used; 0: never
}

func (u *usage) id() string  { return u.key }
func (u *usage) pos() *int32 { return &u.heapPos }
func (u *usage) before(o *usage) bool {
	if u.of != o.of {
		return u.of.number < o.of.number
	}
	return u.key < o.key
}

// askLimiter answers OpLimit. It decides first, which changes nothing that is kept
// for a key that is new, and makes what there is to make only if all of it has room.
func (m *Machine) askLimiter(ns *namespace, c *Command, r *Result) {
	a := c.Ask
	if !m.validAsk(c, r) {
		return
	}
	res := ns.lookup(c.Name)
	if a.Op == LimitPeek {
		m.peek(res, c, 0, r)
		return
	}
	rate, now, ok := m.agree(res, c, r)
	switch {
	case !ok:
	case a.Op == LimitSetRate:
		m.setRate(ns, res, c, now, r)
	default:
		m.use(ns, res, res.usage(a.Key), c, rate, now, r)
	}
}

// Peek answers an OpLimit with LimitPeek from the outside, at a time that is not before that of
// the last entry; it changes nothing.
func (m *Machine) Peek(namespace string, c *Command, now int64) Result {
	r := Result{Seq: c.Seq, Revision: m.revision}
	ns := m.known(namespace)
	if ns == nil {
		ns = &noSpace
	}
	switch {
	case c.Op != OpLimit || c.Ask == nil || c.Ask.Op != LimitPeek:
		r.refuse(CodeInvalid, "op %d changes something: send it as a command", c.Op)
	case m.validAsk(c, &r):
		m.peek(ns.lookup(c.Name), c, max(0, now-m.now), &r)
	}
	return r
}

// peek answers LimitPeek, some time after the last entry.
func (m *Machine) peek(res *resource, c *Command, after int64, r *Result) {
	if rate, now, ok := m.agree(res, c, r); ok {
		now += after
		r.decided(limit.Peek(rate, res.usage(c.Ask.Key).used(), now, c.Ask.Cost), limit.Reservation{}, rate, now)
	}
}

// use asks for a change of one key.
func (m *Machine) use(ns *namespace, res *resource, u *usage, c *Command, rate limit.Rate, now int64, r *Result) {
	m.touchUsage(u) // a log is changed in place
	s, v, d := decide(rate, res.epoch(), u.used(), now, c.Ask)
	keep := s.Known && (c.Ask.Op == LimitTake || !limit.Idle(rate, s, now))
	switch {
	case u == nil && keep && !m.roomForKey(ns, r):
		return
	case res == nil:
		if res = m.newLimiter(ns, c, r); res == nil {
			return
		}
	}
	if d.Allowed {
		v.Epoch = res.epoch()
	}
	r.decided(d, v, rate, now)
	switch {
	case !keep && u != nil:
		m.dropUsage(u)
	case keep:
		m.keepUsage(res.limiter, u, c.Ask, s, d.Allowed)
	}
	if c.Ask.Op == LimitReset && u != nil {
		m.changedLimiter(res, r)
	}
}

// decide is what becomes of a key of the limiter of that number, and what is answered.
// What was taken from another limiter, at an earlier rate, gives nothing back here.
func decide(rate limit.Rate, epoch uint64, s limit.State, now int64, a *LimitAsk) (limit.State, limit.Reservation, limit.Decision) {
	gone := a.Reservation.Epoch != epoch
	switch {
	case a.Op == LimitTake:
		return limit.Decide(rate, s, now, limit.Ask{Cost: a.Cost, Wait: a.wait(), Ahead: a.ahead()})
	case a.Op == LimitSettle && !(gone && a.Cost < a.Reservation.Cost):
		s = limit.Settle(rate, s, now, a.Reservation, a.Cost)
	case a.Op == LimitReturn && !gone:
		s = limit.Return(rate, s, now, a.Reservation, a.Cost)
	case a.Op == LimitReset:
		s = limit.Reset(rate, s, now)
	}
	return s, limit.Reservation{}, limit.Decision{}
}

// epoch is the number of a limiter; 0: there is none.
func (r *resource) epoch() uint64 {
	if r == nil {
		return 0
	}
	return r.limiter.number
}

func (r *Result) decided(d limit.Decision, v limit.Reservation, rate limit.Rate, now int64) {
	r.OK = d.Allowed
	r.Limit = &LimitAnswer{Decision: d, Reservation: v, Rate: rate, Now: now}
}

// agree is the rate to decide by and the time of its clock; a rate that differs from
// the limiter's is refused.
func (m *Machine) agree(res *resource, c *Command, r *Result) (rate limit.Rate, now int64, ok bool) {
	said := c.Ask.Rate.Count != 0
	rate = c.Ask.Rate
	rate.Name = ""
	switch {
	case res != nil && res.kind != Limiter:
		r.refuse(CodeConflict, "%q is of kind %s, not a limiter: use another name", c.Name, res.kind)
		return rate, 0, false
	case res == nil && !said:
		r.refuse(CodeNotExist, "there is no limiter %q: give its rate to make it", c.Name)
		return rate, 0, false
	case res == nil || c.Ask.Op == LimitSetRate:
	case said && !res.limiter.rate.Equal(rate):
		r.refuse(CodeConflict, "limiter %q has the rate %s, not %s: use that, or set another for all", c.Name, res.limiter.rate, rate)
		return rate, 0, false
	default:
		rate = res.limiter.rate
	}
	if now, ok = m.clockOf(rate); !ok {
		r.refuse(CodeUnsupported, "calendar windows go by the date, which nobody tells here: use a fixed window")
	}
	return rate, now, ok
}

// clockOf is the time that a rate is decided by: cluster time, or for a calendar the
// date, if the engine has told it.
func (m *Machine) clockOf(rate limit.Rate) (now int64, ok bool) {
	if rate.Algorithm == limit.CalendarWindow {
		return m.now + m.date, m.dated
	}
	return m.now, true
}

// Date is the Unix time of the last entry by the clocks of its leaders, in seconds; 0: none has told the date.
func (m *Machine) Date() int64 {
	if !m.dated {
		return 0
	}
	return (m.now + m.date) / second
}

// setRate makes a limiter, or gives the one that is there another rate.
func (m *Machine) setRate(ns *namespace, res *resource, c *Command, now int64, r *Result) {
	if res == nil {
		if res = m.newLimiter(ns, c, r); res == nil {
			return
		}
	} else {
		m.touchResource(res)
		m.giveUp(res.limiter)
		res.limiter = m.limiterOf(ns, c.Ask.Rate)
	}
	m.changedLimiter(res, r)
	r.decided(limit.Decision{}, limit.Reservation{}, res.limiter.rate, now)
}

// newLimiter makes a limiter, which takes no revision, as decisions take none, and is
// not told; nil: there is no room.
func (m *Machine) newLimiter(ns *namespace, c *Command, r *Result) *resource {
	if !m.quota(ns, 1, r) {
		return nil
	}
	res := m.name(ns, c.Name, Limiter, 0)
	m.touchResource(res)
	res.limiter = m.limiterOf(ns, c.Ask.Rate)
	m.stamp(res)
	return res
}

func (m *Machine) limiterOf(ns *namespace, rate limit.Rate) *limiter {
	rate.Name = ""
	m.limiters++
	return &limiter{number: m.limiters, ns: ns, rate: rate}
}

// changedLimiter tells that something else than time and use has changed a limiter.
func (m *Machine) changedLimiter(res *resource, r *Result) {
	m.touchResource(res)
	r.Revision = m.next()
	m.stamp(res)
	m.tellName(res, VerbChanged, 0)
}

// usage is that of a key; nil: it is as if it had never been used.
func (r *resource) usage(key string) *usage {
	if r == nil {
		return nil
	}
	u, _ := r.limiter.keys.find(key)
	return u
}

func (u *usage) used() limit.State {
	if u == nil {
		return limit.State{}
	}
	return u.state
}

// keepUsage notes what a key has used, and when it will be as if it had not.
func (m *Machine) keepUsage(l *limiter, u *usage, a *LimitAsk, s limit.State, allowed bool) {
	if u == nil {
		u = m.usages.alloc(m.epoch)
		u.of, u.key = l, clone(a.Key)
		l.keys.insert(u)
		l.ns.limitKeys++
	}
	u.state = s
	if a.Op != LimitTake || allowed && a.Cost > 0 {
		m.setUsageDue(u)
	}
}

// setUsageDue notes when to look whether a key is as if it had never been used. One
// that begins with less than its burst never is.
func (m *Machine) setUsageDue(u *usage) {
	now, _ := m.clockOf(u.of.rate)
	if at, ends := limit.Until(u.of.rate, u.state, now); ends {
		u.due = m.now + max(1, at-now)
		m.usageDue.set(u, u.due)
	}
}

// roomForKey says whether a limiter of ns can remember one key more. Keys that need
// not be remembered any more go first.
func (m *Machine) roomForKey(ns *namespace, r *Result) bool {
	if ns.limitKeys >= m.limitKeys {
		m.dropKeys()
	}
	if ns.limitKeys >= m.limitKeys {
		r.refuse(CodeExhausted, "the limiters of namespace %q remember %d keys, its quota: wait until some are as if never used, delete a limiter, or raise it (serve --max-limit-keys)", ns.name, ns.limitKeys)
		return false
	}
	return true
}

// dropKeys drops keys of limiters that are gone, and then those that are as if they
// had never been used, as many as an entry may.
func (m *Machine) dropKeys() {
	for ; m.drops > 0 && m.left.n > 0; m.drops-- {
		m.dropUsage(m.left.least().keys.least())
	}
	for ; m.drops > 0; m.drops-- {
		at, u, ok := m.usageDue.top()
		if !ok || at > m.now {
			return
		}
		if now, _ := m.clockOf(u.of.rate); limit.Idle(u.of.rate, u.state, now) {
			m.dropUsage(u)
		} else {
			m.touchUsage(u)
			m.setUsageDue(u)
		}
	}
}

// dropUsage forgets a key.
func (m *Machine) dropUsage(u *usage) {
	m.touchUsage(u)
	m.usageDue.remove(u)
	l := u.of
	l.keys.remove(u.key)
	l.ns.limitKeys--
	m.usages.release(u)
	if l.givenUp && l.keys.n == 0 {
		m.left.remove(l.number)
	}
}

// giveUp leaves a limiter's keys to be dropped.
func (m *Machine) giveUp(l *limiter) {
	if l.keys.n > 0 {
		l.givenUp = true
		m.left.insert(l)
	}
}

// keysDue is when there are keys to be dropped. That of one that is about to be as if
// never used is put off to a whole second: nobody notices, and those of a second share
// an entry.
func (m *Machine) keysDue() int64 {
	at, _, ok := m.usageDue.top()
	switch {
	case m.left.n > 0:
		return m.now
	case !ok:
		return math.MaxInt64
	case at <= m.now:
		return at
	}
	return at + (second-at%second)%second
}
