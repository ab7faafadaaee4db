package gather_test

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/memhold"
)

// gappy is a backend with a watch that never tells of a release: in its place it has a gap, as a slow reader or a
// broken link makes it. What comes between two watches is done before the next begins.
type gappy struct {
	driver.Driver
	how      string
	between  func()        // is done when a watch has broken
	inFlight atomic.Value  // a func() that is done when an Inspect has read, and has not answered
	told     chan struct{} // the gap was told
	gap      sync.Once
}

// Watch breaks at a release, or at a key that says so.
func (g *gappy) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		for e, err := range g.Driver.Watch(ctx, r) {
			lost := e.Verb == "released" || e.Name == "break"
			if !lost && !yield(e, err) {
				return
			}
			if lost && !g.gapped(yield) {
				return
			}
		}
	}
}

// gapped tells of a gap; false: the watch is over.
func (g *gappy) gapped(yield func(driver.Event, error) bool) bool {
	defer g.gap.Do(func() { close(g.told) })
	goesOn := false
	switch g.how {
	case "resync":
		goesOn = yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbResync}, nil)
	case "compacted":
		yield(driver.Event{}, driver.Errorf("watch", "", driver.ErrCompacted, "too late"))
	case "broken":
		yield(driver.Event{}, driver.Errorf("watch", "", driver.ErrUnavailable, "the link is broken"))
	}
	if g.between != nil {
		g.between()
	}
	return goesOn
}

func (g *gappy) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	rep, err := g.Driver.Inspect(ctx, r)
	if f, armed := g.inFlight.Load().(func()); armed {
		f()
	}
	return rep, err
}

// A watch that breaks, ends or has a gap at the moment of a change loses nothing, whether the wait rests or asks in
// that moment, or the change comes while nothing is watched; the re-check is an hour away.
func TestWait_Gap(t *testing.T) {
	for _, how := range []string{"resync", "compacted", "broken", "ended"} {
		for _, when := range []string{"resting", "asking", "unwatched"} {
			if how == "resync" && when == "unwatched" {
				continue // it goes on
			}
			t.Run(how+" while "+when, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { waitOverGap(t, how, when) }) })
		}
	}
}

func waitOverGap(t *testing.T, how, when string) {
	inner := memhold.New()
	d := &gappy{Driver: inner, how: how, told: make(chan struct{})}
	a, b := must[*holdfast.Space](t)(holdfast.New(inner)), must[*holdfast.Space](t)(holdfast.New(d))
	defer a.Close()
	lock := must[*holdfast.Hold](t)(a.Mutex("m").Acquire(t.Context()))
	release := sync.OnceFunc(func() { ok(t, lock.Release()) })
	begin := release
	c, o := guard.LockFree("m"), gather.WaitOptions{Recheck: time.Hour}
	switch when {
	case "unwatched":
		d.between = release
		begin = func() { must[holdfast.Revision](t)(a.KV().Put(t.Context(), "break", nil)) }
		c = guard.All(c, guard.Not(guard.KeyEquals("b", "x"))) // so that the watch tells of both
	case "asking":
		o.Events = []gather.Pattern{{Kind: "kv", Verb: "*", Glob: "poke"}}
		begin = func() {
			d.inFlight.Store(sync.OnceFunc(func() { release(); <-d.told }))
			must[holdfast.Revision](t)(a.KV().Put(t.Context(), "poke", nil))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := gather.New(gather.Config{Space: b}).Wait(ctx, &c, o)
		done <- err
	}()
	time.Sleep(time.Minute) // the looks that follow the beginning of its watch are over
	began := time.Now()
	begin()
	if err := <-done; err != nil {
		t.Errorf("it does not see the release: %v", err)
	}
	atOnce := how == "resync" || how == "ended" // a watch that fails is begun anew a moment later
	if took := time.Since(began); atOnce && took > 5*time.Millisecond {
		t.Errorf("it sees the release after %s, by a look that the gap did not ask for", took)
	}
	select {
	case <-d.told:
	default:
		t.Error("there was no gap")
	}
}
