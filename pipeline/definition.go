package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/guard"
)

// Definition is what a pipeline does.
type Definition struct {
	Name string `json:"name"`
	// Places is how many of its runs go on at once; 0: all of them. Policy is the order
	// in which the others get a place; empty: [FIFO].
	Places int    `json:"places,omitempty"`
	Policy Policy `json:"policy,omitempty"`
	// Phases run one after the other, those with Recovery only if one before failed.
	Phases []Phase `json:"phases"`
}

// Phase is one step of a pipeline: it starts when When passes and all of Holds is held,
// runs a command, and has succeeded when that has and Until passes.
type Phase struct {
	// Name is unlike those of all other phases.
	Name string `json:"name"`
	// When is checked before the phase takes its holds; nil: it need not wait. It is checked
	// again before the command starts if the phase has waited for holds or limits for 5 s, or
	// another runner has taken it over, without the locks, the part of semaphores and what of
	// limiters it has itself (a lock that it reads counts as free whatever other readers there
	// are); if it has not passed, that is given back. What must not change while the phase
	// runs belongs into Holds: a lock that was free when it was looked at need not be free a
	// moment later.
	When *guard.Condition `json:"when,omitempty"`
	// Holds are taken together before the command runs, and kept until the phase ends.
	Holds []Want `json:"holds,omitempty"`
	// Limits are asked last, when everything else is there, and given back if the command
	// does not start; what a runner took that is killed before passes unused.
	Limits []Limit `json:"limits,omitempty"`
	// Wait is how long the phase may wait for all of these; 0: for ever. After it the
	// phase has failed.
	Wait time.Duration `json:"wait,omitempty"`
	// Run is the command with its arguments; none: nothing is run.
	Run []string `json:"run,omitempty"`
	// Until is checked once the command has succeeded; nil: the phase has succeeded then.
	Until *guard.Condition `json:"until,omitempty"`
	// Within is how long Until may take; 0: for ever. After it the phase has failed.
	Within time.Duration `json:"within,omitempty"`
	// Retries is how often the phase may be started again, after a failure or when the
	// runner was lost while the command ran; not if its program is not there. 0: it is started once, whatever happens, and
	// an end that nobody saw is asked for.
	Retries int `json:"retries,omitempty"`
	// Pause is how long a phase that failed rests before it is started again, by Retries.
	Pause time.Duration `json:"pause,omitempty"`
	// OnFailure is the later phase that is next when this one has failed; empty: the run
	// has failed.
	OnFailure string `json:"on_failure,omitempty"`
	// Recovery marks a phase that only failures lead to. After it the run has failed.
	Recovery bool `json:"recovery,omitempty"`
	// WakeOn are patterns of events after which When and Until are checked again, beside
	// those that their inputs tell of.
	WakeOn []string `json:"wake_on,omitempty"`
}

// Want is something that a phase holds.
type Want struct {
	// Kind is lock, read, write or semaphore.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Weight and Limit are of a semaphore.
	Weight int64 `json:"weight,omitempty"`
	Limit  int64 `json:"limit,omitempty"`
}

// Limit is what the start of a command takes from a limiter, which has to exist.
type Limit struct {
	Limiter string `json:"limiter"`
	Key     string `json:"key,omitempty"`
	Cost    int64  `json:"cost"`
}

// NewPhase makes a phase that runs a command.
func NewPhase(name string, run ...string) Phase { return Phase{Name: name, Run: run} }

// WithPre is the phase with a condition before it, its When.
func (p Phase) WithPre(c guard.Condition) Phase {
	p.When = &c
	return p
}

// WithPost is the phase with a condition after it, its Until, which has to pass within so
// long; 0: at some time.
func (p Phase) WithPost(c guard.Condition, within time.Duration) Phase {
	p.Until, p.Within = &c, within
	return p
}

// WithWakeOn is the phase with patterns of events after which it is checked again.
func (p Phase) WithWakeOn(patterns ...string) Phase {
	p.WakeOn = slices.Concat(p.WakeOn, patterns)
	return p
}

// WithHolds is the phase with what it holds while it runs.
func (p Phase) WithHolds(wants ...Want) Phase {
	p.Holds = slices.Concat(p.Holds, wants)
	return p
}

// WithLimits is the phase with what the start of its command takes from limiters.
func (p Phase) WithLimits(limits ...Limit) Phase {
	p.Limits = slices.Concat(p.Limits, limits)
	return p
}

// The bounds of a definition.
const (
	MaxPhases  = 256
	MaxHolds   = 64
	MaxLimits  = 16
	MaxRetries = 1000
	MaxName    = 64 // bytes of the name of a pipeline or a phase
	MaxID      = 48 // bytes of that of a run
)

// Check says what is wrong with a definition, as an [fs.ErrInvalid]; nil: nothing.
func (d *Definition) Check() error {
	switch {
	case d.Name == "":
		return d.invalid("it has no name")
	case badName(d.Name, MaxName):
		return d.invalid("its name has 1 to %d bytes, and no %s", MaxName, unnamed)
	case len(d.Phases) == 0 || len(d.Phases) > MaxPhases:
		return d.invalid("it has %d phases; 1 to %d are possible", len(d.Phases), MaxPhases)
	case d.after(-1) == len(d.Phases):
		return d.invalid("every phase is for recovery: nothing would ever run")
	case d.Places < 0 || d.Places > MaxWaiting:
		return d.invalid("it has %d places; 1 to %d are possible, and 0 is one for every run", d.Places, MaxWaiting)
	case d.Policy != "" && d.Places == 0:
		return d.invalid("the policy %q is for runs that wait for a place: say how many places there are", d.Policy)
	}
	if _, err := NewQueue(cmp.Or(d.Policy, FIFO)); err != nil {
		return d.invalid("%w", err)
	}
	for i := range d.Phases {
		if err := d.CheckPhase(i); err != nil {
			return err
		}
	}
	return d.checkSlots()
}

// checkSlots refuses a semaphore with two limits: the second phase would wait without end.
func (d *Definition) checkSlots() error {
	type first struct {
		phase string
		limit int64
	}
	seen := map[string]first{}
	for _, p := range d.Phases {
		for _, w := range p.Holds {
			f, ok := seen[w.Name]
			switch {
			case w.Kind != "semaphore":
			case !ok:
				seen[w.Name] = first{p.Name, w.Limit}
			case f.limit != w.Limit:
				return d.invalid("phases %q and %q hold the semaphore %q with the limits %d and %d: give it one", f.phase, p.Name, w.Name, f.limit, w.Limit)
			}
		}
	}
	return nil
}

// unnamed is what names of pipelines, phases and runs do not have: they stand in keys, and in JSON that has
// a bound, which writes some characters longer.
const unnamed = "slash, quote, backslash or control character"

func badName(s string, most int) bool {
	unfit := func(c rune) bool { return strings.ContainsRune("/\"\\\u2028\u2029", c) || unicode.IsControl(c) }
	return s == "" || len(s) > most || !utf8.ValidString(s) || strings.ContainsFunc(s, unfit)
}

// CheckID says what is wrong with the name of a new run, as an [fs.ErrInvalid]; nil: nothing.
func CheckID(id string) error {
	if badName(id, MaxID) {
		return fmt.Errorf("pipeline: the name %q of a run: it has 1 to %d bytes, and no %s: %w", id, MaxID, unnamed, fs.ErrInvalid)
	}
	return nil
}

// checkText refuses what no backend takes for a name or a key.
func checkText(what, s string) error {
	const most = guard.MaxName
	control := strings.IndexFunc(s, unicode.IsControl)
	switch {
	case len(s) > most:
		return fmt.Errorf("the %s has %d bytes; at most %d are allowed", what, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("the %s %q is not UTF-8", what, s)
	case control >= 0:
		return fmt.Errorf("the %s %q has a control character at byte %d", what, s, control)
	}
	return nil
}

// CheckPhase says what is wrong with one phase among the others.
func (d *Definition) CheckPhase(i int) error {
	p := &d.Phases[i]
	switch {
	case p.Name == "":
		return d.invalid("phase %d has no name", i+1)
	case badName(p.Name, MaxName):
		return d.invalid("phase %q: its name has 1 to %d bytes, and no %s", p.Name, MaxName, unnamed)
	case d.find(p.Name) != i:
		return d.invalid("two phases are called %q", p.Name)
	case p.Retries < 0 || p.Retries > MaxRetries:
		return d.invalid("phase %q: %d retries; 0 to %d are possible", p.Name, p.Retries, MaxRetries)
	case p.Within < 0 || p.Pause < 0 || p.Wait < 0:
		return d.invalid("phase %q: a time is negative", p.Name)
	case p.Within > 0 && p.Until == nil:
		return d.invalid("phase %q: within %s of what? Give a condition for until", p.Name, p.Within)
	case p.Pause > 0 && p.Retries == 0:
		return d.invalid("phase %q: a pause of %s before what? Give retries", p.Name, p.Pause)
	case len(p.Run) > 0 && p.Run[0] == "":
		return d.invalid("phase %q: the name of its command is empty", p.Name)
	case p.OnFailure != "" && d.find(p.OnFailure) <= i:
		return d.invalid("phase %q: on failure it goes to %q, which is no later phase", p.Name, p.OnFailure)
	}
	return d.checkParts(p)
}

func (d *Definition) checkParts(p *Phase) error {
	if len(p.Holds) > MaxHolds {
		return d.invalid("phase %q: it holds %d; at most %d are possible", p.Name, len(p.Holds), MaxHolds)
	}
	for i := range p.Holds {
		if err := p.Holds[i].check(); err != nil {
			return d.invalid("phase %q: holds: %w", p.Name, err)
		}
		if slices.ContainsFunc(p.Holds[:i], func(w Want) bool { return w.Name == p.Holds[i].Name }) {
			return d.invalid("phase %q: holds: %q is there twice: it would wait for itself", p.Name, p.Holds[i].Name)
		}
	}
	if err := p.checkLimits(); err != nil {
		return d.invalid("phase %q: limits: %w", p.Name, err)
	}
	if err := p.checkKept(); err != nil {
		return d.invalid("phase %q: %w", p.Name, err)
	}
	for of, c := range map[string]*guard.Condition{"when": p.When, "until": p.Until} {
		if c == nil {
			continue
		}
		if err := c.Check(); err != nil {
			return d.invalid("phase %q: %s: %w", p.Name, of, err)
		}
	}
	return nil
}

// checkKept refuses texts that would not be the same when the definition is read again.
func (p *Phase) checkKept() error {
	for what, list := range map[string][]string{"run": p.Run, "wake_on": p.WakeOn} {
		if i := slices.IndexFunc(list, unkept); i >= 0 {
			return fmt.Errorf("%s: the text %q is not UTF-8, or has a NUL", what, list[i])
		}
	}
	for what, c := range map[string]*guard.Condition{"when": p.When, "until": p.Until} {
		if c != nil && has(c, func(c *guard.Condition) bool { return unkept(c.Name) || unkept(c.Other) }) {
			return fmt.Errorf("%s: a text of a condition is not UTF-8, or has a NUL", what)
		}
	}
	return nil
}

// unkept: a definition is kept as JSON, which changes what is not UTF-8, and a NUL ends the arguments of
// a program.
func unkept(text string) bool { return !utf8.ValidString(text) || strings.ContainsRune(text, 0) }

func (p *Phase) checkLimits() error {
	switch {
	case len(p.Limits) > MaxLimits:
		return fmt.Errorf("there are %d; at most %d are possible", len(p.Limits), MaxLimits)
	case len(p.Limits) > 0 && len(p.Run) == 0:
		return errors.New("they are for the start of a command, and nothing is run")
	}
	for i, l := range p.Limits {
		if err := errors.Join(checkText("name", l.Limiter), checkText("key", l.Key)); err != nil {
			return err
		}
		switch {
		case l.Limiter == "":
			return errors.New("a limiter has no name")
		case l.Cost < 1:
			return fmt.Errorf("%q: a cost of %d; it has to be at least 1", l.Limiter, l.Cost)
		case slices.ContainsFunc(p.Limits[:i], func(o Limit) bool { return o.Limiter == l.Limiter && o.Key == l.Key }):
			return fmt.Errorf("%q is there twice: add the costs up", l.Limiter)
		}
	}
	return nil
}

func (w *Want) check() error {
	semaphore := w.Kind == "semaphore"
	if err := checkText("name", w.Name); err != nil {
		return err
	}
	switch {
	case w.Name == "":
		return fmt.Errorf("a %s has no name", w.Kind)
	case !slices.Contains([]string{"lock", "read", "write", "semaphore"}, w.Kind):
		return fmt.Errorf("%q is none of lock, read, write, semaphore", w.Kind)
	case !semaphore && (w.Weight != 0 || w.Limit != 0):
		return fmt.Errorf("%q is no semaphore: it has neither weight nor limit", w.Name)
	case semaphore && (w.Weight < 1 || w.Limit < w.Weight):
		return fmt.Errorf("semaphore %q: weight %d of %d; it has to be at least 1 and at most the limit", w.Name, w.Weight, w.Limit)
	}
	return nil
}

// find is the index of a phase; -1: there is none.
func (d *Definition) find(name string) int {
	return slices.IndexFunc(d.Phases, func(p Phase) bool { return p.Name == name })
}

// after is the index of the phase that is next when that one has succeeded.
func (d *Definition) after(i int) int {
	for i++; i < len(d.Phases) && d.Phases[i].Recovery; i++ {
	}
	return i
}

// Path are the phases that a run has entered, in order: the last is the one that it is in.
func (d *Definition) Path(s *State) (names []string) {
	for i := d.after(-1); i >= 0 && i < len(d.Phases) && s.Phase != ""; {
		p := &d.Phases[i]
		names = append(names, p.Name)
		switch {
		case p.Name == s.Phase:
			return names
		case slices.Contains(s.Failed, p.Name):
			i = d.find(p.OnFailure)
		default:
			i = d.after(i)
		}
	}
	return names
}

// invalid says so once, also of what another part of the house has refused as invalid.
func (d *Definition) invalid(format string, args ...any) error {
	err := fmt.Errorf("pipeline %q: %w", d.Name, fmt.Errorf(format, args...))
	if errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", err, fs.ErrInvalid)
}
