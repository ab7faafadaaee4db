package limit

import (
	"math/bits"
	"time"
)

// window is when the window of now began, and how long it is.
func (r *Rate) window(now int64) (begin, length int64) {
	if r.Algorithm == CalendarWindow {
		return r.calendar(now)
	}
	per := int64(r.Per)
	begin = now - now%per
	if now < begin {
		begin -= per
	}
	return begin, per
}

// until is when what is taken at a time stops to count.
func (r *Rate) until(at int64) int64 {
	switch r.Algorithm {
	case SlidingLog:
		return add(at, int64(r.Per))
	case SlidingWindow:
		begin, length := r.window(at)
		return add(begin, 2*length)
	}
	begin, length := r.window(at)
	return add(begin, length)
}

// left is how long it is from now until a time after the begin of a window, also while the clock is set
// back behind that: the key is in that window until then. By a calendar it is counted from the begin then,
// which groups of nodes have agreed on, and nodes of several builds have to answer alike.
func (r *Rate) left(now, begin, after int64) time.Duration {
	if r.Algorithm == CalendarWindow {
		now = max(now, begin)
	}
	if now < begin {
		return time.Duration(add(begin-now, after))
	}
	return time.Duration(after - (now - begin))
}

func (r *Rate) calendar(now int64) (begin, length int64) {
	t := time.Unix(0, now).UTC().Add(r.Offset)
	y, m, d := t.Date()
	var from, to time.Time
	switch r.Every {
	case Hour:
		from = time.Date(y, m, d, t.Hour(), 0, 0, 0, time.UTC)
		to = from.Add(time.Hour)
	case Day:
		from, to = time.Date(y, m, d, 0, 0, 0, 0, time.UTC), time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
	case Month:
		from, to = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC), time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
	default:
		from, to = time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(y+1, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return from.Add(-r.Offset).UnixNano(), int64(to.Sub(from))
}

// roll moves the state into the window of now. A clock that was set back leaves the
// key in the window that it was in.
func (s State) roll(r *Rate, now int64) (rolled State, at, begin, length int64) {
	if s.Known && !s.astray(r, now) {
		now = max(now, s.At)
	}
	begin, length = r.window(now)
	switch {
	case s.Known && s.At == begin:
	case s.Known && begin-s.At == length:
		s.Before, s.Used = s.Used, 0
	default:
		s.Before, s.Used = 0, 0
	}
	s.At, s.Known = begin, true
	return s, now, begin, length
}

// astray reports that a clock which was wrong for a while, by more than a window of
// the calendar, has used the key: it begins anew then, instead of being closed until
// that date.
func (s State) astray(r *Rate, now int64) bool {
	return r.Algorithm == CalendarWindow && s.At > r.until(now)
}

func takeWindow(r *Rate, old *State, now, cost int64, d *Decision) {
	s, _, begin, length := old.roll(r, now)
	d.Allowed = s.Used+cost <= r.Count
	if d.Allowed {
		s.Used += cost
	} else {
		d.RetryAfter = r.left(now, begin, length)
	}
	d.Remaining = max(r.Count-s.Used, 0)
	if s.Used > 0 {
		d.ResetAfter = r.left(now, begin, length)
	}
	if d.Allowed && cost > 0 {
		*old = s
	}
}

func chargeWindow(r *Rate, s *State, now, cost int64) {
	*s, _, _, _ = s.roll(r, now)
	s.Used = min(s.Used+cost, MaxCount)
}

func refundWindow(r *Rate, s State, now int64, v Reservation, n int64) State {
	s, _, begin, _ := s.roll(r, now)
	if was, _ := r.window(v.At); was == begin {
		s.Used = max(s.Used-n, 0)
	}
	return s
}

// share is what the window before still counts for, rounded up.
func (s State) share(now, begin, length int64) int64 {
	high, low := bits.Mul64(uint64(s.Before), uint64(length-(now-begin)))
	low, carry := bits.Add64(low, uint64(length-1), 0)
	n, _ := bits.Div64(high+carry, low, uint64(length))
	return int64(n)
}

func takeSliding(r *Rate, old *State, now, cost int64, d *Decision) {
	s, at, begin, length := old.roll(r, now)
	share := s.share(at, begin, length)
	d.Allowed = share+s.Used+cost <= r.Count
	if d.Allowed {
		s.Used += cost
	} else {
		d.RetryAfter = r.left(now, begin, s.fits(r, length, cost))
	}
	d.Remaining = max(r.Count-share-s.Used, 0)
	if after := s.slidOut(length); after > 0 {
		d.ResetAfter = r.left(now, begin, after)
	}
	if d.Allowed && cost > 0 {
		*old = s
	}
}

// fits is how long after the begin of the window cost fits: as the window before slides out, or in the
// next window, as this one does.
func (s State) fits(r *Rate, length, cost int64) int64 {
	if room := r.Count - s.Used - cost; room >= 0 {
		return slide(s.Before, room, length)
	}
	return length + slide(s.Used, r.Count-cost, length)
}

// slide is how far into a window the share of the one before has come down to
// room.
func slide(before, room, length int64) int64 {
	if before <= room {
		return 0
	}
	high, low := bits.Mul64(uint64(room), uint64(length))
	left, _ := bits.Div64(high, low, uint64(before))
	return length - int64(left)
}

// slidOut is how long after the begin of the window nothing counts any more; 0: nothing does.
func (s State) slidOut(length int64) int64 {
	switch {
	case s.Used > 0:
		return 2 * length
	case s.Before > 0:
		return length
	}
	return 0
}

func refundSliding(r *Rate, s State, now int64, v Reservation, n int64) State {
	s, _, begin, length := s.roll(r, now)
	switch was, _ := r.window(v.At); was {
	case begin:
		s.Used = max(s.Used-n, 0)
	case begin - length:
		s.Before = max(s.Before-n, 0)
	}
	return s
}
