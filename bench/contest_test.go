package bench

import (
	"math"
	"testing"
)

func TestInterval(t *testing.T) {
	// Mean 3, standard deviation √2.5, of 5: 2.776 · √(2.5/5).
	m, half := interval([]float64{1, 2, 3, 4, 5})
	if m != 3 || math.Abs(half-2.776*math.Sqrt(0.5)) > 1e-9 {
		t.Errorf("interval of 1 to 5: %v ± %v", m, half)
	}
	if _, half := interval([]float64{1}); !math.IsInf(half, 1) {
		t.Errorf("one figure has the interval ± %v", half)
	}
}

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

func TestReplace(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{"# A\n\nx\n", "# A\n\nx\n\n## P\n\nnew\n"},
		{"# A\n\nx\n\n## P\n\nold\n", "# A\n\nx\n\n## P\n\nnew\n"},
		{"# A\n\n## P\n\nold\n\n## Q\n\ny\n", "# A\n\n## P\n\nnew\n\n## Q\n\ny\n"},
	} {
		if got := replace(c.doc, "## P", "## P\n\nnew\n"); got != c.want {
			t.Errorf("%q became %q, not %q", c.doc, got, c.want)
		}
	}
}
