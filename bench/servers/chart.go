package servers

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/holdfast-io/holdfast/internal/contest"
)

// Sizes of the chart, in pixels.
const (
	chartWide  = 900
	chartLeft  = 400 // where the scale begins
	chartRight = 60
	chartTop   = 60
	chartRow   = 24
)

// chart draws how many times better ours is than each peer, on a logarithmic
// scale: a bar from 1 to the ratio, its interval, and marks at floor and goal.
func chart(verdicts []verdict) string {
	s := span(verdicts)
	var b strings.Builder
	tall := chartTop + chartRow*len(verdicts) + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		chartWide, tall, chartWide, tall)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", chartWide, tall)
	b.WriteString(`<text x="10" y="20" font-size="14">How many times better Holdfast's server is than the peer (right of 1: better)</text>` + "\n" +
		`<text x="10" y="38" fill="#666">bar: ratio · line: 95 % interval · red mark: floor · green mark: goal</text>` + "\n")
	b.WriteString(s.grid(tall))
	for i := range verdicts {
		b.WriteString(s.bar(&verdicts[i], chartTop+chartRow*i))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// scale is the powers of ten from which and to which the chart goes.
type scale struct{ from, to float64 }

// span is a scale on which everything can be seen.
func span(verdicts []verdict) scale {
	least, most := 1.0, 1.0
	for i := range verdicts {
		v := &verdicts[i]
		mid, _, _ := v.better()
		for _, x := range []float64{mid, v.turned(v.floor), v.turned(v.goal)} {
			if x > 0 {
				least, most = min(least, x), max(most, x)
			}
		}
	}
	return scale{math.Floor(math.Log10(least)), max(math.Ceil(math.Log10(most)), 1)}
}

// turned is a bound for what better gives; 0 stays.
func (v *verdict) turned(bound float64) float64 {
	if bound > 0 && v.measure.less {
		return 1 / bound
	}
	return bound
}

// x is where a ratio is on the scale; what is beyond is at its end.
func (s scale) x(ratio float64) float64 {
	at := (math.Log10(ratio) - s.from) / (s.to - s.from)
	return chartLeft + min(max(at, 0), 1)*(chartWide-chartLeft-chartRight)
}

func (s scale) grid(tall int) string {
	var b strings.Builder
	for p := s.from; p <= s.to; p++ {
		x, colour := s.x(math.Pow(10, p)), "#ddd"
		if p == 0 {
			colour = "#000"
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, chartTop-6, x, tall-16, colour, x, tall-4, contest.Num(math.Pow(10, p)))
	}
	return b.String()
}

// bar is one verdict; y is its upper edge.
func (s scale) bar(v *verdict, y int) string {
	var b strings.Builder
	mid, low, high := v.better()
	from, to := min(s.x(1), s.x(mid)), max(s.x(1), s.x(mid))
	fmt.Fprintf(&b, `<text x="10" y="%d">%s</text>`, y+12, html.EscapeString(v.label()))
	fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="10" fill="#69c"/>`, from, y+3, to-from)
	fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#000"/>`, s.x(low), y+8, s.x(high), y+8)
	fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`, max(to, s.x(high))+5, y+12, contest.Num(mid))
	for _, mark := range []struct {
		at     float64
		colour string
	}{{v.turned(v.floor), "#c00"}, {v.turned(v.goal), "#090"}} {
		if mark.at > 0 {
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="2"/>`, s.x(mark.at), y, s.x(mark.at), y+16, mark.colour)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

func (v *verdict) label() string {
	what := v.on.what
	if v.measure.name == cpu.name {
		what += ", processor time"
	}
	return what + ": " + v.peer
}
