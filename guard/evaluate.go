package guard

import (
	"slices"
	"time"
)

// Outcome is the answer of a condition. NeedsInput and Error are both unknown; where
// they meet, Error is told.
type Outcome uint8

// The outcomes.
const (
	Passed Outcome = iota
	Failed
	NeedsInput
	Error
)

// String is the outcome in messages and files.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

var outcomeNames = [...]string{"passed", "failed", "needs_input", "error"}

// Evaluate decides by the facts. A condition that passed has no reasons and costs no
// memory; [Condition.Explain] has them in any case. Of one that [Condition.Check] refuses, a not that has
// no part or several, and what is deeper than [MaxDepth], is an Error.
func (c *Condition) Evaluate(in Inputs) Result {
	if o := c.outcome(in, 0); o == Passed {
		return Result{Outcome: o}
	}
	return c.Explain(in)
}

func (c *Condition) outcome(in Inputs, depth int) Outcome {
	switch {
	case c.tooDeep(depth) || c.badNot():
		return Error
	case c.Kind == KindNot:
		return c.Of[0].outcome(in, depth+1).not()
	case c.Kind == KindAll:
		return c.fold(in, depth, Passed, Failed)
	case c.Kind == KindAny:
		return c.fold(in, depth, Failed, Passed)
	}
	return c.leafOutcome(in)
}

func (c *Condition) leafOutcome(in Inputs) Outcome {
	f, ok := in[c.Input()]
	switch {
	case !ok:
		return NeedsInput
	case f.Err != "" || c.unlimited(&f):
		return Error
	case c.holds(&f):
		return Passed
	}
	return Failed
}

// fold is all and any: one part that is decisive decides; without one an error, then
// a missing input, leaves it open; of nothing it is neutral.
func (c *Condition) fold(in Inputs, depth int, neutral, decisive Outcome) Outcome {
	result := neutral
	for i := range c.Of {
		switch o := c.Of[i].outcome(in, depth+1); o {
		case decisive:
			return decisive
		case Error:
			result = Error
		case NeedsInput:
			if result != Error {
				result = NeedsInput
			}
		}
	}
	return result
}

func (o Outcome) not() Outcome {
	switch o {
	case Passed:
		return Failed
	case Failed:
		return Passed
	}
	return o
}

// holds decides a leaf with a known fact.
func (c *Condition) holds(f *Fact) bool {
	switch c.Kind {
	case KindLockFree, KindBranchNotExists, KindFileNotExists:
		return !f.Is
	case KindLockHeldBy:
		return f.Is && (f.Text == c.Other || slices.Contains(f.Others, c.Other))
	case KindSemaphoreAvailable, KindLimitAvailable:
		return f.Number >= c.Amount || f.Unused && max(c.Limit, 1) >= c.Amount
	case KindIssuesComplete:
		return f.Number == 0 && f.Total > 0
	case KindIssueStatus:
		return f.Text == c.Other
	case KindCounter:
		return compare(f.Number, c.Is, c.Amount)
	case KindLeader:
		return f.Is && (c.Other == "" || f.Text == c.Other)
	case KindKey:
		return c.keyHolds(f)
	case KindTimeWindow:
		return c.Window.has(f.Number)
	}
	return f.Is
}

// unlimited: how much is free is not known, since nobody has used the semaphore yet and the leaf
// does not say what its limit will be.
func (c *Condition) unlimited(f *Fact) bool { return f.Unused && c.Limit == 0 && c.Amount > 1 }

func compare(n int64, is Relation, with int64) bool {
	switch is {
	case NotEqual:
		return n != with
	case AtLeast:
		return n >= with
	case AtMost:
		return n <= with
	}
	return n == with
}

func (c *Condition) keyHolds(f *Fact) bool {
	switch c.Is {
	case Absent:
		return !f.Is
	case Equal:
		return f.Is && f.Text == c.Other
	}
	return f.Is
}

// has reports that the moment, in nanoseconds since 1970, is within the window.
func (w *Window) has(ns int64) bool {
	t := time.Unix(0, ns).UTC().Add(w.Offset)
	midnight := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	at, day := t.Sub(midnight), t.Weekday()
	switch {
	case w.From == w.To:
		return w.on(day)
	case w.From < w.To:
		return at >= w.From && at < w.To && w.on(day)
	case at >= w.From:
		return w.on(day)
	}
	return at < w.To && w.on((day+6)%7)
}

func (w *Window) on(d time.Weekday) bool { return len(w.Days) == 0 || slices.Contains(w.Days, d) }
