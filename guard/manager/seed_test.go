package manager_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/internal/backends"
)

// own are the backends of our own engine: they know stale holders, and tell of denials.
var own = map[string]bool{"memory": true, "node": true}

// told reads what is told of a name, step by step.
type told struct {
	t    *testing.T
	next func() (holdfast.Event, error, bool)
}

// of begins to read.
func of(t *testing.T, s *holdfast.Space, name string) *told {
	t.Helper()
	next, stop := iter.Pull2(s.Watch(t.Context(), name, 0, holdfast.ExactName()))
	t.Cleanup(stop)
	w := &told{t, next}
	w.is("watch:ready")
	return w
}

// one is the next event; that somebody waits is no transition.
func (w *told) one() string {
	w.t.Helper()
	for {
		if e, err, _ := w.next(); err != nil || e.Verb != "queued" {
			ok(w.t, err)
			return e.Kind + ":" + e.Verb
		}
	}
}

// is expects an event.
func (w *told) is(want string) {
	w.t.Helper()
	if got := w.one(); got != want {
		w.t.Fatalf("told is %s; want %s", got, want)
	}
}

// The seed: "Events emitted correctly for all transitions", "Acquire+Free → Held, emit LockAcquired",
// "Acquire+Held+!stale → emit LockDenied", "Release (matching holder) → Free, emit LockReleased", "Acquisition succeeds
// when slots available", "Release: remove holder → SemaphoreReleased", "Lock/semaphore operations work through manager":
// on every backend, where the manager tells of a denial that the backend does not tell.
func TestTransitions(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			m, ctx := manage(t, a), t.Context()
			ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 3}))
			lock, slots := of(t, b, "main"), of(t, b, "agents")
			events, stop := iter.Pull2(m.Events(ctx))
			defer stop()
			events()
			denied := func(w *told, kind string) {
				t.Helper()
				if own[backend] || backend == "file" && kind == "semaphore" {
					w.is(kind + ":denied")
				}
				if own[backend] {
					return
				}
				if e, err, _ := events(); err != nil || e.String() != kind+":denied" || e.Holder != "w2" {
					t.Fatalf("told is %+v, %v", e, err)
				}
			}
			must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", ""))
			lock.is("lock:acquired")
			_, err := m.AcquireLock(ctx, "main", "w2", "")
			refused(t, err, holdfast.ErrHeld)
			denied(lock, "lock")
			refused(t, m.ReleaseLock(ctx, "main", "w2"), holdfast.ErrLost) // tells nothing
			ok(t, m.HeartbeatLock(ctx, "main", "w1"))                      // neither
			ok(t, m.ReleaseLock(ctx, "main", "w1"))
			lock.is("lock:released")
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 2, ""))
			slots.is("semaphore:acquired")
			_, err = m.AcquireSemaphore(ctx, "agents", "w2", 2, "")
			refused(t, err, holdfast.ErrHeld)
			denied(slots, "semaphore")
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w3", 1, ""))
			slots.is("semaphore:acquired")
			ok(t, m.ReleaseSemaphore(ctx, "agents", "w1"))
			slots.is("semaphore:released")
		})
	}
}

// The seed: "Heartbeat → refresh last_heartbeat", "Heartbeat: refresh last_heartbeat", "Tick+stale → emit LockStale
// warning", "Tick: emit SemaphoreStale warnings for stale holders", "Acquire+Held+stale → reclaim, emit LockReclaimed +
// LockAcquired", "Acquire: reclaim stale slots first, then grant if available → SemaphoreAcquired or SemaphoreDenied",
// "Stale holders are reclaimed on next acquire": on memory and a node, by their clocks. Elsewhere a threshold is refused
// (see TestStale_Backends).
func TestStale_Transitions(t *testing.T) {
	t.Parallel()
	for backend := range own {
		t.Run(backend, func(t *testing.T) {
			t.Parallel() // it waits
			a, b := backends.Open(t, backend)
			m, other, ctx := manage(t, a), manage(t, b), t.Context()
			for _, m := range []*manager.Manager{m, other} {
				ok(t, m.EnsureLock(manager.LockConfig{Name: "main", StaleThreshold: 4 * time.Second}))
				ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 3, StaleThreshold: 4 * time.Second}))
			}
			refreshed(t, m, b)
			lock, slots := of(t, b, "main"), of(t, b, "agents")
			old := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", ""))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 3, ""))
			lock.is("lock:acquired")
			lock.is("lock:stale") // nobody says anything more
			slots.is("semaphore:acquired")
			slots.is("semaphore:stale")
			if now := must[holdfast.Token](t)(other.AcquireLock(ctx, "main", "w2", "")); now <= old {
				t.Errorf("the token %d came after %d", now, old)
			}
			lock.is("lock:reclaimed")
			lock.is("lock:acquired")
			must[holdfast.Token](t)(other.AcquireSemaphore(ctx, "agents", "w2", 3, ""))
			slots.is("semaphore:reclaimed")
			slots.is("semaphore:acquired")
			refused(t, m.ReleaseLock(ctx, "main", "w1"), holdfast.ErrLost)
			refused(t, m.ReleaseSemaphore(ctx, "agents", "w1"), holdfast.ErrLost)
		})
	}
}

// refreshed expects that a heartbeat puts off the end of what is held. Its holder is not stale before, however busy the
// machine is.
func refreshed(t *testing.T, m *manager.Manager, s *holdfast.Space) {
	t.Helper()
	ctx := t.Context()
	ok(t, m.EnsureLock(manager.LockConfig{Name: "kept"}))
	ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "kept slots", MaxSlots: 3}))
	must[holdfast.Token](t)(m.AcquireLock(ctx, "kept", "w1", ""))
	must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "kept slots", "w1", 3, ""))
	before, slots := ends(t, s, "kept"), ends(t, s, "kept slots")
	ok(t, m.HeartbeatLock(ctx, "kept", "w1"))
	ok(t, m.HeartbeatSemaphore(ctx, "kept slots", "w1"))
	if after := ends(t, s, "kept"); !after.After(before) {
		t.Errorf("before a heartbeat it ended at %s, then at %s", before, after)
	}
	if after := ends(t, s, "kept slots"); !after.After(slots) {
		t.Errorf("before a heartbeat the slots ended at %s, then at %s", slots, after)
	}
}

// ends is when the first holder of a name ends.
func ends(t *testing.T, s *holdfast.Space, name string) time.Time {
	t.Helper()
	r := must[holdfast.Resource](t)(s.Inspect(t.Context(), name))
	if len(r.Holders) != 1 || r.Holders[0].ExpiresIn <= 0 {
		t.Fatalf("%s is held by %+v", name, r.Holders)
	}
	return time.Now().Add(r.Holders[0].ExpiresIn)
}

// The seed: "Maintenance task runs at configured interval", "Stale reclaim releases resources", "Stale holders reclaimed
// during maintenance", "Maintenance task reclaims stale resources": on memory and a node, though nobody wants it.
func TestMaintenance_Backends(t *testing.T) {
	t.Parallel()
	for backend := range own {
		t.Run(backend, func(t *testing.T) {
			t.Parallel() // it waits
			a, b := backends.Open(t, backend)
			m := must[*manager.Manager](t)(manager.New(manager.Config{Space: a, Interval: 50 * time.Millisecond}))
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- m.Run(ctx) }()
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 3, StaleThreshold: 4 * time.Second}))
			slots := of(t, b, "agents")
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 3, ""))
			slots.is("semaphore:acquired")
			if e := slots.one(); e == "semaphore:stale" { // the manager may know that a moment before the engine says so
				slots.is("semaphore:revoked")
			} else if e != "semaphore:revoked" {
				t.Fatalf("told is %s", e)
			}
			slots.is("semaphore:expired") // its holder is not waited for
			if r := must[holdfast.Resource](t)(b.Inspect(ctx, "agents")); r.Used != 0 {
				t.Errorf("%d are used", r.Used)
			}
			cancel()
			ok(t, <-ran)
			ok(t, m.Close())
		})
	}
}

// The seed: "No state corruption under concurrent access", on every backend: many callers of two managers, one holder at a
// time, and never more than there are slots.
func TestConcurrent_Backends(t *testing.T) {
	const slots = 3
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			ms := []*manager.Manager{manage(t, a), manage(t, b)}
			for _, m := range ms {
				ok(t, m.EnsureLock(manager.LockConfig{Name: "x"}))
				ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "y", MaxSlots: slots}))
			}
			var locked, used, grants atomic.Int64
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					for n := range 10 {
						if err := both(t.Context(), ms[i%2], fmt.Sprint("w", i), int64(1+(n+i)%slots), &locked, &used, &grants); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			for _, name := range []string{"x", "y"} {
				if r := must[holdfast.Resource](t)(a.Inspect(t.Context(), name)); len(r.Holders) > 0 || grants.Load() == 0 {
					t.Errorf("after %d grants %s is held by %+v", grants.Load(), name, r.Holders)
				}
			}
		})
	}
}

// both tries for the lock and for the semaphore, and gives back what it got.
func both(ctx context.Context, m *manager.Manager, holder string, weight int64, locked, used, grants *atomic.Int64) error {
	var errs []error
	if _, err := m.AcquireLock(ctx, "x", holder, ""); err == nil {
		if grants.Add(1); locked.Add(1) > 1 {
			errs = append(errs, errors.New("two hold the lock"))
		}
		locked.Add(-1)
		errs = append(errs, m.ReleaseLock(ctx, "x", holder))
	} else if !errors.Is(err, holdfast.ErrHeld) {
		errs = append(errs, err)
	}
	if _, err := m.AcquireSemaphore(ctx, "y", holder, weight, ""); err == nil {
		if n := used.Add(weight); n > 3 {
			errs = append(errs, fmt.Errorf("%d slots are used", n))
		}
		used.Add(-weight)
		errs = append(errs, m.ReleaseSemaphore(ctx, "y", holder))
	} else if !errors.Is(err, holdfast.ErrHeld) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
