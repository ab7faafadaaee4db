package holdfast_test

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

func init() {
	driver.Register("toy", func(_ context.Context, u *url.URL) (driver.Driver, error) {
		if u.Host == "down" {
			return nil, &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, RetryAfter: time.Second}
		}
		return opened, nil
	})
}

// opened is what the next Open of a toy: URL gets.
var opened *toy

func TestOpen(t *testing.T) {
	opened = newToy()
	s, err := holdfast.Open(t.Context(), "toy://host", holdfast.Require("fencing", "fifo"), holdfast.TTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil || opened.called("ping") != 1 {
		t.Errorf("Ping: %v", err)
	}
	if info := s.Info(); info.Scheme != "toy" || !info.Features[driver.FeatureFIFO] {
		t.Errorf("Info is %+v", info)
	}
	s.Info().Features[driver.FeatureFIFO] = false
	if !s.Info().Features[driver.FeatureFIFO] {
		t.Error("a caller changed the Space's own Info")
	}
	if err := s.Close(); err != nil || opened.called("close") != 1 {
		t.Errorf("Close: %v, closed %d times", err, opened.called("close"))
	}
	wantErr(t, s.Ping(t.Context()), holdfast.ErrClosed)
}

func TestOpen_Fails(t *testing.T) {
	opened = newToy()
	tests := map[string]struct {
		url  string
		opts []holdfast.Option
		kind error
		text string
	}{
		"unknown scheme":  {"nope://u:secret@h", nil, fs.ErrInvalid, `open "nope://u:xxxxx@h": invalid argument: no backend for the scheme "nope"; known:`},
		"no URL":          {"://secret", nil, fs.ErrInvalid, "open: invalid argument: not a URL"},
		"backend down":    {"toy://down", nil, holdfast.ErrUnavailable, "holdfast: open: unavailable: try again in 1s"},
		"missing feature": {"toy://h", []holdfast.Option{holdfast.Require("fifo", "lost-first", "nonsense")}, errors.ErrUnsupported, `the toy backend lacks ["lost-first" "nonsense"]; it has ["all"`},
		"bad TTL":         {"toy://h", []holdfast.Option{holdfast.TTL(5)}, fs.ErrInvalid, "5*time.Second"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := holdfast.Open(t.Context(), tt.url, tt.opts...)
			wantErr(t, err, tt.kind)
			if !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error is %v; want %s and no password", err, tt.text)
			}
		})
	}
	if n := opened.called("close"); n != 2 {
		t.Errorf("%d of 2 backends were closed after Open failed", n)
	}
	_, err := holdfast.New(nil)
	wantInvalid(t, err, "nil")
}

// Every call on an absent feature is errors.ErrUnsupported, names feature and
// backend, and does not ask the backend.
func TestUnsupported(t *testing.T) {
	bare := newToy([]driver.Feature{}...)
	bare.info.Features = map[driver.Feature]bool{}
	s := openOn(t, bare)
	ctx := t.Context()
	hold := func(_ *holdfast.Hold, err error) error { return err }
	calls := map[driver.Feature]func() error{
		driver.FeatureShared:   func() error { return hold(s.RWMutex("a").Reader().Acquire(ctx)) },
		driver.FeatureUpgrade:  func() error { return hold(s.RWMutex("a").Upgrade(ctx, nil)) },
		driver.FeatureWeighted: func() error { return hold(s.Semaphore("a", 1).Acquire(ctx, 1)) },
		driver.FeatureResize:   func() error { return s.Semaphore("a", 1).SetLimit(ctx, 2) },
		driver.FeatureForce:    func() error { _, err := s.ForceRelease(ctx, "a", 1); return err },
		driver.FeatureMaxHold:  func() error { return hold(s.Mutex("a", holdfast.MaxHold(time.Hour)).Acquire(ctx)) },
		driver.FeatureMinHold:  func() error { return hold(s.Mutex("a", holdfast.MinHold(time.Hour)).Acquire(ctx)) },
		driver.FeatureDelay:    func() error { return hold(s.Mutex("a", holdfast.Delay(time.Hour)).Acquire(ctx)) },
		driver.FeatureAll:      func() error { return hold(s.AcquireAll(ctx, s.Mutex("a").Want(), s.Mutex("b").Want())) },
		driver.FeatureCounter:  func() error { _, err := s.Counter("a").Add(ctx, 1); return err },
		driver.FeatureSequence: func() error { _, err := s.Sequence("a").Next(ctx); return err },
		driver.FeatureKV:       func() error { _, err := s.KV().Get(ctx, "a"); return err },
		driver.FeatureTxn: func() error {
			_, err := s.KV().Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.GetOp("a"), holdfast.GetOp("b")}})
			return err
		},
		driver.FeatureWatch:    func() error { return lastError(s.Watch(ctx, "", 0)) },
		driver.FeatureHistory:  func() error { return lastError(s.Watch(ctx, "", 1)) },
		driver.FeatureElection: func() error { _, err := s.Election("a").Campaign(ctx, nil); return err },
		driver.FeatureLatch:    func() error { return s.Latch("a", 1).Wait(ctx) },
		driver.FeatureSession:  func() error { _, err := s.Session(ctx); return err },
	}
	for f, call := range calls {
		err := call()
		wantErr(t, err, errors.ErrUnsupported)
		e, ok := errors.AsType[*holdfast.Error](err)
		if !ok || e.Op == "" || !holdfast.NotDone(err) {
			t.Errorf("%s: %#v", f, err)
		}
		if text := err.Error(); !strings.Contains(text, `the toy backend has no "`+string(f)+`"`) {
			t.Errorf("%s: %s", f, text)
		}
	}
	wantErr(t, hold(s.Mutex("a", holdfast.ManualRenew()).Acquire(ctx)), errors.ErrUnsupported)
	if len(bare.requests) != 0 {
		t.Error("the backend was asked")
	}
	if _, err := s.Mutex("a").Acquire(ctx); err != nil {
		t.Errorf("a mutex needs no feature: %v", err)
	}
}

// traced wraps a driver as a tracing layer would.
type traced struct{ driver.Driver }

// Scenario 25: a wrapper keeps every ability of what it wraps.
func TestWrapper_KeepsAbilities(t *testing.T) {
	s := openOn(t, traced{newToy()})
	if n, err := s.Counter("a").Add(t.Context(), 3); err != nil || n != 3 {
		t.Errorf("Counter.Add through a wrapper: %d, %v", n, err)
	}
}

// declared says that it can do everything and does nothing.
type declared struct {
	driver.Base
	info driver.Info
}

func (d declared) Info() driver.Info { return d.info }

// A driver that answers a bare errors.ErrUnsupported is spelled out too.
func TestUnsupported_ByTheDriver(t *testing.T) {
	s := openOn(t, declared{info: newToy().info})
	_, err := s.Counter("a").Add(t.Context(), 1)
	wantErr(t, err, errors.ErrUnsupported)
	if got, want := err.Error(), `holdfast: add "a": unsupported operation: the toy backend has no "counter" for this`; got != want {
		t.Errorf("error is %q, want %q", got, want)
	}
	err = s.Ping(t.Context())
	if got, want := err.Error(), `holdfast: ping: unsupported operation: the toy backend cannot do it`; got != want {
		t.Errorf("error is %q, want %q", got, want)
	}
}

func TestSpace_Sub(t *testing.T) {
	s, toy := open(t)
	sub := s.Sub("tenant/").Sub("7/")
	h := acquire(t, sub.Mutex("jobs"))
	if h.Name() != "tenant/7/jobs" || toy.holders("tenant/7/jobs") != 1 {
		t.Errorf("held %q", h.Name())
	}
	if err := sub.Close(); err != nil || s.Ping(t.Context()) != nil {
		t.Errorf("closing a Sub closed the Space: %v", err)
	}
	wantInvalid(t, sub.Shutdown(t.Context()), "only the Space that Open returned")
	if n := countOf(sub); n != 1 {
		t.Errorf("the Sub lists %d names", n)
	}
}

func countOf(s *holdfast.Space) (n int) {
	for range s.List(context.Background(), "") {
		n++
	}
	return n
}

// Close tells every holder before the backend lets anybody else in.
func TestSpace_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		h := acquire(t, s.Mutex("a"))
		ctx := h.Bind(t.Context())
		toy.onClose = func() {
			wantErr(t, h.Err(), holdfast.ErrLost)
			wantErr(t, ctx.Err(), context.Canceled)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, h.Err(), holdfast.ErrClosed)
		wantErr(t, context.Cause(ctx), holdfast.ErrClosed)
		wantErr(t, h.Release(), holdfast.ErrLost)
		if err := s.Close(); err != nil || toy.called("close") != 1 {
			t.Errorf("second Close: %v, closed %d times", err, toy.called("close"))
		}
		for what, call := range callsWith(t, s, "a") {
			if what == "Compare" || what == "Buffered" {
				continue // wrong by itself; counts in the process
			}
			if err := call(); !errors.Is(err, holdfast.ErrClosed) || !holdfast.NotDone(err) {
				t.Errorf("%s after Close: %v", what, err)
			}
		}
	})
}

// A waiter of a Space that closes is told so.
func TestSpace_Close_EndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		h := acquire(t, s.Mutex("a"))
		defer h.Release()
		errs := make(chan error)
		go func() {
			_, err := s.Mutex("a").Acquire(t.Context())
			errs <- err
		}()
		synctest.Wait()
		_ = s.Close()
		wantErr(t, <-errs, holdfast.ErrClosed)
	})
}

func TestSpace_Shutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		h := acquire(t, s.Mutex("a"))
		time.AfterFunc(time.Minute, func() {
			_, err := s.Mutex("b").Acquire(t.Context())
			wantErr(t, err, holdfast.ErrClosed)
			if _, err := s.Counter("c").Add(t.Context(), 1); err != nil {
				t.Errorf("what is held needs the backend until it is given back: %v", err)
			}
			if err := h.Release(); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Minute || toy.called("close") != 1 {
			t.Errorf("Shutdown took %s", took)
		}
	})
}

// A release that is under way is answered before the backend is closed.
func TestSpace_Shutdown_WaitsForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		h := acquire(t, s.Mutex("a"))
		toy.set(func() {
			toy.onRelease = func(context.Context, string) error {
				time.Sleep(time.Second)
				if toy.called("close") != 0 {
					t.Error("the backend was closed while a release was under way")
				}
				return nil
			}
		})
		go func() {
			if err := h.Release(); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if toy.holders("a") != 0 {
			t.Error("still held")
		}
	})
}

func TestSpace_Shutdown_Impatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		h := acquire(t, s.Mutex("a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Shutdown(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		if got, want := err.Error(), `holdfast: shutdown: context deadline exceeded: closed with 1 holds left, the first "a"`; got != want {
			t.Errorf("error is %q, want %q", got, want)
		}
		wantErr(t, h.Err(), holdfast.ErrClosed)
		if toy.called("close") != 1 {
			t.Error("not closed")
		}
	})
}

// A grant that arrives while the Space drains is given back.
func TestSpace_Shutdown_LateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		h := acquire(t, s.Mutex("a"))
		errs := make(chan error, 1)
		go func() {
			_, err := s.Mutex("a").Acquire(t.Context())
			errs <- err
		}()
		synctest.Wait()
		time.AfterFunc(time.Second, func() { _ = h.Release() })
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-errs, holdfast.ErrClosed)
		if toy.holders("a") != 0 {
			t.Error("still held")
		}
	})
}

func TestAcquire_CancelReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		h := acquire(t, s.Mutex("a"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := s.Mutex("a").Acquire(ctx)
		wantErr(t, err, context.Canceled)
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %s", took)
		}
		if got, want := err.Error(), `holdfast: acquire "a": context canceled`; got != want {
			t.Errorf("error is %q, want %q", got, want)
		}
		if toy.waiters("a") != 0 {
			t.Error("still queued")
		}
		asked := len(toy.requests)
		_, err = s.Mutex("a").Acquire(ctx)
		wantErr(t, err, context.Canceled)
		if len(toy.requests) != asked || !holdfast.NotDone(err) {
			t.Error("the backend was asked with a context that had ended")
		}
		_ = h.Release()
	})
}

func TestTryAcquire_Held(t *testing.T) {
	s, _ := open(t, holdfast.Owner("node-7"))
	h := acquire(t, s.Mutex("jobs/nightly"))
	_, err := s.Mutex("jobs/nightly").TryAcquire(t.Context())
	wantErr(t, err, holdfast.ErrHeld)
	e, ok := errors.AsType[*holdfast.Error](err)
	if !ok || len(e.Holders) != 1 || e.Holders[0].Owner != "node-7" || e.Holders[0].Token != h.Token() {
		t.Errorf("holders are %+v", e)
	}
	if !holdfast.NotDone(err) {
		t.Error("a refusal is not NotDone")
	}
}
