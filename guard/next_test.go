package guard_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// The next change of a window is the first minute at which it decides otherwise: looked
// for minute by minute. Nothing changes before, and a window without a change has none.
func TestNextChange(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		w := guard.Window{From: time.Duration(rnd.IntN(48)) * 30 * time.Minute, To: time.Duration(rnd.IntN(48)) * 30 * time.Minute, Offset: time.Duration(rnd.IntN(25)-12) * time.Hour}
		for d := range time.Saturday + 1 {
			if rnd.IntN(3) == 0 {
				w.Days = append(w.Days, d)
			}
		}
		c := guard.Any(guard.FileExists("x"), guard.Not(guard.During(w)))
		now := time.Date(2026, 11, 1+rnd.IntN(28), rnd.IntN(24), rnd.IntN(60), 0, 0, time.UTC)
		within := func(at time.Time) bool {
			leaf := guard.During(w)
			return leaf.Evaluate(guard.Inputs{leaf.Input(): {Number: at.UnixNano()}}).Outcome == guard.Passed
		}
		var want time.Time
		for at, i := now, 0; i < 8*24*60; i++ {
			if at = at.Add(time.Minute); within(at) != within(now) {
				want = at
				break
			}
		}
		if got := c.NextChange(now); !got.Equal(want) {
			t.Fatalf("seed %d: %s at %s changes at %s, want %s", seed, w, now, got, want)
		}
	}
	c := guard.LockFree("x")
	if got := c.NextChange(time.Now()); !got.IsZero() {
		t.Errorf("a condition without windows changes at %s", got)
	}
}
