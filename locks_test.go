package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// later runs acquire beside the test and returns what it got.
func later(f func() (*holdfast.Hold, error)) <-chan got {
	ch := make(chan got, 1)
	go func() {
		h, err := f()
		ch <- got{h, err}
	}()
	synctest.Wait()
	return ch
}

// taken checks that a call gave a hold.
func taken(t testing.TB) func(*holdfast.Hold, error) *holdfast.Hold {
	return func(h *holdfast.Hold, err error) *holdfast.Hold {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
}

type got struct {
	h   *holdfast.Hold
	err error
}

func TestMutex_Concurrent(t *testing.T) {
	s, _ := open(t)
	m := s.Mutex("a")
	const workers = 20
	inside, done := 0, make(chan error, workers)
	for range workers {
		go func() {
			done <- m.Do(t.Context(), func(context.Context, *holdfast.Hold) error {
				inside++
				defer func() { inside-- }()
				if inside != 1 {
					return errors.New("two at once")
				}
				return nil
			})
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestRWMutex_Modes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.RWMutex("a")
		r1 := taken(t)(m.Reader().Acquire(t.Context()))
		r2 := taken(t)(m.Reader().TryAcquire(t.Context()))
		_, err := m.Writer().TryAcquire(t.Context())
		wantErr(t, err, holdfast.ErrHeld)
		w := later(func() (*holdfast.Hold, error) { return m.Writer().Acquire(t.Context()) })
		_, err = m.Reader().TryAcquire(t.Context())
		wantErr(t, err, holdfast.ErrHeld)
		releaseAll([]*holdfast.Hold{r1, r2})
		g := <-w
		if g.err != nil || toy.lastRequest().Wants[0].Kind != driver.RWMutex {
			t.Fatal(g.err)
		}
		_, err = m.Reader().TryAcquire(t.Context())
		wantErr(t, err, holdfast.ErrHeld)
		if err := g.h.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestRWMutex_UpgradeDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.RWMutex("a")
		r := taken(t)(m.Reader().Acquire(t.Context()))
		ctx := r.Bind(t.Context())
		w := taken(t)(m.Upgrade(t.Context(), r))
		if w.Token() <= r.Token() {
			t.Errorf("the upgrade's token %d is not above %d", w.Token(), r.Token())
		}
		wantErr(t, r.Err(), holdfast.ErrReleased)
		wantErr(t, context.Cause(ctx), holdfast.ErrReleased)
		if err := r.Release(); err != nil || toy.called("release") != 0 || w.Err() != nil {
			t.Errorf("releasing what was upgraded: %v, told %d times", err, toy.called("release"))
		}
		d := taken(t)(m.Downgrade(t.Context(), w))
		if d.Token() != w.Token() {
			t.Errorf("the downgrade's token %d is not %d", d.Token(), w.Token())
		}
		other := taken(t)(m.Reader().TryAcquire(t.Context()))
		releaseAll([]*holdfast.Hold{w, d, other})
		if toy.holders("a") != 0 {
			t.Error("still held")
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRWMutex_Upgrade_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		m := s.RWMutex("a")
		r1 := taken(t)(m.Reader().Acquire(t.Context()))
		r2 := taken(t)(m.Reader().Acquire(t.Context()))
		up := later(func() (*holdfast.Hold, error) { return m.Upgrade(t.Context(), r1) })
		_, err := m.Upgrade(t.Context(), r2)
		wantErr(t, err, holdfast.ErrConflict)
		if r2.Err() != nil {
			t.Errorf("the refused reader's hold: %v", r2.Err())
		}
		_ = r2.Release()
		if g := <-up; g.err != nil {
			t.Error(g.err)
		}
	})
}

func TestRWMutex_Upgrade_CancelKeepsTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.RWMutex("a")
		r := taken(t)(m.Reader().Acquire(t.Context()))
		other := taken(t)(m.Reader().Acquire(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Upgrade(ctx, r)
		wantErr(t, err, context.DeadlineExceeded)
		if r.Err() != nil || toy.holders("a") != 2 {
			t.Errorf("the reader: %v, %d holders", r.Err(), toy.holders("a"))
		}
		releaseAll([]*holdfast.Hold{r, other})
	})
}

// Whichever of Release and Upgrade comes first, the name is free afterwards.
func TestRWMutex_Upgrade_ReleasedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.RWMutex("a")
		r := taken(t)(m.Reader().Acquire(t.Context()))
		toy.onChange = func(driver.Change) { toy.set(func() { toy.onRelease = refuseOnce(toy) }); _ = r.Release() }
		_, err := m.Upgrade(t.Context(), r)
		wantErr(t, err, holdfast.ErrReleased)
		synctest.Wait()
		if toy.holders("a") != 0 {
			t.Error("nobody has it and it is held")
		}
	})
}

// What joins while an upgrade waits would be over with it, unreleased: it cannot. After an upgrade that failed it can.
func TestRWMutex_Upgrade_JoinedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		m := s.RWMutex("a", holdfast.Reentrant())
		r, other := taken(t)(m.Reader().Acquire(t.Context())), taken(t)(m.Reader().Acquire(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		up := func() {
			_, err := m.Upgrade(ctx, r)
			over <- err
		}
		go up()
		synctest.Wait()
		_, err := m.Reader().Acquire(r.Bind(t.Context()))
		wantErr(t, err, holdfast.ErrConflict)
		cancel()
		wantErr(t, <-over, context.Canceled)
		joined := taken(t)(m.Reader().Acquire(r.Bind(t.Context())))
		if err := errors.Join(joined.Err(), joined.Release(), r.Release(), other.Release()); err != nil {
			t.Error(err)
		}
	})
}

// refuseOnce lets one release fail, so that the old claim stays to be changed.
func refuseOnce(toy *toy) func(context.Context, string) error {
	return func(context.Context, string) error {
		toy.set(func() { toy.onRelease = nil })
		return errors.New("not now")
	}
}

func TestRWMutex_Change_Mistakes(t *testing.T) {
	s, _ := open(t)
	m, other := s.RWMutex("a"), s.RWMutex("b")
	r := taken(t)(m.Reader().Acquire(t.Context()))
	w := taken(t)(other.Writer().Acquire(t.Context()))
	both := taken(t)(s.AcquireAll(t.Context(), s.RWMutex("c").Reader().Want(), s.RWMutex("d").Reader().Want()))
	elsewhere, _ := open(t)
	tests := map[string]struct {
		m    *holdfast.RWMutex
		h    *holdfast.Hold
		up   bool
		part string
	}{
		"nil":           {m, nil, true, "nil"},
		"another name":  {other, r, true, `the hold is of "a"`},
		"a writer":      {other, w, true, "not a reader's"},
		"a reader":      {m, r, false, "not a writer's"},
		"several":       {s.RWMutex("c"), both, true, `the hold is of "c, d"`},
		"another Space": {elsewhere.RWMutex("a"), r, true, `the hold is of "a"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			change := tt.m.Downgrade
			if tt.up {
				change = tt.m.Upgrade
			}
			_, err := change(t.Context(), tt.h)
			wantInvalid(t, err, tt.part)
		})
	}
	_ = r.Release()
	_, err := m.Upgrade(t.Context(), r)
	wantErr(t, err, holdfast.ErrReleased)
}

func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.Semaphore("gpu", 40)
		a := taken(t)(m.Acquire(t.Context(), 30))
		_, err := m.TryAcquire(t.Context(), 11)
		wantErr(t, err, holdfast.ErrHeld)
		b := taken(t)(s.Semaphore("gpu", 0).TryAcquire(t.Context(), 10))
		_, err = s.Semaphore("gpu", 50).Acquire(t.Context(), 1)
		wantErr(t, err, holdfast.ErrConflict)
		if w := toy.lastRequest().Wants[0]; w.Kind != driver.Semaphore || w.Mode != driver.Shared {
			t.Errorf("asked for %+v", w)
		}
		wantErr(t, m.Delete(t.Context()), holdfast.ErrHeld)
		if err := m.SetLimit(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
		c := taken(t)(s.Semaphore("gpu", 50).TryAcquire(t.Context(), 10))
		releaseAll([]*holdfast.Hold{a, b, c})
		if err := m.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestSemaphore_Mistakes(t *testing.T) {
	s, toy := open(t)
	m := s.Semaphore("gpu", 40)
	for n, part := range map[int64]string{0: "weight 0 is below 1", -1: "weight -1 is below 1", 41: "weight 41 is above the limit 40"} {
		_, err := m.Acquire(t.Context(), n)
		wantInvalid(t, err, part)
		_, err = m.TryAcquire(t.Context(), n)
		wantInvalid(t, err, part)
		_, err = s.AcquireAll(t.Context(), m.Want(n))
		wantInvalid(t, err, part)
	}
	_, err := s.Semaphore("gpu", -1).Acquire(t.Context(), 1)
	wantInvalid(t, err, "limit -1 is negative")
	wantInvalid(t, m.SetLimit(t.Context(), 0), "limit 0 is below 1")
	if len(toy.requests) != 0 {
		t.Error("the backend heard of it")
	}
}

func TestAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m, rw, sem := s.Mutex("repo"), s.RWMutex("config"), s.Semaphore("builders", 4)
		h := taken(t)(s.AcquireAll(t.Context(), m.Want(), rw.Reader().Want(), sem.Want(2)))
		if h.Name() != "repo, config, builders" {
			t.Errorf("named %q", h.Name())
		}
		for _, name := range []string{"repo", "config", "builders"} {
			if h.TokenOf(name) != h.Token() || h.Token() == 0 {
				t.Errorf("token of %s is %d, want %d", name, h.TokenOf(name), h.Token())
			}
		}
		if h.TokenOf("other") != 0 {
			t.Error("a token for a name that is not held")
		}
		_, err := s.TryAcquireAll(t.Context(), s.Mutex("free").Want(), m.Want())
		wantErr(t, err, holdfast.ErrHeld)
		if toy.holders("free") != 0 {
			t.Error("half of a refused AcquireAll is held")
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"repo", "config", "builders"} {
			if toy.holders(name) != 0 {
				t.Errorf("%s is still held", name)
			}
		}
	})
}

// perName gives each name of an AcquireAll its own token.
type perName struct{ driver.Driver }

func (d perName) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	g, err := d.Driver.Acquire(ctx, r)
	for i := range r.Wants {
		g.Tokens = append(g.Tokens, g.Token-driver.Token(i))
	}
	return g, err
}

func TestTokenOf_PerNameAndSub(t *testing.T) {
	s := openOn(t, perName{newToy()})
	sub := s.Sub("tenant/")
	h := taken(t)(sub.AcquireAll(t.Context(), sub.Mutex("a").Want(), sub.Mutex("b").Want()))
	if h.TokenOf("a") != h.Token() || h.TokenOf("b") != h.Token()-1 || h.TokenOf("tenant/a") != 0 {
		t.Errorf("tokens %d, %d, %d", h.TokenOf("a"), h.TokenOf("b"), h.TokenOf("tenant/a"))
	}
	g := taken(t)(s.AcquireAll(t.Context(), s.Mutex("x").Want(), sub.Mutex("y").Want()))
	if g.TokenOf("tenant/y") != g.Token()-1 {
		t.Errorf("token %d", g.TokenOf("tenant/y"))
	}
}

// A Hold that joined for some names has the token of those, which a fence of another name beside them would not
// know, and knows names as the Space that was asked for it does.
func TestTokenOf_Joined(t *testing.T) {
	s := openOn(t, perName{newToy()}).With(holdfast.Reentrant())
	sub := s.Sub("t/")
	outer := taken(t)(s.AcquireAll(t.Context(), s.Mutex("z").Want(), sub.Mutex("x").Want(), sub.Mutex("y").Want()))
	ctx := outer.Bind(t.Context())
	y := taken(t)(sub.Mutex("y").Acquire(ctx))
	both := taken(t)(sub.AcquireAll(ctx, sub.Mutex("y").Want(), sub.Mutex("x").Want()))
	if y.Token() != outer.TokenOf("t/y") || both.Token() != outer.TokenOf("t/x") {
		t.Errorf("tokens %d and %d, want %d and %d", y.Token(), both.Token(), outer.TokenOf("t/y"), outer.TokenOf("t/x"))
	}
	if both.TokenOf("x") != outer.TokenOf("t/x") || both.TokenOf("t/x") != 0 {
		t.Errorf("inside, x has %d, t/x %d", both.TokenOf("x"), both.TokenOf("t/x"))
	}
}

func TestAcquireAll_Mistakes(t *testing.T) {
	s, toy := open(t)
	elsewhere, _ := open(t)
	a := s.Mutex("a")
	tests := map[string]struct {
		wants []holdfast.Want
		part  string
	}{
		"nothing":         {nil, "nothing is wanted"},
		"twice":           {[]holdfast.Want{a.Want(), s.Sub("").RWMutex("a").Reader().Want()}, `the name "a" is wanted twice`},
		"empty":           {[]holdfast.Want{{}}, "a Want is empty"},
		"another Space":   {[]holdfast.Want{elsewhere.Mutex("a").Want()}, "of another Space"},
		"own options":     {[]holdfast.Want{s.Mutex("a", holdfast.MaxHold(time.Hour)).Want()}, "t.AcquireAll(ctx, t.Mutex"},
		"of another With": {[]holdfast.Want{s.With(holdfast.MaxHold(time.Hour)).Mutex("a").Want()}, "t.AcquireAll(ctx, t.Mutex"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := s.AcquireAll(t.Context(), tt.wants...)
			wantInvalid(t, err, tt.part)
			if err == nil {
				_ = h.Release() // the next would wait for it
			}
		})
	}
	if len(toy.requests) != 0 {
		t.Error("the backend heard of it")
	}
	with := s.With(holdfast.MaxHold(time.Hour))
	h := taken(t)(with.AcquireAll(t.Context(), with.Mutex("a").Want(), with.Mutex("b").Want()))
	if toy.lastRequest().MaxHold != time.Hour || h.Err() != nil {
		t.Error("the Space's options did not reach the backend")
	}
}

// A backend may have one resource for several names.
func TestAcquireAll_Canonical(t *testing.T) {
	d := newToy()
	d.info.Canonical = func(name string) string { return name[:1] }
	s := openOn(t, d)
	_, err := s.AcquireAll(t.Context(), s.Mutex("abc").Want(), s.Mutex("axy").Want())
	wantInvalid(t, err, "wanted twice")
}

func TestLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		l := s.Latch("ready", 3)
		if left, err := l.CountDown(t.Context(), 1); left != 2 || err != nil {
			t.Errorf("%d left, %v", left, err)
		}
		opened := make(chan error, 2)
		for range 2 {
			go func() { opened <- s.Latch("ready", 0).Wait(t.Context()) }()
		}
		synctest.Wait()
		if left, err := l.Left(t.Context()); left != 2 || err != nil || len(opened) != 0 {
			t.Errorf("%d left, %v, %d passed", left, err, len(opened))
		}
		if left, err := l.CountDown(t.Context(), 5); left != 0 || err != nil {
			t.Errorf("%d left, %v", left, err)
		}
		for range 2 {
			if err := <-opened; err != nil {
				t.Error(err)
			}
		}
		if err := l.Wait(t.Context()); err != nil || toy.holders("ready") != 0 {
			t.Errorf("an open latch: %v, %d holders", err, toy.holders("ready"))
		}
		if err := l.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		_, err := l.CountDown(t.Context(), 0)
		wantInvalid(t, err, "step 0 is below 1")
		_, err = s.Latch("ready", -1).Left(t.Context())
		wantInvalid(t, err, "count -1 is negative")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = s.Latch("shut", 1).Left(t.Context())
		err = s.Latch("shut", 1).Wait(ctx)
		if got, want := err.Error(), `holdfast: wait "shut": context deadline exceeded`; got != want {
			t.Errorf("error is %q, want %q", got, want)
		}
	})
}

func TestBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		passed := make(chan error, 8)
		wait := func(n int) {
			for range n {
				go func() { passed <- s.Barrier("start", 3).Wait(t.Context()) }()
			}
			synctest.Wait()
		}
		for round := range 2 {
			wait(2)
			if len(passed) != 3*round {
				t.Fatalf("round %d: %d passed before all came", round, len(passed))
			}
			wait(1)
			if len(passed) != 3*round+3 {
				t.Fatalf("round %d: %d passed", round, len(passed))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, s.Barrier("start", 3).Wait(ctx), context.DeadlineExceeded)
		wait(2)
		if len(passed) != 6 {
			t.Error("who left was counted")
		}
		wantInvalid(t, s.Barrier("start", -1).Wait(t.Context()), "parties -1 is negative")
		if err := s.Barrier("other", 1).Delete(t.Context()); err != nil {
			t.Error(err)
		}
		_ = s.Close()
	})
}

// Shutdown waits for a hold that is upgraded or downgraded meanwhile, and for one that
// is joined.
func TestShutdown_HoldsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.RWMutex("a", holdfast.Reentrant())
		w := taken(t)(m.Writer().Acquire(t.Context()))
		over := make(chan error, 1)
		go func() { over <- s.Shutdown(t.Context()) }()
		synctest.Wait()
		r, err := m.Downgrade(t.Context(), w)
		if err != nil {
			t.Fatalf("Downgrade during Shutdown: %v", err)
		}
		if w, err = m.Upgrade(t.Context(), r); err != nil {
			t.Fatalf("Upgrade during Shutdown: %v", err)
		}
		joined, err := m.Writer().Acquire(w.Bind(t.Context()))
		if err != nil {
			t.Fatalf("a join during Shutdown: %v", err)
		}
		synctest.Wait()
		if w.Err() != nil || toy.holders("a") != 1 || toy.called("close") != 0 {
			t.Errorf("the hold: %v, %d holders, closed %d times", w.Err(), toy.holders("a"), toy.called("close"))
		}
		if err := errors.Join(joined.Release(), w.Release(), <-over); err != nil {
			t.Error(err)
		}
	})
}

// Close ends a hold that is being changed, whichever comes first.
func TestClose_WhileAHoldIsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.RWMutex("a")
		w := taken(t)(m.Writer().Acquire(t.Context()))
		toy.set(func() { toy.onChange = func(driver.Change) { _ = s.Close() } })
		r, err := m.Downgrade(t.Context(), w)
		if r != nil || !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Downgrade: %v, %v", r, err)
		}
	})
}

// deletesNothing is a driver to which everything is in use, by nobody that it can name.
type deletesNothing struct{ driver.Driver }

func (deletesNothing) Delete(context.Context, driver.ResourceKind, string) error {
	return &driver.Error{Kind: driver.ErrHeld, Outcome: driver.NotDone}
}

// A Delete that is refused because of waiters says what to wait for.
func TestDelete_InUse(t *testing.T) {
	s := openOn(t, deletesNothing{newToy()})
	err := s.Latch("ready", 3).Delete(t.Context())
	wantErr(t, err, holdfast.ErrHeld)
	if !strings.Contains(err.Error(), "when nobody holds or awaits it") {
		t.Errorf("it says %q", err)
	}
}
