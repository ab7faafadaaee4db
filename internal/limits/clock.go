package limits

import (
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// ByOneClock is [Decide] for an engine with a clock by which all of its clients go. Where that was set back
// by more than a window, what a key used counts in the present one: it would be closed until the clock is
// again where it was, for good after one that was in 2099 for a minute. By less, the key stays in the window
// that it was in, so that no window has more than its count.
func ByOneClock(rate limit.Rate, epoch uint64, old limit.State, now int64, r *driver.LimitRequest) (s limit.State, reply driver.LimitReply, keep bool) {
	back := setBack(rate, old, now)
	if back {
		old = Rewind(rate, old, old.At, now)
	}
	s, reply, keep = Decide(rate, epoch, old, now, r)
	return s, reply, keep || back && r.Op != driver.LimitPeek
}

// setBack reports that a key was used more than a window after now. The moment of a bucket may be that far ahead by
// what the key owes.
func setBack(rate limit.Rate, s limit.State, now int64) bool {
	if rate.Algorithm == limit.CalendarWindow {
		_, end := period(rate, now)
		return s.Known && s.At > end
	}
	return s.Known && !Bucket(rate) && s.At-now > int64(rate.Per)
}

// period is the window of a calendar that now is in: that of a key which is used for the first time.
func period(rate limit.Rate, now int64) (begin, end int64) {
	s, v, _ := limit.Reserve(rate, limit.State{}, now, 1)
	return s.At, v.Until
}

// Rewind moves what a key used by a clock that was at then to now.
func Rewind(rate limit.Rate, s limit.State, then, now int64) limit.State {
	by := then - now
	switch rate.Algorithm {
	case limit.FixedWindow, limit.SlidingWindow:
		per := int64(rate.Per)
		by = then/per*per - now/per*per // windows begin at whole multiples
	case limit.CalendarWindow:
		begin, _ := period(rate, now)
		by = s.At - begin
	}
	s = clone(s)
	if s.At -= by; s.Leased != 0 {
		s.Leased -= by
	}
	for i := range s.Log {
		s.Log[i].At -= by
	}
	return s
}

// Until is [limit.Until] of a state that [ByOneClock] has returned: of a window that has not begun, by the
// clock that was set back, it is the end of that one.
func Until(rate limit.Rate, s limit.State, now int64) (at int64, ends bool) {
	if !Bucket(rate) {
		now = max(now, s.At)
	}
	return limit.Until(rate, s, now)
}
