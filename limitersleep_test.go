package holdfast_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// sleeping are the algorithms of which a wait has its place at the backend, in the Space, and in the Space by a log.
var sleeping = []limit.Algorithm{limit.GCRA, limit.FixedWindow, limit.SlidingLog}

// changes are what makes a key as if it had never been used.
var changes = map[string]func(*testing.T, *holdfast.Limiter, limit.Rate) error{
	"Reset":   func(t *testing.T, l *holdfast.Limiter, _ limit.Rate) error { return l.Reset(t.Context(), "k") },
	"SetRate": func(t *testing.T, l *holdfast.Limiter, r limit.Rate) error { return l.SetRate(t.Context(), r) },
	"Delete":  func(t *testing.T, l *holdfast.Limiter, _ limit.Rate) error { return l.Delete(t.Context()) },
}

// waited is a caller that was served, or not, after a time.
type waited struct {
	caller int
	after  time.Duration
	err    error
}

// sleepersOf has three callers wait for a key that is used up.
func sleepersOf(t *testing.T, l *holdfast.Limiter, over chan waited) {
	if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	time.Sleep(time.Minute) // so that what they were told is less than what a new caller would be
	start := time.Now()
	for caller := range 3 {
		go func() {
			err := l.Wait(t.Context(), "k")
			over <- waited{caller, time.Since(start), err}
		}()
		synctest.Wait()
	}
}

func inMemory(t *testing.T, name string) *holdfast.Space {
	s, err := holdfast.Open(t.Context(), "mem://"+name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// "A Wait of the same Space that sleeps is told of `Reset`, `SetRate` and `Delete` at once, one of another within two seconds".
func TestLimiter_WaitersAreTold(t *testing.T) {
	for _, algorithm := range sleeping {
		for what, change := range changes {
			for _, same := range []bool{true, false} {
				t.Run(fmt.Sprint(algorithm, what, same), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { waitersAreTold(t, algorithm, change, same) })
				})
			}
		}
	}
}

func waitersAreTold(t *testing.T, algorithm limit.Algorithm, change func(*testing.T, *holdfast.Limiter, limit.Rate) error, same bool) {
	rate := limit.Rate{Count: 1, Per: time.Hour, Algorithm: algorithm}
	s := inMemory(t, "told")
	defer s.Close()
	by, within := s, time.Duration(0)
	if !same {
		by, within = inMemory(t, "told"), 2*time.Second
		defer by.Close()
	}
	over := make(chan waited, 4)
	sleepersOf(t, s.Limiter("l", rate), over)
	if err := change(t, by.Limiter("l", rate), rate); err != nil {
		t.Fatal(err)
	}
	if same { // behind the others, although they have lost their places
		go func() { over <- waited{3, 0, s.Limiter("l", rate).Wait(t.Context(), "k")} }()
	}
	if w := <-over; w.err != nil || w.caller != 0 || w.after > within {
		t.Fatalf("after it %d is served first, after %s: %v", w.caller, w.after, w.err)
	}
	for caller := 1; caller < 3; caller++ {
		if w := <-over; w.err != nil || w.caller != caller || w.after > time.Duration(caller)*time.Hour+within {
			t.Errorf("then %d is served after %s: %v", w.caller, w.after, w.err)
		}
	}
	if same {
		if w := <-over; w.err != nil {
			t.Error(w.err)
		}
	}
}

// At another rate a wait ends with ErrConflict, and one that said none goes by the new one.
func TestLimiter_WaitersAtAnotherRate(t *testing.T) {
	for _, algorithm := range sleeping {
		for _, own := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				rate := limit.Rate{Count: 1, Per: time.Hour, Algorithm: algorithm}
				s, other := inMemory(t, "rates"), inMemory(t, "rates")
				defer s.Close()
				defer other.Close()
				if _, err := s.Limiter("l", rate).Allow(t.Context(), "other"); err != nil {
					t.Fatal(err)
				}
				said := rate
				if !own {
					said = limit.Rate{}
				}
				over := make(chan waited, 3)
				sleepersOf(t, s.Limiter("l", said), over)
				if err := other.Limiter("l", rate).SetRate(t.Context(), limit.Rate{Count: 100, Per: time.Second, Algorithm: algorithm}); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if w := <-over; w.after > 2*time.Second || errors.Is(w.err, holdfast.ErrConflict) != own || w.err != nil != own {
						t.Errorf("%s: after %s: %v", algorithm, w.after, w.err)
					}
				}
			})
		}
	}
}

// Of the callers that wait for a key one looks for all, and a look costs nobody its place.
func TestLimiter_OneLooks(t *testing.T) {
	for _, algorithm := range sleeping {
		synctest.Test(t, func(t *testing.T) {
			s, d := limiting(t)
			over := make(chan waited, 3)
			sleepersOf(t, s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour, Algorithm: algorithm}), over)
			before := d.count()
			time.Sleep(time.Minute + time.Second)
			if looks := d.count() - before; looks != 30 {
				t.Errorf("%s: in a minute they have looked %d times", algorithm, looks)
			}
			for caller := range 3 {
				if w := <-over; w.err != nil || w.caller != caller {
					t.Errorf("%s: %d is served as number %d: %v", algorithm, w.caller, caller, w.err)
				}
			}
		})
	}
}
