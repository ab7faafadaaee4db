package gather

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
)

// Source finds facts of one or more kinds. It is a pointer, or otherwise comparable, and
// used by several goroutines at once.
type Source interface {
	// Find finds out about the inputs. It returns when ctx ends. What it does not
	// answer was not gathered; what it could not find out has an Err.
	Find(ctx context.Context, inputs []guard.Input) guard.Inputs
	// Follow calls changed when an input may have changed, until ctx ends. wanted are
	// the inputs of the moment; changed takes others, too.
	Follow(ctx context.Context, wanted func() []guard.Input, changed func(...guard.Input))
}

// Config says where facts come from. What is nil is not gathered.
type Config struct {
	// Space has the locks, semaphores, counters, elections, keys and limiters.
	Space *holdfast.Space
	// Dir is where relative paths of files, and of pid files, begin; empty: the working directory.
	Dir string
	// Git has the branches; nil: the repository in Dir.
	Git *Git
	// Sessions are tmux sessions and processes; nil: those of this machine.
	Sessions *Sessions
	// Commands are those of custom_check; nil: none may be run.
	Commands *Commands
	// Issues are those of a tracker: a [GitHub] or an [IssueFile].
	Issues Source
	// Sources take the place of those above.
	Sources map[guard.Source]Source
	// Timeout bounds the search for one fact; default 10 s.
	Timeout time.Duration
	// Now is the clock of time windows; default time.Now.
	Now func() time.Time
}

// Gatherer finds facts. It is safe for concurrent use.
type Gatherer struct {
	sources map[guard.Source]Source
	space   *coordination
	timeout time.Duration
	now     func() time.Time
	began   time.Time // by the monotonic clock
	hub     hub
}

// New makes a Gatherer; it asks nobody yet.
func New(c Config) *Gatherer {
	g := &Gatherer{sources: map[guard.Source]Source{}, timeout: c.Timeout, now: c.Now, began: time.Now()}
	if g.timeout <= 0 {
		g.timeout = 10 * time.Second
	}
	if g.now == nil {
		g.now = time.Now
	}
	g.own(&c)
	for kind, s := range c.Sources {
		g.sources[kind] = s
	}
	g.hub.init(g)
	return g
}

// own takes the sources that the configuration describes.
func (g *Gatherer) own(c *Config) {
	set := func(s Source, kinds ...guard.Source) {
		for _, k := range kinds {
			g.sources[k] = s
		}
	}
	if c.Space != nil {
		g.space = &coordination{space: c.Space, now: g.now}
		set(g.space, guard.SourceLock, guard.SourceSemaphore, guard.SourceCounter, guard.SourceElection, guard.SourceKey, guard.SourceLimit)
	}
	if c.Git == nil {
		c.Git = &Git{Dir: c.Dir}
	}
	set(c.Git, guard.SourceBranch, guard.SourceMerged)
	if c.Sessions == nil {
		c.Sessions = &Sessions{Dir: c.Dir}
	}
	set(c.Sessions, guard.SourceSession)
	set(&files{c.Dir, os.Stat}, guard.SourceFile)
	if c.Commands != nil {
		set(c.Commands, guard.SourceCommand)
	}
	if c.Issues != nil {
		set(c.Issues, guard.SourceIssues, guard.SourceIssue)
	}
	set(&clock{g.now}, guard.SourceClock)
}

// Gather finds the facts. It takes no longer than the timeout, and a second more for a Source that does not return
// when its context ends: what was not found by then is an error of its own. Inputs that no source has are left out.
func (g *Gatherer) Gather(ctx context.Context, inputs []guard.Input) guard.Inputs {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	facts := guard.Inputs{}
	for s, list := range g.bySource(inputs) {
		all.Go(func() {
			found := find(ctx, s, list, g.timeout)
			mu.Lock()
			defer mu.Unlock()
			for _, in := range list { // nothing that was not asked for
				if f, ok := found[in]; ok {
					facts[in] = f
				}
			}
		})
	}
	all.Wait()
	return facts
}

func (g *Gatherer) bySource(inputs []guard.Input) map[Source][]guard.Input {
	lists := map[Source][]guard.Input{}
	for _, in := range inputs {
		if s := g.sources[in.Source]; s != nil {
			lists[s] = append(lists[s], in)
		}
	}
	return lists
}

// find does not wait longer than ctx for a source that does not return.
func find(ctx context.Context, s Source, inputs []guard.Input, timeout time.Duration) guard.Inputs {
	done := make(chan guard.Inputs, 1)
	go func() { done <- s.Find(ctx, slices.Clone(inputs)) }()
	select {
	case found := <-done:
		return found
	case <-ctx.Done():
	}
	late := guard.Inputs{}
	select {
	case late = <-done:
	case <-time.After(time.Second): // it may be about to say why
		for _, in := range inputs {
			late[in] = guard.Fact{Err: fmt.Sprintf("no answer within %s", timeout)}
		}
	}
	return late
}

// Evaluate finds the facts that the condition takes, and decides, with all reasons.
func (g *Gatherer) Evaluate(ctx context.Context, c *guard.Condition) guard.Result {
	return c.Explain(g.Gather(ctx, c.RequiredInputs()))
}

// each asks for one input after the other, eight at a time.
func each(ctx context.Context, inputs []guard.Input, ask func(context.Context, guard.Input) (guard.Fact, error)) guard.Inputs {
	return eachOf(ctx, 8, inputs, ask)
}

// eachOf asks for so many inputs at a time. One that could not be begun before ctx ended is an
// error of its own.
func eachOf(ctx context.Context, atOnce int, inputs []guard.Input, ask func(context.Context, guard.Input) (guard.Fact, error)) guard.Inputs {
	found := make([]guard.Fact, len(inputs))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, in := range inputs {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			found[i].Err = "it was not asked in time: others before it took too long"
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			f, err := ask(ctx, in)
			if err != nil {
				f.Err = err.Error()
			}
			found[i] = f
		})
	}
	all.Wait()
	facts := guard.Inputs{}
	for i, in := range inputs {
		facts[in] = found[i]
	}
	return facts
}

// poll follows what tells no events: every so often all that is wanted may have changed.
func poll(ctx context.Context, every time.Duration, wanted func() []guard.Input, changed func(...guard.Input)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			changed(wanted()...)
		}
	}
}

// clock tells the time. Windows wake by their own instants: see [Gatherer.Wait].
type clock struct{ now func() time.Time }

func (c *clock) Find(_ context.Context, inputs []guard.Input) guard.Inputs {
	facts := guard.Inputs{}
	for _, in := range inputs {
		facts[in] = guard.Fact{Number: c.now().UnixNano(), From: "the clock of this machine"}
	}
	return facts
}

func (c *clock) Follow(ctx context.Context, _ func() []guard.Input, _ func(...guard.Input)) {
	<-ctx.Done()
}
