package limits_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/limit"
)

var windows = []limit.Rate{
	{Count: 3, Per: time.Minute, Algorithm: limit.FixedWindow},
	{Count: 3, Per: time.Minute, Algorithm: limit.SlidingWindow},
	{Count: 3, Per: time.Minute, Algorithm: limit.SlidingLog},
	{Count: 3, Every: limit.Hour, Algorithm: limit.CalendarWindow},
}

// engine is a key at an engine with a clock of its own.
type engine struct {
	rate  limit.Rate
	state limit.State
	now   int64
}

func (e *engine) ask(op driver.LimitOp, cost int64) limit.Decision {
	s, reply, keep := limits.ByOneClock(e.rate, 1, e.state, e.now, &driver.LimitRequest{Op: op, Cost: cost})
	if keep {
		e.state = s
	}
	return reply.Decision
}

// takes asks for one until it has so many, as a caller does that waits as long as it is told, and tells how
// long that took.
func (e *engine) takes(t *testing.T, n int) time.Duration {
	start := e.now
	for asked := 0; n > 0; asked++ {
		d := e.ask(driver.LimitTake, 1)
		if d.Allowed {
			n--
			continue
		}
		if asked > 20 || d.RetryAfter <= 0 {
			t.Fatalf("%s: after %s it is answered %+v", e.rate.Algorithm, time.Duration(e.now-start), d)
		}
		e.now += int64(d.RetryAfter)
	}
	return time.Duration(e.now - start)
}

// An engine with a clock that was in 2099, or less far ahead, and is right again: no key is closed for longer than three
// windows, and none is open for more than its count.
func TestClockSetBack(t *testing.T) {
	right := time.Date(2026, 5, 1, 12, 0, 30, 0, time.UTC)
	for _, rate := range windows {
		per := rate.Per
		if per == 0 {
			per = time.Hour
		}
		for _, ahead := range []time.Duration{per / 3, per, 2 * per, 3*per + 1, time.Hour, 73 * 365 * 24 * time.Hour} {
			e := &engine{rate: rate, now: right.Add(ahead).UnixNano()}
			e.takes(t, 3)
			if e.now = right.UnixNano(); e.ask(driver.LimitPeek, 1).Allowed {
				t.Errorf("%s: set back by %s, a fourth of 3 is allowed", rate.Algorithm, ahead)
			}
			if took := e.takes(t, 3); took > 3*per {
				t.Errorf("%s: set back by %s, a key is closed for %s", rate.Algorithm, ahead, took)
			}
		}
	}
}

// What was refused after the clock was set back is refused by what was used, once: not anew in each window.
func TestClockSetBackOnce(t *testing.T) {
	for _, rate := range windows {
		now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixNano()
		e := &engine{rate: rate, now: now + int64(100*time.Hour)}
		e.takes(t, 3)
		per := int64(rate.Per)
		if rate.Every != 0 {
			per = int64(time.Hour)
		}
		for e.now = now; e.ask(driver.LimitTake, 1).Allowed == false; e.now += per / 6 {
			if e.now-now > 2*per {
				t.Fatalf("%s: two windows later it is refused", rate.Algorithm)
			}
		}
	}
}

// A key that was used in a window which has not begun, by a clock that was set back, is remembered until that ends.
func TestUntilSetBack(t *testing.T) {
	for _, rate := range []limit.Rate{windows[0], windows[1], windows[3]} {
		begin := time.Date(2026, 5, 1, 13, 0, 0, 0, time.UTC).UnixNano()
		e := &engine{rate: rate, now: begin}
		e.ask(driver.LimitTake, 1)
		e.now = begin - int64(10*time.Second)
		e.ask(driver.LimitTake, 1)
		until, ends := limits.Until(rate, e.state, e.now)
		if !ends || !limit.Idle(rate, e.state, until) || limit.Idle(rate, e.state, until-1) {
			t.Errorf("%s: %+v is remembered for %s", rate.Algorithm, e.state, time.Duration(until-e.now))
		}
	}
}
