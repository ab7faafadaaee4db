package servers

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// seen is a workload of ours and a peer with these figures, round by round.
func seen(ours, theirs []figures) *workload {
	return &workload{what: "work", entrants: []*entrant{{who: mine, seen: ours}, {who: "peer", seen: theirs}}}
}

const mine = "ours"

func TestVerdictOfARate(t *testing.T) {
	w := seen([]figures{{rate: 400}, {rate: 404}, {rate: 396}}, []figures{{rate: 100}, {rate: 100}, {rate: 100}})
	v := claim{on: w, peer: "peer", measure: rate, floor: 3, goal: 10}.judge()
	if math.Abs(v.mid-4) > 0.01 || v.ours != 400 || v.theirs != 100 {
		t.Errorf("4 times as fast is %+v", v)
	}
	if got := v.against(v.floor); got != "≥ 3: kept" {
		t.Errorf("the floor: %s", got)
	}
	if got := v.against(v.goal); got != "≥ 10: **missed**" {
		t.Errorf("the goal: %s", got)
	}
	if got := v.against(4); got != "≥ 4: not decided" {
		t.Errorf("a bound within the interval: %s", got)
	}
}

// Of a time less is better: the bound is an upper one.
func TestVerdictOfATime(t *testing.T) {
	w := seen([]figures{{p50: 3}, {p50: 3.1}, {p50: 2.9}}, []figures{{p50: 10}, {p50: 10}, {p50: 10}})
	v := claim{on: w, peer: "peer", measure: p50, floor: 0.4, goal: 0.1}.judge()
	for bound, want := range map[float64]string{0.4: "≤ 0.4: kept", 0.1: "≤ 0.1: **missed**", 0.3: "≤ 0.3: not decided", 0: "–"} {
		if got := v.against(bound); got != want {
			t.Errorf("0.3 against %v: %s, not %s", bound, got, want)
		}
	}
	if mid, low, high := v.better(); low >= mid || high <= mid || math.Abs(mid-10.0/3) > 0.05 {
		t.Errorf("a third of the time is %v times better, %v – %v", mid, low, high)
	}
	want := "| work | p50, ms | peer | 3 | 10 | 0.3 | "
	if row := v.row(); !strings.HasPrefix(row, want) || !strings.HasSuffix(row, " | ≤ 0.4: kept | ≤ 0.1: **missed** |\n") {
		t.Errorf("the row is %s", row)
	}
}

func TestLimit(t *testing.T) {
	for l, want := range map[limit]string{
		{"x", 600, 600}: "| x | ≤ 600 | 600 | kept |\n",
		{"x", 600, 601}: "| x | ≤ 600 | 601 | **missed** |\n",
		{"x", 0, 601}:   "| x | – | 601 |  |\n",
	} {
		if got := l.row(); got != want {
			t.Errorf("%+v is %s", l, got)
		}
	}
}

func TestRows(t *testing.T) {
	w := seen([]figures{{rate: 1, p50: 5, uneven: 1}, {rate: 2, p50: 6, uneven: 1}, {rate: 6, p50: 900, uneven: 9}}, []figures{{rate: 7, server: 8, client: 9}})
	want := "| work | ours | 3 | 6 | – | – | – | – |\n| work | peer | 7 | – | – | 8 | 9 | – |\n"
	if got := w.rows(); got != want {
		t.Errorf("rows:\n%swant:\n%s", got, want)
	}
	w.crowd = true
	if got := w.rows(); !strings.Contains(got, "| work | ours | 3 | 6 | – | – | – | 1 |\n") {
		t.Errorf("rows of a crowd:\n%s", got)
	}
}

// The first entrant changes, and a turn without anything done is an error, not a figure.
func TestRound(t *testing.T) {
	var order []string
	enter := func(who string, f figures, err error) *entrant {
		return &entrant{who: who, turn: func(d time.Duration) (figures, error) {
			order = append(order, who+" "+d.String())
			return f, err
		}}
	}
	w := &workload{what: "work", slice: 10 * time.Second, entrants: []*entrant{enter("a", figures{rate: 1}, nil), enter("b", figures{rate: 2}, nil)}}
	for n := range 2 {
		if err := w.round(n, 0.5); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"a 5s", "b 5s", "b 5s", "a 5s"}; !slices.Equal(order, want) {
		t.Errorf("turns were %q", order)
	}
	if err := w.warm(0.01); err != nil || !slices.Equal(order[4:], []string{"a 1s", "b 1s"}) || len(w.entrants[0].seen) != 2 {
		t.Errorf("warming: %v, turns %q, %d counted", err, order[4:], len(w.entrants[0].seen))
	}
	w.entrants[1] = enter("b", figures{}, nil)
	if err := w.round(0, 1); err == nil || !strings.Contains(err.Error(), "work, b: nothing was done") {
		t.Errorf("nothing done: %v", err)
	}
	broken := errors.New("broken")
	w.entrants[1] = enter("b", figures{}, broken)
	if err := w.round(0, 1); !errors.Is(err, broken) {
		t.Errorf("a turn that fails: %v", err)
	}
}
