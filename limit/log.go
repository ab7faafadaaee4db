package limit

import "slices"

// since drops what does not count any more at now, and sums the rest up.
func (s State) since(r *Rate, now int64) (State, int64) {
	old := now - int64(r.Per)
	n, sum := 0, int64(0)
	for _, a := range s.Log {
		if a.At <= old {
			n++
			continue
		}
		sum += a.Cost
	}
	s.Log = s.Log[n:]
	return s, sum
}

func (s State) latest(now int64) int64 {
	if s.Known {
		return max(now, s.At)
	}
	return now
}

// logUntil is [Until] of a log, whatever its length.
func (s State) logUntil(r *Rate, now int64) int64 {
	if n := len(s.Log); n > 0 {
		now = max(now, r.until(s.Log[n-1].At))
	}
	if s.Given > 0 {
		now = max(now, r.until(s.At))
	}
	return now
}

func takeLog(r *Rate, old *State, now, cost int64, d *Decision) {
	at := old.latest(now)
	s, sum := old.since(r, at)
	d.Allowed = sum+cost <= r.Count
	if !d.Allowed {
		d.RetryAfter = r.left(now, s.fallsTo(r.Count-cost, sum), int64(r.Per))
		cost = 0
	}
	if cost > 0 {
		s = s.admit(at, cost)
	}
	d.Remaining = max(r.Count-sum-cost, 0)
	if n := len(s.Log); n > 0 {
		d.ResetAfter = r.left(now, s.Log[n-1].At, int64(r.Per))
	}
	if cost > 0 {
		*old = s
	}
}

// fallsTo is the admission after which, once it has gone, no more than room is
// left of sum.
func (s State) fallsTo(room, sum int64) (at int64) {
	for _, a := range s.Log {
		if sum <= room {
			break
		}
		sum -= a.Cost
		at = a.At
	}
	return at
}

// admit notes an admission. A log that charges have filled moves its newest entry
// to now: that keeps it bounded and lets nothing pass earlier.
func (s State) admit(now, cost int64) State {
	s.At, s.Known = now, true
	if n := len(s.Log); n > 0 && (s.Log[n-1].At == now || n >= MaxLog) {
		s.Log[n-1] = Admission{now, min(s.Log[n-1].Cost+cost, MaxCount)}
		return s
	}
	s.Log = append(s.Log, Admission{now, cost})
	return s
}

func chargeLog(r *Rate, s *State, now, cost int64) {
	if cost == 0 {
		return
	}
	now = s.latest(now)
	*s, _ = s.since(r, now)
	*s = s.admit(now, cost)
}

func refundLog(s State, v Reservation, n int64) State {
	for i := range s.Log {
		if s.Log[i].At != v.At {
			continue
		}
		if s.Log[i].Cost -= n; s.Log[i].Cost <= 0 {
			s.Log = slices.Delete(s.Log, i, i+1)
		}
		break
	}
	return s
}
