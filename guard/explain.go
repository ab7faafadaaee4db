package guard

import (
	"fmt"
	"strings"
	"time"
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
	// Decides: as long as this leaf stays as it is, the result cannot be Passed. Under
	// a Not that is a leaf which passed.
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
}

// Explain decides as [Condition.Evaluate] does and gives a reason for every leaf,
// whatever the outcome.
func (c *Condition) Explain(in Inputs) Result {
	r := Result{Outcome: c.outcome(in)}
	c.explain(in, "", Passed, &r.Reasons)
	return r
}

// explain adds the reasons of c, which is wanted to be want (Passed or Failed).
func (c *Condition) explain(in Inputs, path string, want Outcome, list *[]Reason) {
	at := join(path, c.Kind)
	switch c.Kind {
	case KindNot:
		c.Of[0].explain(in, at, want.not(), list)
		return
	case KindAll, KindAny:
		for i := range c.Of {
			c.Of[i].explain(in, part(at, c.Kind, i), want, list)
		}
		return
	}
	*list = append(*list, c.reason(in, at, want))
}

func (c *Condition) reason(in Inputs, at string, want Outcome) Reason {
	input := c.Input()
	f, ok := in[input]
	r := Reason{Path: at, Kind: c.Kind, Outcome: c.outcome(in), Since: f.Since, Revision: f.Revision, Source: f.From, Want: c.wants(want)}
	r.Decides = r.Outcome != want
	if r.Source == "" {
		r.Source = string(input.Source)
	}
	switch {
	case !ok:
		r.Got, r.Hint = "not gathered", fmt.Sprintf("give the input %s %q", input.Source, input.Name)
	case f.Err != "":
		r.Got, r.Hint = f.Err, "it is asked again at the next look"
	default:
		r.Got = c.got(&f)
		if r.Decides {
			r.Hint = c.hint(&f)
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
	}
	return "the time is " + c.Window.String()
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
	return fmt.Sprintf("%s (UTC%+03d:%02d)", s, int(w.Offset.Hours()), int(w.Offset.Abs().Minutes())%60)
}

func clock(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60)
}

// got is what the fact says.
func (c *Condition) got(f *Fact) string {
	switch c.Kind {
	case KindLockFree, KindLockHeldBy:
		if f.Is {
			return fmt.Sprintf("held by %q", f.Text)
		}
		return "free"
	case KindSemaphoreAvailable, KindLimitAvailable:
		return fmt.Sprintf("%d available", f.Number)
	case KindIssuesComplete:
		return fmt.Sprintf("%d of %d open", f.Number, f.Total)
	case KindIssueStatus:
		return f.Text
	case KindCounter:
		return fmt.Sprint(f.Number)
	case KindTimeWindow:
		return time.Unix(0, f.Number).UTC().Add(c.Window.Offset).Format("Mon 15:04:05")
	}
	return yesOrNo(f)
}

func yesOrNo(f *Fact) string {
	s := "no"
	if f.Is {
		s = "yes"
	}
	if f.Text != "" {
		s += ": " + f.Text
	}
	return s
}

// hint says what would help a leaf that stands in the way.
func (c *Condition) hint(f *Fact) string {
	switch c.Kind {
	case KindLockFree, KindLockHeldBy:
		if f.Is {
			return fmt.Sprintf("it is waited for until %q releases it", f.Text)
		}
		return "nobody holds it"
	case KindSemaphoreAvailable:
		return "it is waited for until enough is released"
	case KindLimitAvailable:
		return "it refills with time"
	case KindIssuesComplete:
		if f.Total == 0 {
			return "no issue matches the filter"
		}
		return "close the open ones"
	case KindTimeWindow:
		return "it is looked at again when the window begins"
	}
	return ""
}

// String is the result for people: one line a leaf.
func (r Result) String() string {
	var b strings.Builder
	b.WriteString(r.Outcome.String())
	for _, reason := range r.Reasons {
		b.WriteString("\n  " + reason.String())
	}
	return b.String()
}

// String is one line: a mark, what is wanted, and what was found.
func (r Reason) String() string {
	mark := map[bool]string{false: "✓", true: "✗"}[r.Decides]
	if r.Outcome == NeedsInput || r.Outcome == Error {
		mark = "…"
	}
	s := fmt.Sprintf("%s %s (%s)", mark, r.Want, r.Got)
	if r.Hint != "" {
		s += ": " + r.Hint
	}
	return s
}
