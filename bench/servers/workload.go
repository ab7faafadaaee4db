package servers

import (
	"fmt"
	"time"
)

// figures are what one turn gave. What was not measured is 0.
type figures struct {
	rate           float64 // a second
	p50, p99       float64 // milliseconds
	server, client float64 // microseconds of processor time for each
	uneven         float64 // how often the one served most was, less the one served least
}

// A turn does one thing over and over for a while.
type turn func(d time.Duration) (figures, error)

// An entrant is one of several that do the same work.
type entrant struct {
	who  string
	turn turn
	seen []figures // of each round
}

// A workload is done by all its entrants in turns; ours is the first.
type workload struct {
	what     string
	slice    time.Duration
	crowd    bool // all callers want the same, so it matters how often each is served
	entrants []*entrant
}

// warmth is how long everybody runs at least before anything counts: connections
// are made, names created, and a virtual machine compiles what it runs.
const warmth = time.Second

// warm gives every entrant a turn that does not count.
func (w *workload) warm(scale float64) error {
	for _, e := range w.entrants {
		if _, err := e.turn(max(time.Duration(float64(w.slice)*scale), warmth)); err != nil {
			return fmt.Errorf("%s, %s: %w", w.what, e.who, err)
		}
	}
	return nil
}

// round gives every entrant its turn. The first one changes from round to round.
func (w *workload) round(n int, scale float64) error {
	for i := range w.entrants {
		e := w.entrants[(i+n)%len(w.entrants)]
		f, err := e.turn(time.Duration(float64(w.slice) * scale))
		if err != nil {
			return fmt.Errorf("%s, %s: %w", w.what, e.who, err)
		}
		if f.rate == 0 {
			return fmt.Errorf("%s, %s: nothing was done in its turn; give it longer ones by -bench.scale", w.what, e.who)
		}
		e.seen = append(e.seen, f)
	}
	return nil
}

// entrant finds one by name.
func (w *workload) entrant(who string) *entrant {
	for _, e := range w.entrants {
		if e.who == who {
			return e
		}
	}
	panic("servers: " + w.what + " has no entrant " + who) // a mistake in the list of claims
}

// all is one figure of every round.
func (e *entrant) all(of func(figures) float64) []float64 {
	v := make([]float64, len(e.seen))
	for i, f := range e.seen {
		v[i] = of(f)
	}
	return v
}
