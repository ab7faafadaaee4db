package gather_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
	"github.com/holdfast-io/holdfast/memhold"
)

// A wait does not pass on facts that were never true together: what was a yes a while ago is
// asked again before it counts.
func TestWait_Together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := guardtest.New()
		lock, check := guard.Input{Source: guard.SourceLock, Name: "prod"}, guard.Input{Source: guard.SourceCommand, Name: "healthy"}
		facts.Set(lock, guard.Fact{Is: true})
		facts.Set(check, guard.Fact{Is: true})
		g := gather.New(gather.Config{Sources: facts.Sources()})
		c := guard.All(guard.LockFree("prod"), guard.CustomCheck("healthy", ""))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan guard.Result, 1)
		go func() {
			r, _ := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour})
			done <- r
		}()
		synctest.Wait()
		facts.Lose(true)
		facts.Set(check, guard.Fact{}) // nobody tells
		facts.Lose(false)
		facts.Set(lock, guard.Fact{})
		if r := <-done; r.Outcome == guard.Passed {
			t.Errorf("passed: %s", r)
		}
	})
}

// hesitant answers, as long as it is silent, when the question is given up.
type hesitant struct {
	gather.Source
	silent atomic.Bool
}

func (h *hesitant) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	if h.silent.Load() {
		<-ctx.Done()
	}
	return h.Source.Find(ctx, inputs)
}

// A wait that ends while it asks for the rest once more has not passed.
func TestWait_EndsWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := guardtest.New()
		lock, check := guard.Input{Source: guard.SourceLock, Name: "prod"}, guard.Input{Source: guard.SourceCommand, Name: "healthy"}
		facts.Set(lock, guard.Fact{Is: true})
		facts.Set(check, guard.Fact{Is: true})
		sources := facts.Sources()
		slow := &hesitant{Source: sources[guard.SourceCommand]}
		sources[guard.SourceCommand] = slow
		g := gather.New(gather.Config{Sources: sources, Timeout: time.Hour})
		c := guard.All(guard.LockFree("prod"), guard.CustomCheck("healthy", ""))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() { slow.silent.Store(true); facts.Set(lock, guard.Fact{}) })
		r, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour})
		if r.Outcome == guard.Passed || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that ends while it asks says %s, %v", r.Outcome, err)
		}
	})
}

// hasty is a backend that tells of a release a moment before it shows it.
type hasty struct {
	driver.Driver
	mu    sync.Mutex
	known driver.InspectReply
	until time.Time // it shows what was known
}

func (h *hasty) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().Before(h.until) {
		return h.known, nil
	}
	now, err := h.Driver.Inspect(ctx, r)
	h.known = now
	return now, err
}

func (h *hasty) hide(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = time.Now().Add(d)
}

// What a backend tells a moment before it shows it is seen by a second look, whatever else
// wakes the wait, or changes its result, in that moment.
func TestWait_SecondLook(t *testing.T) {
	for after, alive := range map[time.Duration]bool{time.Millisecond: false, 50 * time.Millisecond: false, 51 * time.Millisecond: true, 0: true, 99 * time.Millisecond: false} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { secondLook(t, after, alive) })
		})
	}
}

func secondLook(t *testing.T, after time.Duration, alive bool) {
	h := &hasty{Driver: memhold.New()}
	s := must[*holdfast.Space](t)(holdfast.New(h))
	defer s.Close()
	facts, session := guardtest.New(), guard.Input{Source: guard.SourceSession, Name: "s"}
	facts.Set(session, guard.Fact{})
	g := gather.New(gather.Config{Space: s, Sources: map[guard.Source]gather.Source{guard.SourceSession: facts}})
	lock := must[*holdfast.Hold](t)(s.Mutex("a").Acquire(t.Context()))
	c := guard.All(guard.LockFree("a"), guard.SessionAlive("s"))
	var told guard.Result
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour, Told: func(r guard.Result) { told = r }})
		done <- err
	}()
	time.Sleep(time.Minute)
	h.hide(20 * time.Millisecond)
	time.AfterFunc(after, func() { facts.Set(session, guard.Fact{Is: alive}) })
	ok(t, lock.Release())
	time.Sleep(time.Second)
	synctest.Wait()
	if told.Reasons[0].Outcome != guard.Passed {
		t.Errorf("%s after the release the session is told, and the lock is %s", after, told)
	}
	cancel()
	<-done
}

// The second look is soon, so that a change which is shown a moment late costs little, and one that is shown later is
// not missed.
func TestWait_SecondLookIsSoon(t *testing.T) {
	for hidden, most := range map[time.Duration]time.Duration{5 * time.Millisecond: 20 * time.Millisecond, 60 * time.Millisecond: 110 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			h := &hasty{Driver: memhold.New()}
			s := must[*holdfast.Space](t)(holdfast.New(h))
			defer s.Close()
			lock := must[*holdfast.Hold](t)(s.Mutex("a").Acquire(t.Context()))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			time.AfterFunc(time.Minute, func() {
				h.hide(hidden)
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			})
			c, began := guard.LockFree("a"), time.Now()
			_, err := gather.New(gather.Config{Space: s}).Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour})
			if took := time.Since(began) - time.Minute; err != nil || took > most {
				t.Errorf("hidden for %s it passes after %s, %v", hidden, took, err)
			}
		})
	}
}

// A look at a source that changed nothing is not done twice: that is for backends that tell
// of a change a moment before they show it.
func TestWait_LooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := guardtest.New()
		check := guard.Input{Source: guard.SourceCommand, Name: "healthy"}
		facts.Set(check, guard.Fact{})
		g := gather.New(gather.Config{Sources: facts.Sources()})
		c := guard.CustomCheck("healthy", "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour})
			done <- err
		}()
		time.Sleep(time.Second)
		before := facts.Asked(check)
		for range 3 {
			facts.Set(check, guard.Fact{})
			time.Sleep(time.Second)
		}
		if n := facts.Asked(check) - before; n != 3 {
			t.Errorf("asked %d times after 3 events", n)
		}
		cancel()
		<-done
	})
}
