package drivertest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestLateness: several short pauses close together are as bad as a long one,
// and those of long ago are not.
func TestLateness(t *testing.T) {
	const every, limit = 50 * time.Millisecond, 250 * time.Millisecond
	for _, c := range []struct {
		name  string
		each  time.Duration // how late a tick comes
		apart int           // ticks from one such to the next
		count int
		held  bool
	}{
		{"on time", 0, 1, 100, false},
		{"a little late for ever", 10 * time.Millisecond, 1, 1000, false},
		{"one long pause", 300 * time.Millisecond, 1, 1, true},
		{"short pauses close together", 100 * time.Millisecond, 5, 3, true},
		{"short pauses far apart", 200 * time.Millisecond, 20, 50, false},
	} {
		l, most := lateness{every: every}, time.Duration(0)
		for range c.count {
			for range c.apart - 1 {
				most = max(most, l.after(every))
			}
			most = max(most, l.after(every+c.each))
		}
		if held := most > limit; held != c.held {
			t.Errorf("%s: %s late at most; held up: %v", c.name, most, held)
		}
	}
}

// TestPausesOfTheBackend: a backend that answers late is held up, and so is one that does not
// answer at all before the case ends.
func TestPausesOfTheBackend(t *testing.T) {
	for after, held := range map[time.Duration]bool{10 * time.Millisecond: false, 400 * time.Millisecond: true, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			heldUp := pauses(250*time.Millisecond, func(ctx context.Context) {
				select {
				case <-time.After(after):
				case <-ctx.Done():
				}
			})
			time.Sleep(time.Second)
			if got := heldUp(); got != held {
				t.Errorf("answers after %s: held up: %v", after, got)
			}
		})
	}
}
