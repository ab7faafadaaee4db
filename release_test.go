package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// faults collects what Hooks.Fault is told.
type faults struct {
	mu   sync.Mutex
	errs []error
}

func (f *faults) hook() holdfast.Hooks {
	return holdfast.Hooks{Fault: func(op, name string, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
	}}
}

func (f *faults) all() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs
}

// gone is a backend that does not answer.
func gone(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }

// Scenario 22: 20 deferred Releases with the backend gone and a TTL of 30 s must
// not block ten minutes.
// Promise: "blocks at most min(time left, 5 s)".
func TestRelease_BlocksAtMost(t *testing.T) {
	for ttl, most := range map[time.Duration]time.Duration{time.Hour: 5 * time.Second, 3 * time.Second: 3 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, toy := open(t, holdfast.TTL(ttl))
				toy.onRelease = gone
				toy.Stall()
				h := acquire(t, s.Mutex("a"))
				d, _ := h.Deadline()
				most = min(most, driver.Until(d))
				start := time.Now()
				err := h.Release()
				if took := time.Since(start); took != most {
					t.Errorf("Release took %s, want %s", took, most)
				}
				wantErr(t, err, holdfast.ErrUnavailable)
				if holdfast.NotDone(err) {
					t.Error("the outcome is unknown, not NotDone")
				}
			})
		})
	}
}

// The error tells the time that was seen and its cause, not the time that there was.
func TestRelease_TellsWhatWasSeen(t *testing.T) {
	broken := &driver.Error{Kind: driver.ErrUnavailable, Err: errors.New("connection reset")}
	for want, on := range map[string]func(context.Context, string) error{
		"not answered in 5s; going on in the background: ": gone,
		"failed after 30ms; going on in the background: ": func(context.Context, string) error {
			time.Sleep(30 * time.Millisecond)
			return broken
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, toy := open(t, holdfast.TTL(time.Hour))
			toy.onRelease = on
			err := acquire(t, s.Mutex("a")).Release()
			wantErr(t, err, holdfast.ErrUnavailable)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want %q", err, want)
			}
		})
	}
}

// Then it goes on in the background, as long as the session lives: otherwise a
// lost answer would leave the name held for as long as the process lives.
func TestRelease_GoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, toy := open(t, f.hook())
		back := time.Now().Add(10 * time.Minute)
		toy.onRelease = func(ctx context.Context, _ string) error {
			if time.Now().Before(back) {
				return &driver.Error{Kind: driver.ErrUnavailable}
			}
			return nil
		}
		h := acquire(t, s.Mutex("a"))
		wantErr(t, h.Release(), holdfast.ErrUnavailable)
		if next := acquire(t, s.Mutex("a")); time.Now().Before(back) {
			t.Errorf("granted %v before the release was heard", next)
		}
		if errs := f.all(); len(errs) != 0 {
			t.Errorf("a release that succeeded was reported: %v", errs)
		}
	})
}

// A backend that is closed for good is not told again.
func TestRelease_ClosedBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		tries := 0
		toy.onRelease = func(context.Context, string) error {
			tries++
			return &driver.Error{Kind: driver.ErrUnavailable, Err: driver.ErrClosed}
		}
		wantErr(t, acquire(t, s.Mutex("a")).Release(), holdfast.ErrClosed)
		time.Sleep(time.Minute)
		if tries != 1 {
			t.Errorf("it was told %d times", tries)
		}
	})
}

func TestRelease_BackgroundFailureIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, toy := open(t, f.hook())
		denied := errors.New("denied")
		tries := 0
		toy.onRelease = func(context.Context, string) error {
			if tries++; tries < 3 {
				return &driver.Error{Kind: driver.ErrUnavailable}
			}
			return denied
		}
		_ = acquire(t, s.Mutex("a")).Release()
		time.Sleep(time.Minute)
		if errs := f.all(); len(errs) != 1 || !errors.Is(errs[0], denied) {
			t.Errorf("reported %v, want the denial once", errs)
		}
	})
}

// With the session over there is nothing left to release, whether the backend
// is silent or refuses.
func TestRelease_BackgroundEndsWithTheSession(t *testing.T) {
	refuse := func(context.Context, string) error { return &driver.Error{Kind: driver.ErrUnavailable} }
	for name, backend := range map[string]func(context.Context, string) error{"silent": gone, "refusing": refuse} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, toy := open(t, holdfast.TTL(10*time.Second))
				var last time.Time
				inside := 0
				toy.onRelease = func(ctx context.Context, name string) error {
					last = time.Now()
					inside++
					defer func() { inside-- }()
					return backend(ctx, name)
				}
				h := acquire(t, s.Mutex("a"))
				toy.Stall()
				_ = h.Release()
				time.Sleep(time.Minute)
				synctest.Wait()
				if since := time.Since(last); since < 50*time.Second || inside != 0 {
					t.Errorf("last told %s ago, and %d wait for an answer", since, inside)
				}
			})
		})
	}
}

// Close ends what goes on in the background; synctest fails if it does not.
func TestRelease_BackgroundEndsWithTheSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		toy.onRelease = gone
		_ = acquire(t, s.Mutex("a")).Release()
		start := time.Now()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %s", took)
		}
	})
}

// A refusal is an answer: nobody asks again.
func TestRelease_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		denied, asked := errors.New("denied"), 0
		toy.onRelease = func(context.Context, string) error { asked++; return denied }
		wantErr(t, acquire(t, s.Mutex("a")).Release(), denied)
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

func TestRelease_TheEngineKnewBetter(t *testing.T) {
	s, toy := open(t)
	toy.onRelease = func(context.Context, string) error { return driver.ErrLost }
	err := acquire(t, s.Mutex("a")).Release()
	wantErr(t, err, holdfast.ErrLost)
	if got, want := err.Error(), `holdfast: release "a": lost`; got != want {
		t.Errorf("error is %q, want %q", got, want)
	}
}
