package limit

// State is what one key has used. The zero State is a key that was never used.
// Its fields mean something to the algorithm only; a State belongs to one rate.
type State struct {
	// At is a time in nanoseconds: of a bucket when it is full again, of a window
	// when it began, of a log when it was last used.
	At int64
	// Part is what a bucket's At lacks, in parts of a nanosecond: Part/Count.
	Part int64
	// Given is what cancelled reservations have taken off a bucket's At.
	Given int64
	// Used and Before are what was taken in this window and in the one before.
	Used, Before int64
	// Log has the admissions that still count, oldest first.
	Log []Admission
	// Known is true once the key was used: a bucket with an Initial below its
	// burst begins with less.
	Known bool
}

// Admission is one entry of a [SlidingLog].
type Admission struct{ At, Cost int64 }

// Take decides whether cost may be taken at now, and takes it if so. A cost of 0
// only looks; a negative one is refused, as [Never].
func Take(r Rate, s State, now, cost int64) (State, Decision) {
	d := Decision{Asked: cost, Limit: r.Limit(), Policy: r.Name}
	if cost < 0 || cost > d.Limit {
		d = look(r, s, now, d)
		d.RetryAfter = Never
		return s, d
	}
	return take(r, s, now, cost, d)
}

// Peek decides as [Take] would, and takes nothing.
func Peek(r Rate, s State, now, cost int64) Decision {
	before := look(r, s, now, Decision{})
	_, d := Take(r, s.clone(), now, cost)
	d.Remaining, d.ResetAfter = before.Remaining, before.ResetAfter
	return d
}

// Reserve is [Take] for a cost that is only estimated: what it returns lets
// [Settle] correct the amount once it is known, and [Cancel] give it back.
func Reserve(r Rate, s State, now, cost int64) (State, Reservation, Decision) {
	s, d := Take(r, s, now, cost)
	if !d.Allowed {
		return s, Reservation{}, d
	}
	v := Reservation{Cost: cost, At: now}
	if r.bucket() {
		v.Until, v.given = s.At, s.Given
	} else {
		v.At = max(now, s.At)
	}
	return s, v, d
}

// Settle replaces what was reserved by the actual cost. More than was reserved is
// taken in any case and may leave the key in debt, which is paid by waiting; less
// is given back as far as the reservation still counts.
func Settle(r Rate, s State, now int64, v Reservation, actual int64) State {
	actual = max(actual, 0)
	switch {
	case actual > v.Cost:
		return charge(r, s, now, actual-v.Cost)
	case actual < v.Cost:
		return refund(r, s, now, v, v.Cost-actual)
	}
	return s
}

// Cancel gives back what was reserved, as far as it still counts: what time has
// given back already is not given twice.
func Cancel(r Rate, s State, now int64, v Reservation) State { return Settle(r, s, now, v, 0) }

// Charge takes cost without asking; the key may be in debt afterwards. A cost
// above [MaxCount] counts as MaxCount.
func Charge(r Rate, s State, now, cost int64) State { return charge(r, s, now, max(cost, 0)) }

// Idle reports that the key is at now as if it had never been used, and no
// reservation of it counts any more, so that its state can be forgotten.
func Idle(r Rate, s State, now int64) bool {
	if r.bucket() && r.initial() < r.burst() {
		return !s.Known
	}
	if r.bucket() {
		return !s.Known || s.settled(now)
	}
	return look(r, s, now, Decision{}).ResetAfter == 0
}

// Request is one question of [TakeAll].
type Request struct {
	Rate  Rate
	State State
	Cost  int64
}

// TakeAll takes the cost of every request or of none; states are changed in
// place, and only if all were allowed.
func TakeAll(now int64, requests []Request) (allowed bool, decisions []Decision) {
	decisions = make([]Decision, len(requests))
	allowed = true
	for i, q := range requests {
		decisions[i] = Peek(q.Rate, q.State, now, q.Cost)
		allowed = allowed && decisions[i].Allowed
	}
	if !allowed {
		return false, decisions
	}
	for i := range requests {
		q := &requests[i]
		q.State, decisions[i] = Take(q.Rate, q.State, now, q.Cost)
	}
	return true, decisions
}

// clone lets the copy's log be changed.
func (s State) clone() State {
	s.Log = append([]Admission(nil), s.Log...)
	return s
}

// take, look, charge and refund are dealt out to the algorithms.
func take(r Rate, s State, now, cost int64, d Decision) (State, Decision) {
	switch r.Algorithm {
	case FixedWindow, CalendarWindow:
		return takeWindow(r, s, now, cost, d)
	case SlidingWindow:
		return takeSliding(r, s, now, cost, d)
	case SlidingLog:
		return takeLog(r, s, now, cost, d)
	}
	return takeBucket(r, s, now, cost, d)
}

// look fills in what remains.
func look(r Rate, s State, now int64, d Decision) Decision {
	_, seen := take(r, s.clone(), now, 0, Decision{})
	d.Remaining, d.ResetAfter = seen.Remaining, seen.ResetAfter
	return d
}

func charge(r Rate, s State, now, cost int64) State {
	cost = min(cost, MaxCount)
	switch r.Algorithm {
	case FixedWindow, CalendarWindow, SlidingWindow:
		return chargeWindow(r, s, now, cost)
	case SlidingLog:
		return chargeLog(r, s, now, cost)
	}
	return chargeBucket(r, s, now, cost)
}

func refund(r Rate, s State, now int64, v Reservation, n int64) State {
	switch r.Algorithm {
	case FixedWindow, CalendarWindow:
		return refundWindow(r, s, now, v, n)
	case SlidingWindow:
		return refundSliding(r, s, now, v, n)
	case SlidingLog:
		return refundLog(s, v, n)
	}
	return refundBucket(r, s, now, v, n)
}
