package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

// Units of simulated time, in nanoseconds.
const (
	microsecond = int64(time.Microsecond)
	millisecond = int64(time.Millisecond)
	second      = int64(time.Second)
)

// world is simulated time and chance.
type world struct {
	now    int64
	rng    *rand.Rand
	events eventHeap
	order  uint64
	trace  uint64 // hash of everything that happened
	steps  int
	failed string
	res    Result
}

// event is something that will happen.
type event struct {
	at    int64
	order uint64
	do    func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// after does something d nanoseconds from now.
func (w *world) after(d int64, do func()) { w.at(w.now+max(d, 0), do) }

func (w *world) at(t int64, do func()) {
	w.order++
	heap.Push(&w.events, event{max(t, w.now), w.order, do})
}

// run lets things happen until a time, or until a promise is broken.
func (w *world) run(until int64) {
	for len(w.events) > 0 && w.events[0].at <= until && w.failed == "" {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.steps++
		e.do()
	}
	if w.failed == "" {
		w.now = until
	}
}

// note mixes what happened into the trace.
func (w *world) note(values ...uint64) {
	for _, v := range values {
		w.trace = (w.trace ^ v) * 0x9e3779b97f4a7c15
		w.trace ^= w.trace >> 29
	}
}

// violate ends the run: a promise is broken.
func (w *world) violate(format string, args ...any) {
	if w.failed == "" {
		w.failed = fmt.Sprintf("at %s: ", time.Duration(w.now)) + fmt.Sprintf(format, args...)
	}
}

// chance is true with probability p.
func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// between draws from [lo, hi).
func (w *world) between(lo, hi int64) int64 { return lo + w.rng.Int64N(hi-lo) }

// clock is somebody's elapsed time: true time at a rate of its own.
type clock struct{ ppm int64 }

// clock draws a rate within the bound that the product allows, often at its
// ends.
func (w *world) clock() clock {
	const bound = 10_000 // one percent
	switch w.rng.IntN(3) {
	case 0:
		return clock{bound}
	case 1:
		return clock{-bound}
	}
	return clock{w.between(-bound, bound+1)}
}

func (c clock) local(t int64) int64 { return t + t/1_000_000*c.ppm + t%1_000_000*c.ppm/1_000_000 }

// true1 is a true time at which the local time is reached, at most a
// microsecond after the first one.
func (c clock) toTrueTime(local int64) int64 {
	t := local - local/(1_000_000+c.ppm)*c.ppm
	for c.local(t) < local {
		t += local - c.local(t) + 1
	}
	return t
}
