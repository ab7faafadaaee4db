package twin

import (
	"cmp"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// The twin knows two kinds of limiters, with units that refill in whole nanoseconds:
// buckets and fixed windows. It keeps everything that was ever taken and works each
// decision out anew from that.
const (
	bucket      = 0
	fixedWindow = 2
)

// use is one key of a limiter with all that it took.
type use struct {
	of    *name
	key   string
	taken []taken
	// given is what resets gave back of a bucket before time did, or how often a window
	// was reset.
	given int64
}

type taken struct{ at, cost int64 }

// limit asks a limiter.
func (t *Twin) limit(s *session, c core.Command) core.Result {
	a := c.Ask
	o, code := t.object(s, c.Name, core.Limiter)
	said := a.Rate.Count != 0
	switch {
	case code == core.CodeNotExist && said:
		o = &name{ns: s.ns, name: c.Name, kind: core.Limiter, ask: *a}
	case o == nil:
		return core.Result{Code: code}
	case a.Op != core.LimitSetRate && said && a.Rate != o.ask.Rate:
		return core.Result{Code: core.CodeConflict}
	}
	if code == core.CodeNotExist && a.Op != core.LimitPeek {
		if t.crowded(s.ns, 1) {
			return core.Result{Code: core.CodeExhausted}
		}
		t.names = append(t.names, o)
		if a.Op != core.LimitSetRate {
			t.limiters++
			o.number = t.limiters
		}
	}
	if a.Op == core.LimitSetRate {
		return t.setRate(o, a)
	}
	return t.useKey(o, a)
}

// setRate sets a rate; what was used at the one before is left to be dropped.
func (t *Twin) setRate(o *name, a *core.LimitAsk) core.Result {
	t.leaveKeys(o)
	t.limiters++
	o.ask, o.number = *a, t.limiters
	r := core.Result{Revision: t.next(), Limit: t.answer(o)}
	t.event(o.event(core.VerbChanged, 0))
	return r
}

// leaveKeys gives up the keys of o.
func (t *Twin) leaveKeys(o *name) {
	n := len(t.uses)
	t.uses = slices.DeleteFunc(t.uses, func(u *use) bool { return u.of == o })
	t.left += n - len(t.uses)
}

func (t *Twin) answer(o *name) *core.LimitAnswer {
	return &core.LimitAnswer{Rate: o.ask.Rate, Now: t.now}
}

func (t *Twin) useKey(o *name, a *core.LimitAsk) core.Result {
	r := core.Result{Limit: t.answer(o)}
	i := slices.IndexFunc(t.uses, func(u *use) bool { return u.of == o && u.key == a.Key })
	u := &use{of: o, key: a.Key}
	if i >= 0 {
		u = t.uses[i]
	}
	switch a.Op {
	case core.LimitReset:
		if i >= 0 {
			u.reset(t.now)
			r.Revision = t.next()
			t.event(o.event(core.VerbChanged, 0))
		}
	case core.LimitSettle:
		v := a.Reservation
		if a.Cost > v.Cost { // it is taken in any case
			u.add(t.now, a.Cost-v.Cost)
		} else if a.Cost < v.Cost {
			t.refund(u, a, v.Cost-a.Cost)
		}
	case core.LimitReturn:
		if n := min(a.Cost, a.Reservation.Cost); n > 0 && t.now < a.Reservation.Until {
			t.refund(u, a, n)
		}
	default:
		r.OK = t.take(u, a, r.Limit)
	}
	if i < 0 && len(u.taken) > 0 {
		t.uses = append(t.uses, u)
	}
	if a.Op != core.LimitTake && a.Op != core.LimitPeek {
		t.uses = slices.DeleteFunc(t.uses, func(x *use) bool { return x == u && u.unused() <= t.now })
	}
	return r
}

// refund gives back what was taken of a window, as long as that lasts, from the limiter that
// gave it. (The generator has no reservations of buckets: package limit has a twin of its own.)
func (t *Twin) refund(u *use, a *core.LimitAsk, n int64) {
	v := a.Reservation
	if v.Epoch != u.of.number || v.Given != u.given {
		return
	}
	sum, _ := u.inWindow(t.now)
	if v.At/u.each() != t.now/u.each() {
		n = 0
	}
	u.taken = append(u.taken, taken{t.now, -min(n, sum)})
}

// take decides, and takes unless it is only to look.
func (t *Twin) take(u *use, a *core.LimitAsk, r *core.LimitAnswer) bool {
	d := &r.Decision
	d.Asked, d.Limit = a.Cost, u.most()
	left, reset := u.room(t.now)
	if a.Cost > d.Limit {
		d.RetryAfter, d.Remaining = -1, left
		set(&d.ResetAfter, reset)
		return false
	}
	wait := u.lacks(t.now, a.Cost)
	set(&d.RetryAfter, wait)
	d.Allowed = wait == 0 || a.Op == core.LimitTake && u.of.ask.Rate.Algorithm == bucket && wait <= a.Wait
	if d.Allowed && a.Op == core.LimitTake {
		if a.Cost > 0 {
			u.add(t.now, a.Cost)
		}
		left, reset = u.room(t.now)
		r.Reservation.Cost, r.Reservation.At, r.Reservation.Until = a.Cost, t.now, u.until(t.now)
		r.Reservation.Given, r.Reservation.Epoch = u.given, u.of.number
	}
	d.Remaining = left
	set(&d.ResetAfter, reset)
	return d.Allowed
}

// add takes cost. What was given back before counts no more once time would have.
func (u *use) add(now, cost int64) {
	if u.of.ask.Rate.Algorithm == bucket && u.unused() <= now {
		u.given = 0
	}
	u.taken = append(u.taken, taken{now, cost})
}

// reset gives back all that was taken. The key is remembered until time would have done
// so, lest what was taken before is given back again.
func (u *use) reset(now int64) {
	switch {
	case u.of.ask.Rate.Algorithm == fixedWindow:
		u.given++
	case u.unused() <= now:
		u.given = 0
	default:
		u.given += max(0, u.full()-now)
	}
	u.taken = []taken{{now, 0}}
}

// set is for the fields that are spans of time.
func set[T ~int64](field *T, ns int64) { *field = T(ns) }

func (u *use) most() int64 {
	if r := &u.of.ask.Rate; r.Burst > 0 {
		return r.Burst
	}
	return u.of.ask.Rate.Count
}

// each is how long one unit of a bucket takes to refill, or a window lasts.
func (u *use) each() int64 {
	if u.of.ask.Rate.Algorithm == bucket {
		return int64(u.of.ask.Rate.Per) / u.of.ask.Rate.Count
	}
	return int64(u.of.ask.Rate.Per)
}

// full is when a bucket is full again: what was taken refills one after the other.
func (u *use) full() (at int64) {
	for _, x := range u.taken {
		at = max(at, x.at) + x.cost*u.each()
	}
	return at
}

// inWindow is what was taken in the window of now, and when that ends.
func (u *use) inWindow(now int64) (sum, end int64) {
	for _, x := range u.taken {
		if x.at/u.each() == now/u.each() {
			sum += x.cost
		}
	}
	return sum, (now/u.each() + 1) * u.each()
}

// room is what could be taken at now, and how long it is until all can.
func (u *use) room(now int64) (left, reset int64) {
	if u.of.ask.Rate.Algorithm == fixedWindow {
		sum, end := u.inWindow(now)
		if sum > 0 {
			reset = end - now
		}
		return max(0, u.most()-sum), reset
	}
	missing := max(u.full(), now) - now
	return max(0, u.most()*u.each()-missing) / u.each(), missing
}

// lacks is how long it is until cost can be taken.
func (u *use) lacks(now, cost int64) int64 {
	if u.of.ask.Rate.Algorithm == fixedWindow {
		if sum, end := u.inWindow(now); sum+cost > u.most() {
			return end - now
		}
		return 0
	}
	return max(0, max(u.full(), now)+cost*u.each()-now-u.most()*u.each())
}

// until is when what was taken at now has left no trace.
func (u *use) until(now int64) int64 {
	if u.of.ask.Rate.Algorithm == fixedWindow {
		_, end := u.inWindow(now)
		return end
	}
	return u.full()
}

// unused is when the key is as if it had never been used.
func (u *use) unused() (at int64) {
	if u.of.ask.Rate.Algorithm == bucket {
		return u.full() + u.given
	}
	for _, x := range u.taken {
		sum, end := u.inWindow(x.at)
		if at = end; sum == 0 && u.given == 0 {
			at = 0 // all was given back
		}
	}
	return at
}

// dropKeys forgets keys, as many as an entry may: of limiters that are gone, then those
// that are as if they had never been used.
func (t *Twin) dropKeys() {
	budget := t.cfg.Budget
	gone := min(budget, t.left)
	t.left -= gone
	slices.SortFunc(t.uses, func(a, b *use) int {
		return cmp.Or(cmp.Compare(a.unused(), b.unused()), cmp.Compare(a.of.number, b.of.number), cmp.Compare(a.key, b.key))
	})
	for budget -= gone; budget > 0 && len(t.uses) > 0 && t.uses[0].unused() <= t.now; budget-- {
		t.uses = t.uses[1:]
	}
}

// keysDue is when a bare entry would drop keys; 0: never. It waits for a whole second.
func (t *Twin) keysDue() int64 {
	if t.left > 0 {
		return t.now
	}
	if len(t.uses) == 0 {
		return 0
	}
	first := slices.MinFunc(t.uses, func(a, b *use) int { return cmp.Compare(a.unused(), b.unused()) }).unused()
	if first <= t.now {
		return first
	}
	const second = int64(1e9)
	return (first + second - 1) / second * second
}
