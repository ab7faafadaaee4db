package world

import (
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/internal/core"
)

// marks are what calls leave in the truth: each of those that a call is to leave is
// there once if the call was answered as done, never if it was not done, and at most
// once if nobody knows.
type marks struct {
	w *World

	mu   sync.Mutex
	all  map[trace]*mark
	next int
}

// trace is what an event shows of the call that made it.
type trace struct {
	kind core.EventKind
	verb core.Verb
	name string
	mark string // a value, or a number; "": calls on the name are counted together
}

// mark is what is known of the calls with one trace.
type mark struct {
	who              string
	done, maybe, saw int
}

func newMarks(w *World) *marks { return &marks{w: w, all: map[trace]*mark{}} }

// unique is a value that no other call writes.
func (m *marks) unique() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	return m.next
}

// expect notes a call's answer.
func (m *marks) expect(t trace, c *call, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.all[t]
	if x == nil {
		x = &mark{who: c.protocol + " " + c.command}
		m.all[t] = x
	}
	switch a {
	case done:
		x.done++
	case unknown:
		x.maybe++
	}
}

// traceOf is the trace that an event shows.
func traceOf(e *core.Event) trace {
	t := trace{kind: e.Kind, verb: e.Verb, name: e.Name}
	switch e.Kind {
	case core.EventKV:
		if e.KeyChange != nil && e.Verb == core.VerbPut {
			t.mark = string(e.Key.Value)
		}
	case core.EventCounter:
		t.mark = fmt.Sprint(int64(e.Number))
	case core.EventElection:
		if e.Verb == core.VerbProclaimed {
			t.mark = string(e.Value)
		}
	}
	return t
}

// judge compares the marks with the truth.
func (m *marks) judge(log []core.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range log {
		if x := m.all[traceOf(&log[i])]; x != nil {
			x.saw++
		}
	}
	for t, x := range m.all {
		if x.saw < x.done || x.saw > x.done+x.maybe {
			m.w.violate("%s %s, mark %q: %d answered as done, %d as unknown, took effect %d times", x.who, t.name, t.mark, x.done, x.maybe, x.saw)
		}
	}
}
