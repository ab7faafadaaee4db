// Package guardtest has facts that a test sets, for conditions of all kinds.
//
//	facts := guardtest.New()
//	g := gather.New(gather.Config{Sources: facts.Sources()})
//	facts.Set(guard.Input{Source: guard.SourceBranch, Name: "main"}, guard.Fact{Is: true})
//
// A Set wakes what waits for the input, as an event of a real source does; Break and Slow
// are how sources fail.
package guardtest

import (
	"cmp"
	"context"
	"maps"
	"sync"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
)

// Facts is a source of every kind. It is safe for concurrent use.
type Facts struct {
	mu      sync.Mutex
	facts   guard.Inputs
	asked   map[guard.Input]int
	slow    map[guard.Input]bool
	quiet   bool
	follows map[*func(...guard.Input)]bool
}

// New has no facts: every input needs one.
func New() *Facts {
	return &Facts{facts: guard.Inputs{}, asked: map[guard.Input]int{}, slow: map[guard.Input]bool{}, follows: map[*func(...guard.Input)]bool{}}
}

// Sources is the facts as the source of every kind but the clock.
func (f *Facts) Sources() map[guard.Source]gather.Source {
	all := map[guard.Source]gather.Source{}
	for _, s := range []guard.Source{
		guard.SourceLock, guard.SourceSemaphore, guard.SourceBranch, guard.SourceMerged, guard.SourceIssues, guard.SourceIssue, guard.SourceFile,
		guard.SourceSession, guard.SourceCommand, guard.SourceCounter, guard.SourceElection, guard.SourceLimit, guard.SourceKey,
	} {
		all[s] = f
	}
	return all
}

// Set sets a fact and wakes those that wait for it, unless events are [Facts.Lose]d.
func (f *Facts) Set(in guard.Input, fact guard.Fact) {
	f.mu.Lock()
	f.facts[in] = fact
	var tell []func(...guard.Input)
	for c := range f.follows {
		if !f.quiet {
			tell = append(tell, *c)
		}
	}
	f.mu.Unlock()
	for _, changed := range tell {
		changed(in)
	}
}

// Break has the input answered with an error, also if why is empty.
func (f *Facts) Break(in guard.Input, why string) {
	f.Set(in, guard.Fact{Err: cmp.Or(why, "it is broken")})
}

// Slow has the input not answered at all until its time is over.
func (f *Facts) Slow(in guard.Input, slow bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow[in] = slow
}

// Lose has every event lost from now on, or not any more.
func (f *Facts) Lose(lose bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = lose
}

// Asked is how often an input was asked for.
func (f *Facts) Asked(in guard.Input) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[in]
}

// Find is the facts of the inputs.
func (f *Facts) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	found, wait := guard.Inputs{}, false
	f.mu.Lock()
	for _, in := range inputs {
		f.asked[in]++
		wait = wait || f.slow[in]
		if fact, ok := f.facts[in]; ok && !f.slow[in] {
			found[in] = fact
		}
	}
	f.mu.Unlock()
	if wait {
		<-ctx.Done()
		for _, in := range inputs {
			if _, ok := found[in]; !ok {
				found[in] = guard.Fact{Err: context.Cause(ctx).Error()}
			}
		}
	}
	return found
}

// Follow tells of every Set.
func (f *Facts) Follow(ctx context.Context, _ func() []guard.Input, changed func(...guard.Input)) {
	f.mu.Lock()
	f.follows[&changed] = true
	all := maps.Clone(f.facts)
	f.mu.Unlock()
	for in := range all {
		changed(in) // what was set before it followed
	}
	<-ctx.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.follows, &changed)
}
