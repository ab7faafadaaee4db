package limit

// State is what one key has used. The zero State is a key that was never used.
// Its fields mean something to the algorithm only; a State belongs to one rate.
type State struct {
	// At is a time in nanoseconds: of a bucket when it is full again, of a window
	// when it began, of a log when it was last used.
	At int64 `json:"at,omitempty"`
	// Part is what a bucket's At lacks, in parts of a nanosecond: Part/Count.
	Part int64 `json:"part,omitempty"`
	// Given is what cancelled reservations and resets have taken off a bucket's At; of
	// the others how often it was reset.
	Given int64 `json:"given,omitempty"`
	// Leased is until when what was taken from a bucket to be used later can be used,
	// by [Ask.Ahead] and [Ask.Wait]: nothing that others give back moves At before
	// it, since that would be used beside what is taken anew.
	Leased int64 `json:"leased,omitempty"`
	// Used and Before are what was taken in this window and in the one before.
	Used   int64 `json:"used,omitempty"`
	Before int64 `json:"before,omitempty"`
	// Log has the admissions that still count, oldest first.
	Log []Admission `json:"log,omitempty"`
	// Known is true once the key was used: a bucket with an Initial below its
	// burst begins with less.
	Known bool `json:"known,omitempty"`
}

// Admission is one entry of a [SlidingLog].
type Admission struct {
	At   int64 `json:"at"`
	Cost int64 `json:"cost"`
}

// Take decides whether cost may be taken at now, and takes it if so. A cost of 0
// only looks; a negative one is refused, as [Never].
func Take(r Rate, s State, now, cost int64) (State, Decision) {
	var d Decision
	decide(&r, &s, now, Ask{Cost: cost}, &d)
	return s, d
}

// decide fills in the decision, and changes the state if the cost was taken.
func decide(r *Rate, s *State, now int64, a Ask, d *Decision) {
	d.Asked, d.Limit, d.Policy = a.Cost, r.limit(), r.Name
	if a.Cost < 0 || a.Cost > d.Limit {
		look(r, s, now, d)
		d.RetryAfter = Never
		return
	}
	take(r, s, now, a, d)
}

// Peek decides as [Take] would, and takes nothing.
func Peek(r Rate, s State, now, cost int64) Decision {
	var before Decision
	look(&r, &s, now, &before)
	_, d := Take(r, s.clone(), now, cost)
	d.Remaining, d.ResetAfter = before.Remaining, before.ResetAfter
	return d
}

// Reserve is [Take] for a cost that is only estimated: what it returns lets
// [Settle] correct the amount once it is known, and [Cancel] give it back.
func Reserve(r Rate, s State, now, cost int64) (State, Reservation, Decision) {
	return Decide(r, s, now, Ask{Cost: cost})
}

// Decide is [Reserve] for every kind of question.
func Decide(r Rate, s State, now int64, a Ask) (State, Reservation, Decision) {
	var d Decision
	if decide(&r, &s, now, a, &d); !d.Allowed {
		return s, Reservation{}, d
	}
	v := Reservation{Cost: a.Cost, At: now, Given: s.Given}
	if r.bucket() {
		v.Until = s.At
	} else {
		v.At = max(now, s.At)
		v.Until = r.until(v.At)
	}
	return s, v, d
}

// Usable is how much of a block, a reservation made with [Ask.Ahead], can still
// be used at now: as much as has left a trace that has not gone yet, so that no
// time has more than the rate, by when it was used. What cannot be used any more
// goes first: a caller that has used n has max(n, Cost - Usable) less from then
// on. Of sliding windows and logs
// that is nothing once time has passed.
func Usable(r Rate, v Reservation, now int64) int64 {
	switch {
	case now <= v.At:
		return v.Cost
	case r.bucket():
		return min(v.Cost, r.units(moment{ns: now}, moment{ns: v.Until}))
	case r.Algorithm == FixedWindow || r.Algorithm == CalendarWindow:
		if now < v.Until {
			return v.Cost
		}
	}
	return 0
}

// Settle replaces what was reserved by the actual cost. More than was reserved is
// taken in any case and may leave the key in debt, which is paid by waiting; less
// is given back as far as the reservation still counts, and does not come before
// what others have taken since to use it later.
func Settle(r Rate, s State, now int64, v Reservation, actual int64) State {
	actual = max(actual, 0)
	switch {
	case actual > v.Cost:
		charge(&r, &s, now, actual-v.Cost)
	case actual < v.Cost:
		return refund(&r, s, now, v, v.Cost-actual)
	}
	return s
}

// Cancel gives back what was reserved, as far as it still counts: what time has
// given back already is not given twice.
func Cancel(r Rate, s State, now int64, v Reservation) State { return Settle(r, s, now, v, 0) }

// Return gives back what was not used of a block, as far as it could still be
// used.
func Return(r Rate, s State, now int64, v Reservation, unused int64) State {
	if n := min(unused, Usable(r, v, now)); n > 0 {
		return refund(&r, s, now, v, n)
	}
	return s
}

// Charge takes cost without asking; the key may be in debt afterwards. A cost
// above [MaxCount] counts as MaxCount.
func Charge(r Rate, s State, now, cost int64) State {
	charge(&r, &s, now, max(cost, 0))
	return s
}

// Reset makes the key as if it had never been used. What was taken before counts for
// nothing from then on: to settle, cancel or return it gives nothing back, which
// would be what others have taken since. A bucket with less to begin with fills
// from the reset on.
func Reset(r Rate, s State, now int64) State {
	switch {
	case !s.Known:
		return s
	case r.bucket():
		return resetBucket(&r, s, now)
	case r.Algorithm == SlidingLog:
		return State{At: s.latest(now), Given: s.Given + 1, Known: true}
	}
	s, _, _, _ = s.roll(&r, now)
	s.Used, s.Before, s.Given = 0, 0, s.Given+1
	return s
}

// Until is from when on the key is as if it had never been used, and no reservation
// of it counts any more, so that its state can be forgotten; false: it never is.
func Until(r Rate, s State, now int64) (at int64, ends bool) {
	switch {
	case !s.Known:
		return now, true
	case r.bucket() && r.initial() < r.burst():
		return 0, false
	case r.bucket():
		return max(now, s.settles()), true
	case r.Algorithm == SlidingLog:
		return s.logUntil(&r, now), true
	}
	var seen Decision
	look(&r, &s, now, &seen)
	at = add(now, int64(seen.ResetAfter))
	if s.Given > 0 {
		at = max(at, r.until(s.At))
	}
	return at, true
}

// Idle reports that now is not before [Until].
func Idle(r Rate, s State, now int64) bool {
	at, ends := Until(r, s, now)
	return ends && at <= now
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
func take(r *Rate, s *State, now int64, a Ask, d *Decision) {
	switch r.Algorithm {
	case FixedWindow, CalendarWindow:
		takeWindow(r, s, now, a.Cost, d)
	case SlidingWindow:
		takeSliding(r, s, now, a.Cost, d)
	case SlidingLog:
		takeLog(r, s, now, a.Cost, d)
	default:
		takeBucket(r, s, now, a, d)
	}
}

// look fills in what remains.
func look(r *Rate, s *State, now int64, d *Decision) {
	var seen Decision
	then := s.clone()
	take(r, &then, now, Ask{}, &seen)
	d.Remaining, d.ResetAfter = seen.Remaining, seen.ResetAfter
}

func charge(r *Rate, s *State, now, cost int64) {
	cost = min(cost, MaxCount)
	switch r.Algorithm {
	case FixedWindow, CalendarWindow, SlidingWindow:
		chargeWindow(r, s, now, cost)
	case SlidingLog:
		chargeLog(r, s, now, cost)
	default:
		chargeBucket(r, s, now, cost)
	}
}

func refund(r *Rate, s State, now int64, v Reservation, n int64) State {
	switch {
	case r.bucket():
		return refundBucket(r, s, now, v, n)
	case s.Given != v.Given: // it was reset since
		return s
	}
	switch r.Algorithm {
	case FixedWindow, CalendarWindow:
		return refundWindow(r, s, now, v, n)
	case SlidingWindow:
		return refundSliding(r, s, now, v, n)
	}
	return refundLog(s, v, n)
}
