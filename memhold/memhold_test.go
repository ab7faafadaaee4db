package memhold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/memhold"
)

func TestURLs(t *testing.T) {
	ctx := t.Context()
	first := func(url string) *holdfast.Space {
		t.Helper()
		s, err := holdfast.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b, own, other := first("mem://one"), first("mem://one"), first("mem:"), first("mem://one/two")
	for _, s := range []*holdfast.Space{a, own, other} {
		if n, err := s.Counter("n").Add(ctx, 1); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if n, _ := b.Counter("n").Load(ctx); n != 1 {
		t.Fatalf("the same name reads %d", n)
	}
	_ = a.Close()
	if n, _ := b.Counter("n").Load(ctx); n != 1 {
		t.Fatalf("after one of two closed it reads %d", n)
	}
	_ = b.Close()
	again := first("mem://one")
	if n, _ := again.Counter("n").Load(ctx); n != 0 {
		t.Fatalf("after the last one closed it reads %d", n)
	}
	for _, s := range []*holdfast.Space{own, other, again} {
		_ = s.Close()
	}
	for _, url := range []string{"mem:name", "mem://a?x=1", "mem://u@a"} {
		if _, err := holdfast.Open(ctx, url); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestOpenPanicsOnABadOption(t *testing.T) {
	defer func() {
		if r := recover(); r == nil {
			t.Fatal("no panic")
		}
	}()
	memhold.Open(holdfast.TTL(5))
}

// A hundred goroutines on a few names: the race detector sees any two inside at
// once, and every turn is taken.
func TestHundredGoroutines(t *testing.T) {
	const goroutines, turns, names = 100, 30, 5
	s := memhold.Open()
	defer s.Close()
	var counts [names]int
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range turns {
				n := (g + i) % names
				err := s.Mutex(fmt.Sprint("m", n)).Do(t.Context(), func(context.Context, *holdfast.Hold) error {
					counts[n]++
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	if sum != goroutines*turns {
		t.Fatalf("%d turns of %d", sum, goroutines*turns)
	}
}

// The same with everything that can go wrong at once: waits given up, stalls,
// sessions of their own, other clients.
func TestChaos(t *testing.T) {
	var inside [3]int
	var all sync.WaitGroup
	for g := range 40 {
		s := open(t, holdfast.Owner(fmt.Sprint("g", g)))
		all.Go(func() {
			for i := range 20 {
				n := (g + i) % len(inside)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(g*i)%7)*time.Millisecond)
				if i%5 == 4 {
					time.AfterFunc(time.Millisecond, stall(s))
				}
				err := s.Mutex(fmt.Sprint("m", n)).Do(ctx, func(context.Context, *holdfast.Hold) error {
					inside[n]++
					return nil
				})
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	s := open(t)
	for n := range inside {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if h, err := s.Mutex(fmt.Sprint("m", n)).Acquire(ctx); err != nil {
			t.Errorf("m%d is held by nobody: %v", n, err)
		} else {
			_ = h.Release()
		}
		cancel()
	}
}

// "Cancelling ctx returns at once; the wait is cancelled in the background":
// here the background is over when it returns.
func TestCancelLeavesTheQueue(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	h := acquire(t, s.Mutex("m"))
	ctx, cancel := context.WithCancelCause(t.Context())
	waits := make(chan int, 1)
	m := s.Mutex("m", holdfast.OnWait(func(position int) { waits <- position }))
	failed := make(chan error)
	go func() {
		_, err := m.Acquire(ctx)
		failed <- err
	}()
	if p := <-waits; p != 1 {
		t.Fatalf("position %d", p)
	}
	why := errors.New("changed my mind")
	cancel(why)
	if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Fatalf("got %v", err)
	}
	r, err := s.Inspect(t.Context(), "m")
	if err != nil || len(r.Waiters) != 0 || len(r.Holders) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
}

// ErrHeld tells by whom, since when and until when.
func TestHeldTellsByWhom(t *testing.T) {
	a, b := open(t, holdfast.Owner("alice"), holdfast.Meta("m")), open(t)
	h := acquire(t, a.Mutex("m"))
	_, err := b.Mutex("m").TryAcquire(t.Context())
	e, ok := errors.AsType[*holdfast.Error](err)
	if !ok || !errors.Is(err, holdfast.ErrHeld) || !holdfast.NotDone(err) || len(e.Holders) != 1 {
		t.Fatalf("%v", err)
	}
	c := e.Holders[0]
	if c.Owner != "alice" || c.Meta != "m" || holdfast.Token(c.Token) != h.Token() || c.Name != "m" || c.Held < 0 || c.Held > time.Minute {
		t.Fatalf("%+v", c)
	}
	if c.ExpiresIn <= 20*time.Second || c.ExpiresIn > 30*time.Second {
		t.Fatalf("it expires in %s", c.ExpiresIn)
	}
	if !strings.Contains(err.Error(), "held by alice") {
		t.Fatalf("%v", err)
	}
}

// No hold and no wait costs a goroutine beyond the caller's own.
func TestHoldsCostNoGoroutine(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	before := runtime.NumGoroutine()
	holds := make([]*holdfast.Hold, 1000)
	for i := range holds {
		holds[i] = acquire(t, s.Mutex(fmt.Sprint("m", i), holdfast.MaxHold(time.Hour)))
	}
	if after := runtime.NumGoroutine(); after > before+5 {
		t.Fatalf("%d goroutines for %d holds", after-before, len(holds))
	}
	runtime.KeepAlive(holds)
}

func TestPairAllocates(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m := s.Mutex("m")
	ctx := t.Context()
	allocs := testing.AllocsPerRun(1000, func() {
		h, err := m.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 15 {
		t.Fatalf("%.0f allocations for a pair", allocs)
	}
}

// A closed client answers ErrClosed, its waits too, and its watches end.
func TestClosed(t *testing.T) {
	a, b := open(t), open(t)
	acquire(t, a.Mutex("m"))
	errs := make(chan error, 2)
	queued := make(chan int, 1)
	go func() {
		_, err := b.Mutex("m", holdfast.OnWait(func(p int) { queued <- p })).Acquire(context.Background())
		errs <- err
	}()
	watching := make(chan struct{})
	go func() {
		for ev, err := range b.Watch(context.Background(), "", 0) {
			if ev.Verb == driver.VerbReady {
				close(watching)
			}
			if err != nil {
				errs <- err
			}
		}
	}()
	<-queued
	<-watching
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := b.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("got %v", err)
	}
	r, err := a.Inspect(t.Context(), "m")
	if err != nil || len(r.Waiters) != 0 {
		t.Errorf("the wait of a closed client is still there: %+v, %v", r.Waiters, err)
	}
}

// Closing ends the holds of that client only, and frees them at once.
func TestCloseFreesAtOnce(t *testing.T) {
	a, b := open(t), open(t)
	mine := acquire(t, b.Mutex("b"))
	acquire(t, a.Mutex("a"))
	_ = a.Close()
	if _, err := b.Mutex("a").TryAcquire(t.Context()); err != nil {
		t.Fatalf("not free: %v", err)
	}
	if err := mine.Err(); err != nil {
		t.Fatal(err)
	}
}

// A session of another client is not ours to keep or to end.
func TestForeignSession(t *testing.T) {
	d1, d2 := memhold.New(), memhold.New()
	defer d1.Close(t.Context())
	defer d2.Close(t.Context())
	l, err := d1.OpenSession(t.Context(), driver.Spec{TTL: time.Minute, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"keep": d2.KeepSession(t.Context(), l, 0), "end": d2.EndSession(t.Context(), l),
	} {
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d2.SessionInfo(t.Context(), &driver.SessionInfoRequest{ID: l.ID}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("info: %v", err)
	}
	if err := d1.EndSession(t.Context(), l); err != nil || !errors.Is(l.Err(), driver.ErrReleased) {
		t.Errorf("%v, %v", err, l.Err())
	}
}

// After a downgrade it is the new hold that is told of its end.
func TestDowngradedHoldIsTold(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m := s.RWMutex("m")
	write, err := m.Writer().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read, err := m.Downgrade(t.Context(), write)
	if err != nil || read.Token() != write.Token() {
		t.Fatalf("%v", err)
	}
	if _, err := s.ForceRelease(t.Context(), "m", read.Token()); err != nil {
		t.Fatal(err)
	}
	if err := read.Err(); !errors.Is(err, holdfast.ErrLost) || !strings.Contains(err.Error(), "by force") {
		t.Fatalf("the reader knows nothing: %v", err)
	}
}
