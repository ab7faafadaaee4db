package gather

import (
	"testing"
	"time"
)

// The re-checks of many waits fall on few instants, and these are spread over the time.
func TestNextCheck(t *testing.T) {
	g := New(Config{})
	const recheck = 30 * time.Second
	for _, now := range []time.Time{g.began, g.began.Add(time.Hour + 17*time.Millisecond)} {
		instants := map[time.Duration]int{}
		for range 10_000 {
			after := g.nextCheck(now, recheck).Sub(now)
			if after < recheck*89/100 || after > recheck*110/100 {
				t.Fatalf("a re-check after %s", after)
			}
			instants[after]++
		}
		if len(instants) < 18 || len(instants) > 22 {
			t.Errorf("10,000 re-checks fall on %d instants", len(instants))
		}
		for at, n := range instants {
			if n > 1000 {
				t.Errorf("%d of 10,000 re-checks are after %s", n, at)
			}
		}
	}
	if at := g.nextCheck(g.began, 1); at.Before(g.began) {
		t.Errorf("the shortest is %s", at.Sub(g.began))
	}
}
