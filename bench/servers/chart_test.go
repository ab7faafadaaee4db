package servers

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func TestChart(t *testing.T) {
	w := seen([]figures{{rate: 50, p50: 5}, {rate: 50, p50: 5}}, []figures{{rate: 10, p50: 1}, {rate: 10, p50: 1}})
	w.what = "a <b> & c"
	verdicts := []verdict{
		claim{on: w, peer: "peer", measure: rate, floor: 2, goal: 100}.judge(),
		claim{on: w, peer: "peer", measure: p50}.judge(),
	}
	text := chart(verdicts)
	shapes := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			shapes[e.Name.Local]++
		}
	}
	// The background and two bars; powers of ten from 0.1 to 100, two intervals,
	// and the marks of floor and goal.
	if shapes["rect"] != 3 || shapes["line"] != 4+2+2 {
		t.Errorf("shapes %v of\n%s", shapes, text)
	}
	if !strings.Contains(text, "a &lt;b&gt; &amp; c: peer") || !strings.Contains(text, ">5</text>") || !strings.Contains(text, ">0.2</text>") {
		t.Errorf("a label or a ratio is missing in\n%s", text)
	}
}

// Five times better is right of 1, five times the time left of it.
func TestScale(t *testing.T) {
	w := seen([]figures{{rate: 50, p50: 5}}, []figures{{rate: 10, p50: 1}})
	fast, slow := claim{on: w, peer: "peer", measure: rate, goal: 10}.judge(), claim{on: w, peer: "peer", measure: p50}.judge()
	s := span([]verdict{fast, slow})
	if s != (scale{-1, 1}) {
		t.Errorf("the scale is %v", s)
	}
	if fast.turned(10) != 10 || slow.turned(0.4) != 2.5 || slow.turned(0) != 0 {
		t.Errorf("bounds are marked at %v, %v, %v", fast.turned(10), slow.turned(0.4), slow.turned(0))
	}
	middle := (s.x(0.1) + s.x(10)) / 2
	right, _, _ := fast.better()
	left, _, _ := slow.better()
	if s.x(1) != middle || s.x(right) <= middle || s.x(left) >= middle || s.x(0.1) != chartLeft || s.x(1e-9) != chartLeft || s.x(1e9) != chartWide-chartRight {
		t.Errorf("1 is at %v, 5 at %v, a fifth at %v", s.x(1), s.x(right), s.x(left))
	}
}
