package onstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
)

// A hold that was lost since it could not be renewed in time is given back as soon as the engine can be told: nobody
// has to wait until the holder is known to have ended.
func TestLostIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var away atomic.Bool
		h, err := open(t, &client{s, outage(&away)}).Mutex("m", holdfast.TTL(time.Hour)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		away.Store(true)
		<-h.Done()
		time.Sleep(5 * time.Hour)
		away.Store(false)
		time.Sleep(15 * time.Second)
		next, err := open(t, s).Mutex("m").TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("it is not given back: %v", err)
		}
		time.Sleep(2 * time.Hour)
		if err := next.Err(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	})
}

// lose takes "m" on a store that then goes away until the hold is lost, and for some hours more.
func lose(t *testing.T, s *memoryStore, away *atomic.Bool, x fault) (*holdfast.Space, *holdfast.Hold) {
	t.Helper()
	sp := open(t, &client{s, func(string, string) fault {
		if away.Load() {
			return x
		}
		return fault{}
	}})
	h, err := sp.Mutex("m", holdfast.TTL(time.Hour)).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	<-h.Done()
	time.Sleep(5 * time.Hour)
	return sp, h
}

// What was lost in an outage that is over is given back by a Close that comes before the next try does, which is not waited for.
func TestCloseGivesBackWhatWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var away atomic.Bool
		sp, _ := lose(t, s, &away, fault{before: errLink})
		away.Store(false)
		start := time.Now()
		if err := sp.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("Close took %s", took)
		}
		if _, err := open(t, s).Mutex("m").TryAcquire(t.Context()); err != nil {
			t.Errorf("it is not given back: %v", err)
		}
	})
}

// A Close during an outage is over in time, whatever was lost, and tries until then.
func TestCloseInTheOutage(t *testing.T) {
	for what, x := range map[string]fault{"refused": {before: errLink}, "no answer": {hang: true}} {
		for _, back := range []bool{true, false} {
			t.Run(what, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memoryStore) {
					var away atomic.Bool
					sp, _ := lose(t, s, &away, x)
					start, closed := time.Now(), make(chan error)
					go func() { closed <- sp.Close() }()
					time.Sleep(500 * time.Millisecond)
					away.Store(!back)
					if err := <-closed; err != nil {
						t.Error(err)
					}
					if took := time.Since(start); took > 3*time.Second {
						t.Errorf("Close took %s", took)
					}
					_, err := open(t, s).Mutex("m").TryAcquire(t.Context())
					if back && err != nil {
						t.Errorf("it is not given back: %v", err)
					}
				})
			})
		}
	}
}

// A Release of what was lost ends with its context while the engine is away, and gives it back at once when it is there again: it
// waits for no pause of what is tried in the background.
func TestReleaseOfWhatWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var away atomic.Bool
		d := onstore.New(&client{s, outage(&away)}, onstore.Options{})
		defer d.Close(t.Context())
		want := []driver.Want{{Name: "m", Kind: driver.Mutex}}
		g, err := d.Acquire(t.Context(), &driver.Request{ID: [16]byte{1}, Wants: want, Spec: driver.Spec{TTL: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		away.Store(true)
		time.Sleep(5 * time.Hour)
		if err := release1s(g.Handle); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in the outage: %v", err)
		}
		synctest.Wait()
		away.Store(false)
		start := time.Now()
		if err := g.Handle.Release(t.Context()); err != nil || time.Since(start) > 50*time.Millisecond {
			t.Errorf("after the outage: %v, after %s", err, time.Since(start))
		}
		if _, err := open(t, s).Mutex("m").TryAcquire(t.Context()); err != nil {
			t.Errorf("it is not given back: %v", err)
		}
	})
}

// release1s gives a hold back, in a second.
func release1s(h driver.Handle) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return h.Release(ctx)
}
