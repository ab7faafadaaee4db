package limit

import (
	"math"
	"math/bits"
	"time"
)

// moment is a time in nanoseconds and parts of one, part/Count of the rate: so
// the time that one unit takes to refill, Per/Count, is exact.
type moment struct{ ns, part int64 }

func (m moment) before(o moment) bool {
	return m.ns < o.ns || m.ns == o.ns && m.part < o.part
}

// ceil is the first whole nanosecond that is not before m.
func (m moment) ceil() int64 {
	if m.part > 0 {
		return add(m.ns, 1)
	}
	return m.ns
}

// never is a time that does not come: sums that are beyond it are it, and nothing is taken that leaves
// a bucket full again only then.
const never = math.MaxInt64

// add is the sum of a time and a span that is not negative, or never.
func add(ns, span int64) int64 {
	if ns > never-span {
		return never
	}
	return ns + span
}

// plus is m and the time that n units take to refill, at most maxFill; never has no parts.
func (m moment) plus(r *Rate, n int64) moment { return m.after(r, r.fill(n)) }

// after is m and a span.
func (m moment) after(r *Rate, span moment) moment {
	m.ns = add(m.ns, span.ns)
	if m.part += span.part; m.part >= r.Count {
		m.part -= r.Count
		m.ns = add(m.ns, 1)
	}
	if m.ns == never {
		m.part = 0
	}
	return m
}

// minus is m less a span.
func (m moment) minus(r *Rate, span moment) moment {
	m.ns -= span.ns
	if m.part -= span.part; m.part < 0 {
		m.part += r.Count
		m.ns--
	}
	return m
}

// fill is the time that n units take to refill, at most maxFill.
func (r *Rate) fill(n int64) moment {
	high, low := bits.Mul64(uint64(n), uint64(r.Per))
	if high >= uint64(r.Count) {
		return moment{ns: int64(maxFill)}
	}
	ns, part := bits.Div64(high, low, uint64(r.Count))
	if ns >= uint64(maxFill) {
		return moment{ns: int64(maxFill)}
	}
	return moment{int64(ns), int64(part)}
}

// units is how many whole units refill from one moment to a later one; more than fit
// are as many as fit.
func (r *Rate) units(from, to moment) int64 {
	if !from.before(to) {
		return 0
	}
	span := to.minus(r, from)
	high, low := bits.Mul64(uint64(span.ns), uint64(r.Count))
	low, carry := bits.Add64(low, uint64(span.part), 0)
	if high+carry >= uint64(r.Per) {
		return math.MaxInt64
	}
	n, _ := bits.Div64(high+carry, low, uint64(r.Per))
	return int64(min(n, math.MaxInt64))
}

// full is when the bucket is full if nothing more is taken, not before now.
func (s *State) full(r *Rate, now int64) moment {
	at := moment{now, 0}
	if !s.Known {
		if missing := r.burst() - r.initial(); missing > 0 {
			return at.plus(r, missing)
		}
	}
	if m := (moment{s.At, s.Part}); at.before(m) {
		return m
	}
	return at
}

// takeBucket lets a cost pass that leaves the bucket no emptier than empty: it
// must be full again within the time that a whole burst takes, or, with a wait,
// so much later. All moments but those of the state count from now, so that none is out of range.
func takeBucket(r *Rate, s *State, now int64, a Ask, d *Decision) {
	full := s.full(r, now).minus(r, moment{ns: now})
	empty := r.fill(r.burst())
	after := r.ahead(full, empty, a).plus(r, a.Cost)
	if empty.before(after) {
		d.RetryAfter = time.Duration(after.minus(r, empty).ceil())
	}
	d.Allowed = d.RetryAfter <= max(a.Wait, 0)
	if a.Cost > 0 && (moment{ns: now}).after(r, after).ns == never {
		d.Allowed, d.RetryAfter = false, Never
	}
	if d.Allowed {
		full = after
	}
	d.Remaining = r.units(full, empty)
	d.ResetAfter = time.Duration(full.ceil())
	if a.Cost > 0 && (d.Allowed || r.initial() < r.burst()) { // a key with less to begin with fills from its first use on, refused or not
		s.fullAt(moment{ns: now}.after(r, full), now)
	}
	if d.Allowed && (a.Ahead > 0 || d.RetryAfter > 0) {
		s.Leased = s.At
	}
}

// ahead is full, moved as far ahead as a asks and the burst allows.
func (r *Rate) ahead(full, empty moment, a Ask) moment {
	if a.Ahead <= 0 || a.Cost <= 0 {
		return full
	}
	least := moment{ns: int64(min(a.Ahead, maxFill))}
	if most := empty.minus(r, r.fill(a.Cost)); most.before(least) {
		least = most
	}
	if full.before(least) {
		return least
	}
	return full
}

// fullAt notes when the bucket is full again.
func (s *State) fullAt(m moment, now int64) {
	if s.settled(now) {
		s.Given, s.Leased = 0, 0
	}
	s.At, s.Part, s.Known = m.ns, m.part, true
}

// settled reports that nothing that was ever taken counts any more, cancelled or
// not: At would have been at most At + Given.
func (s *State) settled(now int64) bool { return s.settles() <= now }

// settles is when that is so.
func (s *State) settles() int64 { return add(moment{s.At, s.Part}.ceil(), s.Given) }

func chargeBucket(r *Rate, s *State, now, cost int64) {
	if cost == 0 {
		return
	}
	m := s.full(r, now).plus(r, cost)
	if most := add(now, int64(maxFill)); m.ns > most {
		m = moment{ns: most}
	}
	s.fullAt(m, now)
}

// refundBucket makes room for n again, but not for what the bucket has refilled
// since. Without other cancellations the reservation keeps at least v.Until less
// now from it, and every earlier one that was cancelled since makes that less.
func refundBucket(r *Rate, s State, now int64, v Reservation, n int64) State {
	if s.Given < v.Given || s.Given > maxGiven { // it was settled before now
		return s
	}
	span := r.fill(n)
	if left := (moment{ns: max(max(v.Until-now, 0)-(s.Given-v.Given), 0)}); left.before(span) {
		span = left
	}
	if s.Leased == v.Until { // it is the last of those itself
		s.Leased = moment{ns: add(v.Until, 1)}.minus(r, span).ns
	}
	if above := (moment{max(s.At-s.Leased, 0), s.Part}); above.before(span) {
		span = above
	}
	if !s.last(v) {
		s.Given = min(add(s.Given, span.ceil()), maxGiven+1)
	}
	m := moment{s.At, s.Part}.minus(r, span)
	s.At, s.Part = m.ns, m.part
	return s
}

// last reports that nothing was taken or given back since v: to give that back too
// takes nothing from other reservations, and leaves the bucket as it was before v.
// So a key that is reserved and cancelled over and over is idle as early as one that
// was never reserved.
func (s State) last(v Reservation) bool { return s.At == v.Until && s.Given == v.Given }

// resetBucket gives back all that was taken, so that nothing of it can be given back
// again.
func resetBucket(r *Rate, s State, now int64) State {
	m := moment{now, 0}.plus(r, r.burst()-r.initial())
	next := State{At: m.ns, Part: m.part, Known: true}
	if left := (moment{s.At, s.Part}).ceil() - now; !s.settled(now) {
		next.Given = min(add(s.Given, max(left, 0)), maxGiven+1)
	}
	return next
}

// maxGiven keeps sums of times from overflow; a bucket that was given back more than that
// without ever being idle is given back no more, and no more is noted.
const maxGiven = 1 << 61
