package guard

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Result is an outcome with the reasons for it.
type Result struct {
	Outcome Outcome
	// Reasons has one for every leaf, in the order of the condition.
	Reasons []Reason
}

// Reason tells about one leaf.
type Reason struct {
	// Path is where the leaf stands: all[1].not.file_exists.
	Path    string
	Kind    Kind
	Outcome Outcome
	// Decides: the leaf stands in the way of Passed. It is not as wanted, which under a Not is
	// a leaf that passed, and neither is any group that it is a part of: beside a part of an
	// any that passed, the others decide nothing.
	Decides bool
	// Want and Got say what the leaf asks for and what was found.
	Want, Got string
	// Since is when it became so; zero: not known.
	Since time.Time
	// Revision is that of the fact; 0: it has none.
	Revision uint64
	// Source is where the fact was read.
	Source string
	// Hint says what would help.
	Hint string

	spare bool // not as wanted, and it decides nothing
}

// Explain decides as [Condition.Evaluate] does and gives a reason for every leaf,
// whatever the outcome.
func (c *Condition) Explain(in Inputs) Result {
	r := Result{Outcome: c.outcome(in, 0)}
	c.explain(in, 0, "", Passed, true, &r.Reasons)
	return r
}

// explain adds the reasons of c, which is wanted to be want (Passed or Failed). It matters if
// no group that it is a part of is as wanted already.
func (c *Condition) explain(in Inputs, depth int, path string, want Outcome, matters bool, list *[]Reason) {
	at := join(path, c.Kind)
	matters = matters && c.outcome(in, depth) != want
	if err := c.checkShape(at, depth); err != nil {
		*list = append(*list, Reason{Path: at, Kind: c.Kind, Outcome: Error, Decides: matters, spare: !matters, Want: string(c.Kind), Got: err.Error(), Hint: "correct the condition"})
		return
	}
	switch c.Kind {
	case KindNot:
		c.Of[0].explain(in, depth+1, at, want.not(), matters, list)
		return
	case KindAll, KindAny:
		for i := range c.Of {
			c.Of[i].explain(in, depth+1, part(at, c.Kind, i), want, matters, list)
		}
		return
	}
	*list = append(*list, c.reason(in, at, want, matters))
}

func (c *Condition) reason(in Inputs, at string, want Outcome, matters bool) Reason {
	input := c.Input()
	f, ok := in[input]
	r := Reason{Path: at, Kind: c.Kind, Outcome: c.leafOutcome(in), Since: f.Since, Revision: f.Revision, Source: f.From, Want: c.wants(want)}
	r.Decides, r.spare = matters, !matters && r.Outcome != want
	if r.Source == "" {
		r.Source = string(input.Source)
	}
	switch {
	case !ok:
		r.Got, r.Hint = "not gathered", fmt.Sprintf("give the input %s %q", input.Source, input.Name)
	case f.Err != "":
		r.Got, r.Hint = shown(f.Err), "it is asked again at the next look"
	default:
		r.Got = c.got(&f)
		if r.Decides {
			r.Hint = c.hint(&f, want)
		}
	}
	return r
}

// wants is what the leaf asks for; under a Not the opposite.
func (c *Condition) wants(want Outcome) string {
	s := c.text()
	if want == Failed {
		return "not: " + s
	}
	return s
}

func (c *Condition) text() string {
	switch c.Kind {
	case KindLockFree:
		return fmt.Sprintf("the lock %q is free", c.Name)
	case KindLockHeldBy:
		return fmt.Sprintf("the lock %q is held by %q", c.Name, c.Other)
	case KindSemaphoreAvailable:
		return fmt.Sprintf("the semaphore %q has %d free", c.Name, c.Amount)
	case KindBranchExists:
		return fmt.Sprintf("the branch %q exists", c.Name)
	case KindBranchNotExists:
		return fmt.Sprintf("the branch %q does not exist", c.Name)
	case KindBranchMerged:
		return fmt.Sprintf("the branch %q is merged into %q", c.Name, c.Other)
	case KindIssuesComplete:
		return fmt.Sprintf("the issues %q are complete", c.Name)
	case KindIssueStatus:
		return fmt.Sprintf("the issue %q is %s", c.Name, c.Other)
	case KindFileExists:
		return fmt.Sprintf("the file %q exists", c.Name)
	case KindFileNotExists:
		return fmt.Sprintf("the file %q does not exist", c.Name)
	case KindSessionAlive:
		return fmt.Sprintf("the session %q is alive", c.Name)
	}
	return c.moreText()
}

func (c *Condition) moreText() string {
	switch c.Kind {
	case KindCustomCheck:
		if c.Other != "" {
			return c.Other
		}
		return fmt.Sprintf("the command %q succeeds", c.Name)
	case KindCounter:
		return fmt.Sprintf("the counter %q is %s %d", c.Name, c.Is, c.Amount)
	case KindLeader:
		if c.Other == "" {
			return fmt.Sprintf("the election %q has a leader", c.Name)
		}
		return fmt.Sprintf("%q leads the election %q", c.Other, c.Name)
	case KindLimitAvailable:
		return fmt.Sprintf("the limit %q allows %d more of %q", c.Name, c.Amount, c.Other)
	case KindKey:
		return strings.TrimRight(fmt.Sprintf("the key %q %s %s", c.Name, c.Is, c.Other), " ")
	case KindTimeWindow:
		return "the time is " + c.Window.String()
	}
	return fmt.Sprintf("a condition of the unknown kind %q", c.Kind)
}

// String is the window for people.
func (w Window) String() string {
	s := fmt.Sprintf("from %s to %s", clock(w.From), clock(w.To))
	if w.From == w.To {
		s = "of any hour"
	}
	for i, d := range w.Days {
		sep := ", "
		if i == 0 {
			sep = " on "
		}
		s += sep + d.String()
	}
	sign := '+'
	if w.Offset < 0 {
		sign = '-'
	}
	return fmt.Sprintf("%s (UTC%c%s)", s, sign, clock(w.Offset.Abs()))
}

func clock(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60)
}

// got is what the fact says.
func (c *Condition) got(f *Fact) string {
	switch c.Kind {
	case KindLockFree, KindLockHeldBy:
		if f.Is {
			return heldBy(f)
		}
		return "free"
	case KindSemaphoreAvailable, KindLimitAvailable:
		return c.available(f)
	case KindIssuesComplete:
		return fmt.Sprintf("%d of %d open", f.Number, f.Total)
	case KindIssueStatus:
		return shown(f.Text)
	case KindCounter:
		return fmt.Sprint(f.Number)
	case KindTimeWindow:
		return c.Window.now(f.Number)
	}
	return yesOrNo(f)
}

func (c *Condition) available(f *Fact) string {
	switch {
	case c.unlimited(f):
		return "nobody has used it yet, and its first user sets its limit"
	case f.Unused:
		return "nobody has used it yet"
	}
	return fmt.Sprintf("%d available", f.Number)
}

// now says where the moment stands, in words that change when the window begins or ends: a
// text with the time of day would be another reason at every look.
func (w *Window) now(ns int64) string {
	s := "outside"
	if w.has(ns) {
		s = "within"
	}
	if next := w.next(time.Unix(0, ns)); !next.IsZero() {
		s += next.UTC().Add(w.Offset).Format(", until Mon 15:04")
	}
	return s
}

func heldBy(f *Fact) string {
	s := fmt.Sprintf("held by %q", f.Text)
	if n := len(f.Others); n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}

// maxShown is how much of a text from outside, such as the value of a key, is shown.
const maxShown = 500

// shown is a text from outside in one line, without what a terminal obeys.
func shown(s string) string {
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

func yesOrNo(f *Fact) string {
	s := "no"
	if f.Is {
		s = "yes"
	}
	if f.Text != "" {
		s += ": " + shown(f.Text)
	}
	return s
}

// hint says what would help a leaf that stands in the way and is to be want.
func (c *Condition) hint(f *Fact, want Outcome) string {
	switch {
	case c.Kind == KindLockFree || c.Kind == KindLockHeldBy:
		if f.Is {
			return fmt.Sprintf("it is waited for until %q releases it", f.Text)
		}
		return "nobody holds it"
	case c.Kind == KindTimeWindow:
		return "it is looked at again then"
	case c.unlimited(f):
		return "name its limit in the condition"
	case want == Failed:
		return ""
	case c.Kind == KindSemaphoreAvailable && c.never(f):
		return fmt.Sprintf("its limit is %d: so much is never free", f.Total)
	case c.Kind == KindLimitAvailable && c.never(f):
		return fmt.Sprintf("it never allows more than %d: lower the cost, or raise its rate", f.Total)
	case c.Kind == KindSemaphoreAvailable:
		return "it is waited for until enough is released"
	case c.Kind == KindLimitAvailable:
		return "it refills with time"
	case c.Kind == KindIssuesComplete && f.Total == 0:
		return "no issue matches the filter"
	case c.Kind == KindIssuesComplete:
		return "close the open ones"
	}
	return ""
}

// never: more is asked for than a semaphore or limiter can have left, as it is set up now.
func (c *Condition) never(f *Fact) bool { return f.Total > 0 && c.Amount > f.Total }

// String is the result for people: one line a leaf.
func (r Result) String() string {
	var b strings.Builder
	b.WriteString(r.Outcome.String())
	for _, reason := range r.Reasons {
		b.WriteString("\n  " + reason.String())
	}
	return b.String()
}

// String is one line: a mark, what is wanted, and what was found. The mark is ✓ for what is
// so, ✗ for what stands in the way, · for what is not so and need not be, and … for what is
// unknown.
func (r Reason) String() string {
	mark := "✓"
	switch {
	case r.Outcome == NeedsInput || r.Outcome == Error:
		mark = "…"
	case r.Decides:
		mark = "✗"
	case r.spare:
		mark = "·"
	}
	s := fmt.Sprintf("%s %s (%s)", mark, r.Want, r.Got)
	if r.Hint != "" {
		s += ": " + r.Hint
	}
	return s
}
