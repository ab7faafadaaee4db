package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/pipeline"
)

// The bounds, so that every transaction fits into a request of 64 KiB.
const (
	// MaxEvents is how many events of a run are kept; older ones are in its state.
	MaxEvents = 100
	// MaxDefinition is the most bytes of a definition with its parameters, as JSON: a
	// queue of MaxRuns goes into the same transaction.
	MaxDefinition = 24 << 10
	// MaxRuns is how many runs of a pipeline with places wait or go on at once.
	MaxRuns = 256
	// MaxReason is the most bytes of a reason; a longer one is cut.
	MaxReason = 1 << 10
	// DefaultKeep is how many runs of a pipeline that have ended are kept.
	DefaultKeep = 1000
)

// Ref names a run.
type Ref struct{ Pipeline, ID string }

// String is pipeline/id.
func (r Ref) String() string { return r.Pipeline + "/" + r.ID }

// ParseRef reads pipeline/id.
func ParseRef(text string) (Ref, error) {
	name, id, parted := strings.Cut(text, "/")
	if !parted {
		return Ref{}, fmt.Errorf("pipeline: %q names no run: a run is named pipeline/id, such as %s/1: %w", text, cmp.Or(text, "release"), fs.ErrInvalid)
	}
	r := Ref{name, id}
	return r, r.check()
}

// check refuses what names no run. Earlier versions have made runs with names that are refused for new ones:
// those are found.
func (r Ref) check() error {
	unfit := func(c rune) bool { return c == '/' || unicode.IsControl(c) }
	for what, text := range map[string]string{"pipeline": r.Pipeline, "run": r.ID} {
		most := map[string]int{"pipeline": pipeline.MaxName, "run": pipeline.MaxID}[what]
		if text == "" || len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unfit) {
			return fmt.Errorf("pipeline: the name %q of a %s: it has 1 to %d bytes, and no slash or control character: %w", text, what, most, fs.ErrInvalid)
		}
	}
	return nil
}

// Config is that of [New].
type Config struct {
	// Space has the runs, and what their phases hold. The commands of a phase end before
	// its TTL is over when their runner is lost.
	Space *holdfast.Space
	// Gatherer finds what conditions ask; nil: one that knows the Space alone.
	Gatherer *gather.Gatherer
	// Runner runs commands; nil: phases with a command are refused.
	Runner Runner
	// Recheck is how often everything is looked at whatever was told; default 30 s.
	Recheck time.Duration
	// Keep is how many runs of a pipeline that have ended are kept; default
	// [DefaultKeep]. The older are deleted.
	Keep int
	// Told is called with each state of the runs that run here. It must not block.
	Told func(Ref, pipeline.State)
	// OnError is called with what keeps a run that runs here from going on, such as a backend that does not
	// answer or has no room: each cause once until the run goes on, and none that is over with the next try. It is tried
	// again until ctx ends. It must not block.
	OnError func(Ref, error)
	// Now is the clock of events; default time.Now.
	Now func() time.Time
}

// Runner runs commands for as long as something is held, and no longer.
type Runner interface {
	// Run returns when the command, and all that it left in its process group, is gone.
	// It ends it before c.Hold is over, and soon after c.Stop is closed. An error means
	// that it never ran; one that is [fs.ErrNotExist], that its program is not there, for
	// which no retry is used.
	Run(c *Command) (Exit, error)
}

// Command is what to run.
type Command struct {
	Ref     Ref
	Phase   string
	Attempt int
	// Args are the program and its arguments; no shell reads them.
	Args []string
	// Env is added to the environment.
	Env  []string
	Hold Hold
	Stop <-chan struct{}
}

// Hold is what a command runs under: the election of its runner, and what its phase holds.
type Hold interface {
	// Done is closed when it is over.
	Done() <-chan struct{}
	// Err is nil exactly as long as it lasts.
	Err() error
	// Deadline is when it ends unless it is renewed, a time of driver.Now; false: it
	// has none.
	Deadline() (time.Time, bool)
}

// Exit is how a command ended.
type Exit struct {
	// Code is its exit code, or 128 and the signal's number.
	Code int
	// Lost: it was ended because what it ran under was over.
	Lost bool
	// NotStarted: what it was to run under was over, or Stop closed, before it began, and nothing ran; the rest means
	// nothing then. The attempt waits again, and no retry is used.
	NotStarted bool
	// Itself: it had ended before Stop was heeded, so that a Stop that came before Run returned counts for nothing. A
	// Runner that cannot tell leaves it false.
	Itself bool
	// Tail is the end of its output; [pipeline.MaxTail] bytes of it are kept.
	Tail string
}

// Pipelines submits runs, runs them, and tells of them. It is safe for concurrent use.
type Pipelines struct {
	space    *holdfast.Space
	gatherer *gather.Gatherer
	events   *gather.Gatherer // tells when keys change
	runner   Runner
	recheck  time.Duration
	keep     int
	told     func(Ref, pipeline.State)
	onError  func(Ref, error)
	now      func() time.Time

	mu       sync.Mutex
	turns    map[string]*turns
	sweeping *sweeping // nil: no run runs here
}

// turns lets the goroutines of this program change or look at a queue one after the other.
type turns struct {
	taken chan struct{} // holds one: that goroutine has its turn
	users int
	begun int   // looks so far
	last  *look // the last that has succeeded; nil: the last one has not
}

// New refuses a backend that cannot do what pipelines need. It asks nobody yet.
func New(c Config) (*Pipelines, error) {
	if c.Space == nil {
		return nil, fmt.Errorf("pipeline: a Space is missing: %w", fs.ErrInvalid)
	}
	info := c.Space.Info()
	for _, f := range []driver.Feature{driver.FeatureTxn, driver.FeatureWatch, driver.FeatureSession, driver.FeatureElection} {
		if !info.Features[f] {
			return nil, fmt.Errorf("pipeline: the %s backend lacks %q, which pipelines need: %w", info.Scheme, f, errors.ErrUnsupported)
		}
	}
	p := &Pipelines{
		space: c.Space, gatherer: c.Gatherer, runner: c.Runner, told: c.Told, onError: c.OnError, now: c.Now,
		recheck: cmp.Or(max(c.Recheck, 0), 30*time.Second), keep: cmp.Or(max(c.Keep, 0), DefaultKeep),
		events: gather.New(gather.Config{Space: c.Space}), turns: map[string]*turns{},
	}
	if p.gatherer == nil {
		p.gatherer = p.events
	}
	if p.told == nil {
		p.told = func(Ref, pipeline.State) {}
	}
	if p.onError == nil {
		p.onError = func(Ref, error) {}
	}
	if p.now == nil {
		p.now = time.Now
	}
	return p, nil
}

// turn waits until no other goroutine of this program changes the queue of the pipeline, or
// until ctx ends.
func (p *Pipelines) turn(ctx context.Context, name string) (leave func(), err error) {
	t, _ := p.enterTurns(name)
	return p.awaitTurn(ctx, t, name)
}

// enterTurns is before awaitTurn, and tells how many looks have begun.
func (p *Pipelines) enterTurns(name string) (t *turns, begun int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t = p.turns[name]
	if t == nil {
		t = &turns{taken: make(chan struct{}, 1)}
		p.turns[name] = t
	}
	t.users++
	return t, t.begun
}

func (p *Pipelines) awaitTurn(ctx context.Context, t *turns, name string) (leave func(), err error) {
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; p.leaveTurns(t, name) }, nil
	case <-ctx.Done():
		p.leaveTurns(t, name)
		return nil, context.Cause(ctx)
	}
}

func (p *Pipelines) leaveTurns(t *turns, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(p.turns, name)
	}
}

// patience bounds one call to the backend.
const patience = 10 * time.Second

// passing reports that a failed call may succeed when it is made again. With what is closed for good,
// as a backend is with files that were deleted, none does.
func passing(err error) bool {
	if errors.Is(err, holdfast.ErrClosed) {
		return false
	}
	for _, kind := range []error{holdfast.ErrUnavailable, context.DeadlineExceeded, holdfast.ErrLost} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// pause waits before the nth try; false: ctx has ended.
func pause(ctx context.Context, try int) bool { return rest(ctx, backoff(try)) }

func backoff(try int) time.Duration { return min(50*time.Millisecond<<min(try, 7), 5*time.Second) }

// rest waits so long; false: ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
