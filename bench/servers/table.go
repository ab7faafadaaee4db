package servers

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/internal/contest"
)

const figureHead = "| what | who | a second | p50, ms | p99, ms | server, µs each | program, µs each | most less least served |\n|---|---|---|---|---|---|---|---|\n"

// rows are everything that was measured of a workload: the mean of the rates,
// the median of everything else.
func (w *workload) rows() string {
	var text strings.Builder
	for _, e := range w.entrants {
		mid := func(of func(figures) float64) string { return known(contest.Median(e.all(of))) }
		uneven := "–"
		if w.crowd {
			uneven = contest.Num(contest.Median(e.all(func(f figures) float64 { return f.uneven })))
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", w.what, e.who, contest.Num(contest.Mean(e.all(rate.of))),
			mid(p50.of), mid(func(f figures) float64 { return f.p99 }), mid(cpu.of), mid(func(f figures) float64 { return f.client }), uneven)
	}
	return text.String()
}

// known prints what was measured.
func known(f float64) string {
	if f == 0 {
		return "–"
	}
	return contest.Num(f)
}
