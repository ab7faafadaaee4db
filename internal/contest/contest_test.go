package contest_test

import (
	"math"
	"testing"

	"github.com/holdfast-io/holdfast/internal/contest"
)

func TestInterval(t *testing.T) {
	// Mean 3, standard deviation √2.5, of 5: 2.776 · √(2.5/5).
	m, half := contest.Interval([]float64{1, 2, 3, 4, 5})
	if m != 3 || math.Abs(half-2.776*math.Sqrt(0.5)) > 1e-9 {
		t.Errorf("interval of 1 to 5: %v ± %v", m, half)
	}
	if _, half := contest.Interval([]float64{1}); !math.IsInf(half, 1) {
		t.Errorf("one figure has the interval ± %v", half)
	}
}

func TestRatio(t *testing.T) {
	mid, low, high := contest.Ratio([]float64{20, 80}, []float64{10, 20})
	if math.Abs(mid-math.Sqrt(8)) > 1e-9 || low >= mid || high <= mid {
		t.Errorf("ratios of 2 and 4: %v, %v – %v", mid, low, high)
	}
}

func TestNum(t *testing.T) {
	for f, want := range map[float64]string{12345.6: "12346", 123.45: "123", 0.012345: "0.0123"} {
		if got := contest.Num(f); got != want {
			t.Errorf("%v is printed as %s, not %s", f, got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	if m := contest.Median([]float64{9, 1, 2}); m != 2 {
		t.Errorf("the median of 9, 1, 2 is %v", m)
	}
}

func TestReplace(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{"# A\n\nx\n", "# A\n\nx\n\n## P\n\nnew\n"},
		{"# A\n\nx\n\n## P\n\nold\n", "# A\n\nx\n\n## P\n\nnew\n"},
		{"# A\n\n## P\n\nold\n\n## Q\n\ny\n", "# A\n\n## P\n\nnew\n\n## Q\n\ny\n"},
	} {
		if got := contest.Replace(c.doc, "## P", "## P\n\nnew\n"); got != c.want {
			t.Errorf("%q became %q, not %q", c.doc, got, c.want)
		}
	}
}
