package manager_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/memhold"
)

// Stale holders are known on memory and a node; elsewhere a threshold is refused. The seed: "Stale locks can be
// reclaimed".
func TestStale_Backends(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, _ := backends.Open(t, backend)
			m, ctx := manage(t, a), t.Context()
			err := m.EnsureLock(manager.LockConfig{Name: "main", StaleThreshold: time.Second})
			if backend == "file" || backend == "PostgreSQL" {
				refused(t, err, errors.ErrUnsupported)
				refused(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "s", MaxSlots: 1, StaleThreshold: time.Second}), errors.ErrUnsupported)
				return
			}
			ok(t, err)
			token := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", ""))
			next := must[*holdfast.Hold](t)(a.Mutex("main").Acquire(ctx)) // granted when w1 is stale
			defer next.Release()
			if next.Token() <= token {
				t.Errorf("the token %d came after %d", next.Token(), token)
			}
			refused(t, m.HeartbeatLock(ctx, "main", "w1"), holdfast.ErrLost)
			if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 1 || found[0].Holder != "w1" {
				t.Errorf("maintenance found %+v", found)
			}
			if err := next.Err(); err != nil {
				t.Errorf("maintenance hit the next holder: %v", err)
			}
		})
	}
}

// The seed: "Stale locks can be reclaimed", "Heartbeat refreshes extend lock validity",
// "Stale resources are reclaimed", "Lock heartbeat extends validity". A threshold of 60 s, by the clock of the test.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		ctx := t.Context()
		ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
		first := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", ""))
		for range 4 {
			time.Sleep(50 * time.Second)
			ok(t, m.HeartbeatLock(ctx, "main", "w1"))
		}
		time.Sleep(59*time.Second + 900*time.Millisecond)
		_, err := m.AcquireLock(ctx, "main", "w2", "")
		refused(t, err, holdfast.ErrHeld)
		if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 0 {
			t.Errorf("stale before 60 s: %+v", found)
		}
		time.Sleep(time.Second)
		if l, _ := m.GetLock("main"); l.Holder == nil || !l.Holder.Stale {
			t.Fatal("after 61 s the holder is not stale")
		}
		second := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w2", "")) // reclaims
		refused(t, m.ReleaseLock(ctx, "main", "w1"), holdfast.ErrLost)
		if l, _ := m.GetLock("main"); l.Holder.ID != "w2" || second <= first {
			t.Errorf("%+v with %d after %d", l.Holder, second, first)
		}
		time.Sleep(61 * time.Second)
		if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 1 || found[0] != (manager.Stale{Name: "main", Holder: "w2", Token: second, Reclaimed: true}) {
			t.Errorf("maintenance: %+v", found)
		}
		if r := must[holdfast.Resource](t)(s.Inspect(ctx, "main")); len(r.Holders) != 0 {
			t.Errorf("after maintenance %+v", r.Holders)
		}
	})
}

// With reclaim off a stale holder is told once and keeps the name until another wants it.
// The seed: "Maintenance task runs at configured interval".
func TestMaintenance(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := memhold.Open()
			defer s.Close()
			m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s, KeepStale: keep}))
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- m.Run(ctx) }()
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 2, StaleThreshold: 10 * time.Second}))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 2, ""))
			time.Sleep(29 * time.Second) // stale since 10 s, and no maintenance yet
			held := func() int { return len(must[holdfast.Resource](t)(s.Inspect(ctx, "agents")).Holders) }
			if held() != 1 {
				t.Error("reclaimed before maintenance ran")
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if n := held(); n != map[bool]int{true: 1, false: 0}[keep] {
				t.Errorf("after maintenance (keep: %v) %d hold", keep, n)
			}
			if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 0 {
				t.Errorf("told twice: %+v", found)
			}
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w2", 2, "")) // in any case
			if sem, _ := m.GetSemaphore("agents"); sem.Used() != 2 {
				t.Errorf("%d of 2 slots are used: %+v", sem.Used(), sem.Holders)
			}
			cancel()
			ok(t, <-ran)
			ok(t, m.Close())
		})
	}
}

// force ends the first hold of a name, as an operator does.
func force(t *testing.T, s *holdfast.Space, name string, now bool) {
	var opts []holdfast.ForceOption
	if now {
		opts = append(opts, holdfast.ForceNow())
	}
	if r := must[holdfast.Resource](t)(s.Inspect(t.Context(), name)); len(r.Holders) > 0 {
		must[time.Duration](t)(s.ForceRelease(t.Context(), name, r.Holders[0].Token, opts...))
	}
	synctest.Wait() // the manager has heard of it
}

// forceIfCan is force on a backend that may have none, and whose client may hear of it a moment later.
func forceIfCan(t *testing.T, s *holdfast.Space, name string, now bool) {
	var opts []holdfast.ForceOption
	if now {
		opts = append(opts, holdfast.ForceNow())
	}
	if r := must[holdfast.Resource](t)(s.Inspect(t.Context(), name)); len(r.Holders) > 0 {
		_, _ = s.ForceRelease(t.Context(), name, r.Holders[0].Token, opts...)
	}
}

// A hold that was ended alone, its session going on, is over for the manager, too: the next
// heartbeat and the next acquire know, and that confirms the end of one that may take its time.
func TestForced(t *testing.T) {
	for _, now := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := memhold.Open()
			defer s.Close()
			m, ctx := manage(t, s), t.Context()
			ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 3}))
			first := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", ""))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 2, ""))
			force(t, s, "main", now)
			force(t, s, "agents", now)
			if l, _ := m.GetLock("main"); l.Holder != nil {
				t.Errorf("now %v: the lock has %+v", now, l.Holder)
			}
			if sem, _ := m.GetSemaphore("agents"); sem.Used() != 0 {
				t.Errorf("now %v: %d of the semaphore are used", now, sem.Used())
			}
			refused(t, m.HeartbeatLock(ctx, "main", "w1"), holdfast.ErrLost)
			refused(t, m.HeartbeatSemaphore(ctx, "agents", "w1"), holdfast.ErrLost)
			if second := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w2", "")); second <= first { // confirmed
				t.Errorf("now %v: the token %d came after %d", now, second, first)
			}
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w2", 3, ""))
			force(t, s, "main", now)
			if third := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w2", "")); third <= first+1 {
				t.Errorf("now %v: the holder was told its old token %d", now, third)
			}
			ok(t, m.HeartbeatLock(ctx, "main", "w2"))
		})
	}
}

// What a MaxHold of the Space ends is over for the manager, too, and maintenance forgets
// a holder that does not come back.
func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		m, ctx := manage(t, s.With(holdfast.MaxHold(20*time.Second))), t.Context()
		ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
		must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", ""))
		time.Sleep(15 * time.Second)
		ok(t, m.HeartbeatLock(ctx, "main", "w1"))
		time.Sleep(15 * time.Second)
		must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w2", ""))
		refused(t, m.HeartbeatLock(ctx, "main", "w1"), holdfast.ErrLost)
		time.Sleep(61 * time.Second)
		if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 1 || found[0].Holder != "w2" {
			t.Errorf("maintenance found %+v", found)
		}
		if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 0 {
			t.Errorf("maintenance found it twice: %+v", found)
		}
	})
}

// A late holder that comes back has its slots once: what it had is freed, and not left to
// the next one that lacks room.
func TestStale_Returns(t *testing.T) {
	for _, keep := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := memhold.Open()
			defer s.Close()
			m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s, KeepStale: keep}))
			defer m.Close()
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 5}))
			for range 4 {
				must[holdfast.Token](t)(m.AcquireSemaphore(t.Context(), "agents", "a", 1, ""))
				if r := must[holdfast.Resource](t)(s.Inspect(t.Context(), "agents")); r.Used != 1 {
					t.Fatalf("keep %v: %d are used by one holder", keep, r.Used)
				}
				time.Sleep(65 * time.Second)
				refused(t, m.HeartbeatSemaphore(t.Context(), "agents", "a"), holdfast.ErrLost)
			}
		})
	}
}

// A release that comes too late says so, and frees what is left: nothing stays taken that
// maintenance does not find.
func TestStale_Released(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		m := manage(t, s)
		ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
		must[holdfast.Token](t)(m.AcquireLock(t.Context(), "main", "w1", ""))
		time.Sleep(65 * time.Second)
		refused(t, m.ReleaseLock(t.Context(), "main", "w1"), holdfast.ErrLost)
		if r := must[holdfast.Resource](t)(s.Inspect(t.Context(), "main")); len(r.Holders) > 0 {
			t.Errorf("it is held by %+v, and the manager knows of nobody", r.Holders)
		}
	})
}

// A stale holder that could not come back is stale still, for maintenance to find.
func TestStale_AcquireFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s, KeepStale: true}))
		defer m.Close()
		ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
		must[holdfast.Token](t)(m.AcquireLock(t.Context(), "main", "w1", ""))
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := m.AcquireLock(ctx, "main", "w1", "")
		refused(t, err, context.Canceled)
		if found := must[[]manager.Stale](t)(m.Tick(t.Context())); len(found) != 1 || found[0].Holder != "w1" {
			t.Errorf("stale: %v", found)
		}
	})
}

// Maintenance looks at the holder before one that takes its place, at any time: for the race detector.
func TestMaintenance_BesideAcquire(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m, ctx := manage(t, s), t.Context()
	ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
	stopped, maintenance := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer maintenance()
	for range 4 {
		all.Go(func() {
			for stopped.Err() == nil {
				m.Tick(ctx)
			}
		})
	}
	for range 200 {
		token := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", ""))
		must[time.Duration](t)(s.ForceRelease(ctx, "main", token, holdfast.ForceNow()))
	}
}
