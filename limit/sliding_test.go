package limit_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

const slidingPer = int64(10 * time.Second)

// admitted is the most that passes in any time Per of so many windows, from the third on if it lasts, of requests
// with such gaps.
func admitted(count, windows int64, warm bool, gap func(now int64) int64) (most int64) {
	r := limit.Rate{Count: count, Per: time.Duration(slidingPer), Algorithm: limit.SlidingWindow}
	var s limit.State
	var times []int64
	const start = int64(1 << 50)
	for now := start; now < start+windows*slidingPer; now += gap(now) {
		var d limit.Decision
		if s, d = limit.Take(r, s, now, 1); d.Allowed && (!warm || now >= start+2*slidingPer) {
			times = append(times, now)
		}
	}
	return int64(densest(times, slidingPer))
}

// "Once traffic has lasted for two windows, at most Count pass in any time Per if it is steady, and
// about Count + 2·√Count at most if it is random: 1.06·Count of 1,000, 1.2·Count of 100."
func TestSlidingWindowOnLastingTraffic(t *testing.T) {
	for _, count := range []int64{2, 5, 10, 20, 50, 100, 300, 1000} {
		worst := int64(0)
		for i, load := range []float64{0.7, 0.9, 1, 1.05, 1.2, 1.5, 2, 3, 10} {
			mean := float64(slidingPer) / float64(count) / load
			if n := admitted(count, 12, true, func(int64) int64 { return int64(math.Ceil(mean)) }); n > count {
				t.Errorf("steady traffic at %.2f of the rate: %d of %d in one window", load, n, count)
			}
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			worst = max(worst, admitted(count, 50, true, func(int64) int64 { return 1 + int64(rnd.ExpFloat64()*mean) }))
		}
		if float64(worst) > float64(count)+2*math.Sqrt(float64(count)) {
			t.Errorf("random traffic: %d of %d in one window", worst, count)
		}
	}
}

// "Traffic made to deceive it, and the first rush after a pause, stay below 2·Count."
func TestSlidingWindowDeceived(t *testing.T) {
	const count = 1000
	// All at the end of a window, then as soon as the next lets them.
	deceive := func(now int64) int64 {
		switch at := now % slidingPer; {
		case (now/slidingPer)%2 == 1:
			return slidingPer / count / 10
		case at < slidingPer*99/100:
			return slidingPer*99/100 - at
		}
		return slidingPer / count / 200
	}
	if n := admitted(count, 20, false, deceive); n >= 2*count || n < 1900 {
		t.Errorf("traffic made to deceive: %d of %d in one window; the test should come near 2 and stay below", n, count)
	}
}
