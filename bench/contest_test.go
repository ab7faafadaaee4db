package bench

import (
	"math"
	"testing"
)

func TestRatio(t *testing.T) {
	c := contest{rates: [2][]float64{{20, 80}, {10, 20}}}
	if mid, low, high := c.ratio(); math.Abs(mid-math.Sqrt(8)) > 1e-9 || low >= mid || high <= mid {
		t.Errorf("ratios of 2 and 4: %v, %v – %v", mid, low, high)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{{0.9, 1, "kept"}, {0.8, 0.89, "**missed**"}, {0.8, 0.95, "not decided"}} {
		if got := judge(0.9, c.low, c.high); got != c.want {
			t.Errorf("%v – %v is %q, not %q", c.low, c.high, got, c.want)
		}
	}
}
