package servers

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/contest"
)

// A measure is a figure to be judged.
type measure struct {
	name string
	of   func(figures) float64
	less bool // less is better
}

var (
	rate = measure{"a second", func(f figures) float64 { return f.rate }, false}
	p50  = measure{"p50, ms", func(f figures) float64 { return f.p50 }, true}
	cpu  = measure{"server's processor time, µs each", func(f figures) float64 { return f.server }, true}
)

// A claim is what ours shall reach beside a peer: the ratio of a measure. Without
// a floor or a goal (0) it is for information.
type claim struct {
	on          *workload
	peer        string
	measure     measure
	floor, goal float64
}

// verdict is a claim with what was seen.
type verdict struct {
	claim
	ours, theirs   float64 // means
	mid, low, high float64 // ours to theirs
}

func (c claim) judge() verdict {
	ours, theirs := c.on.entrants[0].all(c.measure.of), c.on.entrant(c.peer).all(c.measure.of)
	v := verdict{claim: c, ours: contest.Mean(ours), theirs: contest.Mean(theirs)}
	v.mid, v.low, v.high = contest.Ratio(ours, theirs)
	return v
}

// better is the ratio with its interval, turned so that more is better.
func (v *verdict) better() (mid, low, high float64) {
	if v.measure.less {
		return 1 / v.mid, 1 / v.high, 1 / v.low
	}
	return v.mid, v.low, v.high
}

// against tells whether a bound was kept, which the interval has to show.
func (v *verdict) against(bound float64) string {
	if bound == 0 {
		return "–"
	}
	_, low, high := v.better()
	sign, least := "≥ ", bound
	if v.measure.less {
		sign, least = "≤ ", 1/bound
	}
	return sign + contest.Num(bound) + ": " + judge(least, low, high)
}

func judge(least, low, high float64) string {
	switch {
	case low >= least:
		return "kept"
	case high < least:
		return "**missed**"
	}
	return "not decided"
}

const claimHead = "| what | measure | beside | ours | theirs | ratio | 95 % | floor | goal |\n|---|---|---|---|---|---|---|---|---|\n"

func (v *verdict) row() string {
	n := contest.Num
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s – %s | %s | %s |\n", v.on.what, v.measure.name, v.peer,
		n(v.ours), n(v.theirs), n(v.mid), n(v.low), n(v.high), v.against(v.floor), v.against(v.goal))
}

// A limit is what ours shall keep by itself.
type limit struct {
	what  string
	most  float64 // 0: for information
	value float64
}

const limitHead = "| what | limit | seen | |\n|---|---|---|---|\n"

func (l limit) row() string {
	bound, word := "–", ""
	if l.most > 0 {
		bound, word = "≤ "+contest.Num(l.most), "kept"
		if l.value > l.most {
			word = "**missed**"
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", l.what, bound, contest.Num(l.value), word)
}
