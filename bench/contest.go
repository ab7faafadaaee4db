package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A side does one thing over and over for a while and tells how often a second
// it could.
type side func(d time.Duration) (rate float64, err error)

// A contest is ours against a peer's, in turns.
type contest struct {
	what  string
	peer  string
	least float64 // the ratio that ours must reach; 0: none is asked
	slice time.Duration

	ours, theirs side
	rates        [2][]float64
	micros       [2][]float64 // of processor time for each, by program and server
}

// round has both sides run once; who begins changes from round to round. spent
// is the processor time used so far.
func (c *contest) round(n int, scale float64, spent func() time.Duration) error {
	sides := [2]side{c.ours, c.theirs}
	d := time.Duration(float64(c.slice) * scale)
	for i := range sides {
		who := (i + n) % 2
		before := spent()
		rate, err := sides[who](d)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.what, [2]string{"holdfast", c.peer}[who], err)
		}
		rate = max(rate, 1/d.Seconds()) // one that did nothing was about to
		c.rates[who] = append(c.rates[who], rate)
		c.micros[who] = append(c.micros[who], float64((spent()-before).Microseconds())/(rate*d.Seconds()))
	}
	return nil
}

// ratio is ours to theirs, with the interval in which it lies with 95 %.
func (c *contest) ratio() (mid, low, high float64) {
	logs := make([]float64, len(c.rates[0]))
	for i := range logs {
		logs[i] = math.Log(c.rates[0][i] / c.rates[1][i])
	}
	m, half := interval(logs)
	return math.Exp(m), math.Exp(m - half), math.Exp(m + half)
}

// row is the contest as a line of the table.
func (c *contest) row() string {
	mid, low, high := c.ratio()
	goal, verdict := "–", ""
	if c.least > 0 {
		goal, verdict = "≥ "+num(c.least), judge(c.least, low, high)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s – %s | %s | %s | %s |\n", c.what, c.peer, goal,
		num(mean(c.rates[0])), num(mean(c.rates[1])), num(mid), num(low), num(high), verdict, num(median(c.micros[0])), num(median(c.micros[1])))
}

// judge compares an interval with a goal.
func judge(least, low, high float64) string {
	switch {
	case low >= least:
		return "kept"
	case high < least:
		return "**missed**"
	}
	return "not decided"
}

const tableHead = "| what | peer | goal | ours/s | peer's/s | ratio | 95 % | | ours, µs | peer's, µs |\n|---|---|---|---|---|---|---|---|---|---|\n"

// num prints three digits, and thousands in full.
func num(f float64) string {
	if f >= 1000 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}

// interval is the mean of v and half the width of its 95 % interval, by
// Student's distribution.
func interval(v []float64) (m, half float64) {
	m = mean(v)
	if len(v) < 2 {
		return m, math.Inf(1)
	}
	var squares float64
	for _, x := range v {
		squares += (x - m) * (x - m)
	}
	n := float64(len(v))
	return m, student(len(v)-1) * math.Sqrt(squares/(n-1)/n)
}

// student is the 97.5 % quantile of Student's distribution.
func student(freedom int) float64 {
	table := []float64{12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
		2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	return 2.042 // at 30; it goes down to 1.96, so the interval is a little too wide
}

// replace puts a section in the place of the one with the same heading, or at
// the end. A section goes from its heading to the next "## ".
func replace(doc, heading, section string) string {
	before, rest, found := strings.Cut(doc, heading+"\n")
	if !found {
		return strings.TrimRight(doc, "\n") + "\n\n" + section
	}
	_, after, more := strings.Cut(rest, "\n## ")
	if !more {
		return before + section
	}
	return before + section + "\n## " + after
}
