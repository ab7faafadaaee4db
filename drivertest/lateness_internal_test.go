package drivertest

import (
	"testing"
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
