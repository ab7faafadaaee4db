package bench

import (
	"fmt"
	"time"

	stat "github.com/holdfast-io/holdfast/internal/contest"
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

// round has both sides run once; the side that begins changes from round to round. spent
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
func (c *contest) ratio() (mid, low, high float64) { return stat.Ratio(c.rates[0], c.rates[1]) }

// row is the contest as a line of the table.
func (c *contest) row() string {
	mid, low, high := c.ratio()
	goal, verdict := "–", ""
	if c.least > 0 {
		goal, verdict = "≥ "+stat.Num(c.least), judge(c.least, low, high)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s – %s | %s | %s | %s |\n", c.what, c.peer, goal,
		stat.Num(stat.Mean(c.rates[0])), stat.Num(stat.Mean(c.rates[1])), stat.Num(mid), stat.Num(low), stat.Num(high), verdict, stat.Num(stat.Median(c.micros[0])), stat.Num(stat.Median(c.micros[1])))
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
