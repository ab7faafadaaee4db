package gather_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/internal/services"
)

const resumes = 200

// 200 times a guard resumes because a lock is released, with the re-check an hour away.
// Beside it, in the same run and woken by the same release, a bare Watch and an Acquire:
// that a guard is looked at costs at most twice as much, and 10 ms.
func TestResumes(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			events := make(chan time.Time, 1)
			watching := make(chan struct{})
			go func() {
				for e, err := range b.Watch(ctx, "bare", 0) {
					switch {
					case err != nil:
						return
					case e.Kind == "watch":
						close(watching)
					case e.Verb == "released":
						events <- time.Now()
					}
				}
			}()
			<-watching
			g := gather.New(gather.Config{Space: b})
			looks := 0
			var guarded, watched, acquired []time.Duration
			for range resumes {
				guarded = append(guarded, resumeGuard(t, ctx, a, g, &looks))
				watched = append(watched, resumeWatch(t, ctx, a, events))
				acquired = append(acquired, resumeAcquire(t, ctx, a, b))
			}
			gp50, gp99 := quantiles(guarded)
			wp50, wp99 := quantiles(watched)
			ap50, ap99 := quantiles(acquired)
			t.Logf("%s: guard p50 %s p99 %s; Watch %s, %s; Acquire %s, %s; %d results told", backend, gp50, gp99, wp50, wp99, ap50, ap99, looks)
			if most := 2*max(wp50, ap50) + 10*time.Millisecond; gp50 > most {
				t.Errorf("a guard resumes after %s, at most %s is promised", gp50, most)
			}
			if looks > 2*resumes {
				t.Errorf("%d results were told for %d resumes, two each are wanted", looks, resumes)
			}
		})
	}
}

func quantiles(list []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(list)
	return list[len(list)/2].Round(time.Microsecond), list[len(list)*99/100].Round(time.Microsecond)
}

// resumeGuard is how long after a release the guard has passed.
func resumeGuard(t *testing.T, ctx context.Context, a *holdfast.Space, g *gather.Gatherer, looks *int) time.Duration {
	h := must[*holdfast.Hold](t)(a.Mutex("guarded").Acquire(ctx))
	c := guard.LockFree("guarded")
	blocked, passed := make(chan struct{}), make(chan time.Time, 1)
	go func() {
		n := 0
		_, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour, Told: func(guard.Result) {
			if n++; n == 1 {
				close(blocked)
			}
			*looks++
		}})
		if err != nil {
			t.Error(err)
		}
		passed <- time.Now()
	}()
	<-blocked
	began := time.Now()
	ok(t, h.Release())
	return (<-passed).Sub(began)
}

func resumeWatch(t *testing.T, ctx context.Context, a *holdfast.Space, events <-chan time.Time) time.Duration {
	h := must[*holdfast.Hold](t)(a.Mutex("bare").Acquire(ctx))
	began := time.Now()
	ok(t, h.Release())
	select {
	case at := <-events:
		return at.Sub(began)
	case <-ctx.Done():
		t.Fatal("the watch is silent")
	}
	return 0
}

func resumeAcquire(t *testing.T, ctx context.Context, a, b *holdfast.Space) time.Duration {
	h := must[*holdfast.Hold](t)(a.Mutex("acquired").Acquire(ctx))
	waits, granted := make(chan struct{}), make(chan time.Time, 1)
	go func() {
		next, err := b.Mutex("acquired", holdfast.OnWait(func(int) { close(waits) })).Acquire(ctx)
		if err != nil {
			t.Error(err)
		}
		granted <- time.Now()
		next.Release()
	}()
	<-waits
	began := time.Now()
	ok(t, h.Release())
	return (<-granted).Sub(began)
}

// A watch that is broken at that moment loses nothing: the wait sees what happened
// meanwhile when it is whole again, though the re-check is an hour away.
func TestWait_BrokenWatch(t *testing.T) {
	addr := backends.Node(t)
	a := backends.Client(t, "holdfast://"+addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 3 {
		link := services.Proxy(t, addr)
		g := gather.New(gather.Config{Space: backends.Client(t, "holdfast://"+link.Addr())})
		name := fmt.Sprint("m", i)
		h := must[*holdfast.Hold](t)(a.Mutex(name).Acquire(ctx))
		blocked, done := make(chan struct{}), make(chan error, 1)
		c := guard.LockFree(name)
		go func() {
			first := true
			_, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour, Told: func(r guard.Result) {
				if first && r.Outcome == guard.Failed {
					first = false
					close(blocked)
				}
			}})
			done <- err
		}()
		<-blocked
		link.Cut()
		link.Break()
		ok(t, h.Release())
		link.Heal()
		ok(t, <-done)
	}
}
