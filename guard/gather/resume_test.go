package gather_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/internal/services"
)

var bounds = flag.Bool("gather.bounds", false, "TestResumes has 200 resumes and holds their times to the bounds, which a busy machine can miss")

// resumes is how many there are.
func resumes() int {
	if *bounds {
		return 200
	}
	return 40
}

// counted is a backend that counts how often each name is looked at.
type counted struct {
	driver.Driver
	mu    sync.Mutex
	looks map[string]int
}

func (c *counted) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	c.mu.Lock()
	for _, name := range append([]string{r.Name}, r.Names...) {
		c.looks[name]++
	}
	c.mu.Unlock()
	return c.Driver.Inspect(ctx, r)
}

func (c *counted) looked(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, looks := range c.looks {
		if strings.HasPrefix(name, prefix) {
			n += looks
		}
	}
	return n
}

// settle waits until nothing has been looked at for three times the lateness.
func (c *counted) settle(ctx context.Context) {
	last, since := c.looked(""), time.Now()
	for ctx.Err() == nil && time.Since(since) < 300*time.Millisecond {
		<-time.After(10 * time.Millisecond)
		if n := c.looked(""); n != last {
			last, since = n, time.Now()
		}
	}
}

// countedClient is a Space of which it is known what it looks at.
func countedClient(t *testing.T, url string) (*holdfast.Space, *counted) {
	t.Helper()
	c := &counted{Driver: must[driver.Driver](t)(driver.Open(t.Context(), url)), looks: map[string]int{}}
	s := must[*holdfast.Space](t)(holdfast.New(c))
	t.Cleanup(func() { s.Close() })
	return s, c
}

// Many times a guard resumes because a lock is released, with the re-check an hour away.
// Beside it, in the same run and woken by the same release, a bare Watch and an Acquire:
// that a guard is looked at costs at most twice as much, and 10 ms, which the proof judges. Other guards, which wait
// for other locks, are not looked at for that: their looks, up to three each, follow the start of the wider watch of the first
// resume, before which anything may have changed, the last 100 ms after it (see lateness). They are let pass before it is counted.
func TestResumes(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			url := backends.URL(t, backend)
			a, b := backends.Client(t, url), backends.Client(t, url)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			events := releases(ctx, b)
			s, seen := countedClient(t, url)
			g := gather.New(gather.Config{Space: s})
			defer others(t, ctx, a, g)()
			looks := 0
			var guarded, watched, acquired []time.Duration
			resumeGuard(t, ctx, a, g, new(int)) // widens the watch, after which everything is looked at, and twice more a moment later
			seen.settle(ctx)
			before, own := seen.looked("other"), seen.looked("guarded")
			for range resumes() {
				guarded = append(guarded, resumeGuard(t, ctx, a, g, &looks))
				watched = append(watched, resumeWatch(t, ctx, a, events))
				acquired = append(acquired, resumeAcquire(t, ctx, a, b))
			}
			others, own := seen.looked("other")-before, seen.looked("guarded")-own
			gp50, gp99 := quantiles(guarded)
			wp50, wp99 := quantiles(watched)
			ap50, ap99 := quantiles(acquired)
			t.Logf("proof: %s: a guard resumes after p50 %s, p99 %s; a bare Watch tells after %s, %s, an Acquire is granted after %s, %s; %d looks for %d resumes, %d at what %d other guards wait for", backend, gp50, gp99, wp50, wp99, ap50, ap99, own, resumes(), others, besides)
			if most := 2*max(wp50, ap50) + 10*time.Millisecond; *bounds && gp50 > most {
				t.Errorf("a guard resumes after %s, at most %s is promised", gp50, most)
			}
			most := 7 * resumes() // one when the wait begins, and three for each of two events, where all of it is slow
			if *bounds {
				within(t, backend, gp99, 2*max(wp99, ap99)+10*time.Millisecond)
				most = 3 * resumes()
			}
			if looks > 2*resumes() || own > most || others > 3*besides {
				t.Errorf("%d results were told for %d resumes, two each are wanted; %d looks, and %d at what others wait for", looks, resumes(), own, others)
			}
		})
	}
}

// within holds the slowest hundredth to its bound.
func within(t *testing.T, backend string, p99, most time.Duration) {
	t.Helper()
	if backend == "memory" || backend == "file" {
		most = min(most, 100*time.Millisecond)
	}
	if p99 > most {
		t.Errorf("1 of 100 resumes after %s or more, at most %s is promised", p99, most)
	}
}

// releases tells when a watch does.
func releases(ctx context.Context, s *holdfast.Space) <-chan time.Time {
	events, watching := make(chan time.Time, 1), make(chan struct{})
	go func() {
		for e, err := range s.Watch(ctx, "bare", 0) {
			switch {
			case err != nil:
				return
			case e.Kind == "watch" && e.Verb == "ready":
				close(watching)
			case e.Verb == "released":
				events <- time.Now()
			}
		}
	}()
	<-watching
	return events
}

// besides is how many other guards wait.
const besides = 20

// others are guards that wait for locks which nobody releases; end ends them.
func others(t *testing.T, ctx context.Context, a *holdfast.Space, g *gather.Gatherer) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var holds []*holdfast.Hold
	for i := range besides {
		name := fmt.Sprint("other", i)
		holds = append(holds, must[*holdfast.Hold](t)(a.Mutex(name).Acquire(ctx)))
		c := guard.LockFree(name)
		blocked := make(chan struct{})
		all.Go(func() {
			_, _ = g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour, Told: func(guard.Result) { close(blocked) }}) // ends with ctx
		})
		<-blocked
	}
	return func() {
		cancel()
		all.Wait()
		for _, h := range holds {
			ok(t, h.Release())
		}
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
