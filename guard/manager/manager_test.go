package manager_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/memhold"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
}

// manage is a manager of s, closed with the test.
func manage(t *testing.T, s *holdfast.Space) *manager.Manager {
	t.Helper()
	m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s, Recheck: time.Hour}))
	t.Cleanup(func() { m.Close() })
	return m
}

// The seed: "Lock acquisition succeeds when free", "Lock acquisition fails when held by
// another", "Release (matching holder) → Free", and "Full lock acquire/heartbeat/release
// cycle"; of its tables and checklist "Acquire, release, heartbeat, stale detection, reclaim", "Lock acquire/release works
// correctly", "Unified operations, guard execution, maintenance". What is stale is below.
func TestLock(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			m, other, ctx := manage(t, a), manage(t, b), t.Context()
			_, err := m.AcquireLock(ctx, "main", "w1", "")
			refused(t, err, fs.ErrNotExist)
			for _, m := range []*manager.Manager{m, other} {
				ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
				ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
			}
			token := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", "why"))
			if again := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", "")); again != token {
				t.Errorf("the holder acquired it again with %d, not %d", again, token)
			}
			_, err = m.AcquireLock(ctx, "main", "w2", "")
			refused(t, err, holdfast.ErrHeld)
			_, err = other.AcquireLock(ctx, "main", "w1", "")
			refused(t, err, holdfast.ErrHeld)
			refused(t, m.ReleaseLock(ctx, "main", "w2"), holdfast.ErrLost)
			refused(t, m.HeartbeatLock(ctx, "main", "w2"), holdfast.ErrLost)
			ok(t, m.HeartbeatLock(ctx, "main", "w1"))
			if l, known := m.GetLock("main"); !known || l.Holder == nil || l.Holder.ID != "w1" || l.Holder.Metadata != "why" || l.Holder.Token != token || l.Heartbeat != 15*time.Second {
				t.Errorf("the lock is %+v with %+v", l, l.Holder)
			}
			ok(t, m.ReleaseLock(ctx, "main", "w1"))
			refused(t, m.ReleaseLock(ctx, "main", "w1"), holdfast.ErrLost)
			if next := must[holdfast.Token](t)(other.AcquireLock(ctx, "main", "w2", "")); next <= token {
				t.Errorf("the next token is %d after %d", next, token)
			}
			if l, _ := m.GetLock("main"); l.Holder != nil {
				t.Errorf("the lock has %+v", l.Holder)
			}
			if _, known := m.GetLock("none"); known || !slices.Equal(m.LockNames(), []string{"main"}) {
				t.Errorf("locks %v", m.LockNames())
			}
		})
	}
}

// The seed: "Weighted acquisition respects weight", "Acquisition fails when insufficient
// slots", "Multiple holders can hold slots concurrently", "Multiple holders up to capacity", "Acquire with weight, release,
// capacity limits, stale holders", "Semaphore respects capacity limits", "Semaphore weighted acquisition works".
func TestSemaphore(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, _ := backends.Open(t, backend)
			m, ctx := manage(t, a), t.Context()
			refused(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents"}), fs.ErrInvalid)
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 5}))
			refused(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 6}), holdfast.ErrConflict)
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 3, ""))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w2", 1, ""))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 3, "")) // the same again
			_, err := m.AcquireSemaphore(ctx, "agents", "w3", 2, "")
			refused(t, err, holdfast.ErrHeld)
			_, err = m.AcquireSemaphore(ctx, "agents", "w1", 1, "")
			refused(t, err, holdfast.ErrConflict)
			for _, weight := range []int64{0, -1, 6} {
				_, err = m.AcquireSemaphore(ctx, "agents", "w4", weight, "")
				refused(t, err, fs.ErrInvalid)
			}
			if s, _ := m.GetSemaphore("agents"); s.Used() != 4 || len(s.Holders) != 2 || s.MaxSlots != 5 {
				t.Errorf("%+v", s)
			}
			ok(t, m.HeartbeatSemaphore(ctx, "agents", "w2"))
			ok(t, m.ReleaseSemaphore(ctx, "agents", "w1"))
			refused(t, m.ReleaseSemaphore(ctx, "agents", "w1"), holdfast.ErrLost)
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w3", 4, ""))
			if !slices.Equal(m.SemaphoreNames(), []string{"agents"}) {
				t.Errorf("semaphores %v", m.SemaphoreNames())
			}
		})
	}
}

// Of equal calls for one holder at the same time none is refused: all have the token of the one hold. Of others the
// second is told what it is.
func TestEqualCalls(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, _ := backends.Open(t, backend)
			m, ctx := manage(t, a), t.Context()
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 5}))
			ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
			var calls sync.WaitGroup
			var mu sync.Mutex
			tokens := map[string]map[holdfast.Token]int{"agents": {}, "main": {}}
			note := func(name string, token holdfast.Token, err error) {
				mu.Lock()
				defer mu.Unlock()
				tokens[name][token]++
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for range 8 {
				calls.Go(func() {
					token, err := m.AcquireSemaphore(ctx, "agents", "w1", 3, "")
					note("agents", token, err)
				})
				calls.Go(func() {
					token, err := m.AcquireLock(ctx, "main", "w1", "")
					note("main", token, err)
				})
			}
			calls.Wait()
			if len(tokens["agents"]) != 1 || len(tokens["main"]) != 1 {
				t.Errorf("the tokens %v", tokens)
			}
			if s, _ := m.GetSemaphore("agents"); s.Used() != 3 {
				t.Errorf("%d slots are used", s.Used())
			}
		})
	}
}

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

// play does random things to a lock or a semaphore and looks at it after each.
func play(t *testing.T, seed uint64, slots int64, look func(m *manager.Manager, s *holdfast.Space)) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		s := memhold.Open()
		defer s.Close()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		ctx := t.Context()
		ok(t, m.EnsureLock(manager.LockConfig{Name: "x"}))
		ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "y", MaxSlots: slots}))
		for range 12 {
			owner := fmt.Sprint("w", rnd.IntN(3))
			switch rnd.IntN(9) {
			case 0, 1:
				_, _ = m.AcquireLock(ctx, "x", owner, "")
			case 2:
				_ = m.ReleaseLock(ctx, "x", owner)
				_ = m.ReleaseSemaphore(ctx, "y", owner)
			case 3:
				_ = m.HeartbeatLock(ctx, "x", owner)
				_ = m.HeartbeatSemaphore(ctx, "y", owner)
			case 4, 5:
				_, _ = m.AcquireSemaphore(ctx, "y", owner, 1+rnd.Int64N(slots), "")
			case 6:
				_, _ = m.Tick(ctx)
			case 7:
				time.Sleep(time.Duration(rnd.IntN(70)) * time.Second)
			case 8:
				force(t, s, []string{"x", "y"}[rnd.IntN(2)], rnd.IntN(2) == 0)
			}
			look(m, s)
		}
	})
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

// The seed's properties, 1,000 cases: "lock_transitions_preserve_invariants: Lock always
// Free or Held after any event sequence", where held means by one, the one that believes
// it, and "semaphore_never_exceeds_capacity: used_slots() <= max_slots after any event
// sequence".
func TestProperties(t *testing.T) {
	for seed := range uint64(1000) {
		last, slots := holdfast.Token(0), int64(1+seed%5)
		play(t, seed, slots, func(m *manager.Manager, s *holdfast.Space) {
			lockIsFreeOrHeld(t, seed, m, must[holdfast.Resource](t)(s.Inspect(t.Context(), "x")), &last)
			r := must[holdfast.Resource](t)(s.Inspect(t.Context(), "y"))
			sem, _ := m.GetSemaphore("y")
			if r.Used > slots || sem.Used() > slots {
				t.Fatalf("seed %d: %d used, %d believed, of %d: %+v, %+v", seed, r.Used, sem.Used(), slots, sem.Holders, r.Holders)
			}
		})
	}
}

func lockIsFreeOrHeld(t *testing.T, seed uint64, m *manager.Manager, r holdfast.Resource, last *holdfast.Token) {
	l, _ := m.GetLock("x")
	switch {
	case len(r.Holders) > 1:
		t.Fatalf("seed %d: held by %+v", seed, r.Holders)
	case l.Holder != nil && !l.Holder.Stale && (len(r.Holders) == 0 || r.Holders[0].Token != l.Holder.Token):
		t.Fatalf("seed %d: %+v believes, and the backend has %+v", seed, l.Holder, r.Holders)
	case len(r.Holders) == 1 && r.Holders[0].Token < *last:
		t.Fatalf("seed %d: the token %d came after %d", seed, r.Holders[0].Token, *last)
	case len(r.Holders) == 1:
		*last = r.Holders[0].Token
	}
}

// Many callers at once: one session for each (name, holder), and one holder at a time.
func TestConcurrent(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m, ctx := manage(t, s), t.Context()
	ok(t, m.EnsureLock(manager.LockConfig{Name: "x"}))
	var all sync.WaitGroup
	var mu sync.Mutex
	holding := 0
	for i := range 20 {
		all.Go(func() {
			for range 50 {
				if _, err := m.AcquireLock(ctx, "x", fmt.Sprint(i), ""); err != nil {
					continue
				}
				mu.Lock()
				if holding++; holding > 1 {
					t.Error("two hold it")
				}
				holding--
				mu.Unlock()
				if err := m.ReleaseLock(ctx, "x", fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// The seed: "Coordination state persists across restarts", "Storage operations are atomic
// (write temp file, rename)", "Integration tests for persistence", "Coordination state persists to disk", "Recovery works
// after restart". After a restart everybody has a full threshold.
func TestExportImport(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			ctx, path := t.Context(), filepath.Join(t.TempDir(), "coordination.json")
			m := must[*manager.Manager](t)(manager.New(manager.Config{Space: a}))
			ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
			ok(t, m.EnsureLock(manager.LockConfig{Name: "free"}))
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 3}))
			old := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", "why"))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 1, ""))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w2", 2, ""))
			ok(t, m.Export(path))
			ok(t, m.Export(path))
			next := manage(t, b)
			done := make(chan error, 1)
			go func() { done <- next.Import(ctx, path) }()
			ok(t, m.Close()) // what the manager before still had was waited for
			ok(t, <-done)
			l, _ := next.GetLock("main")
			s, _ := next.GetSemaphore("agents")
			if l.Holder == nil || l.Holder.ID != "w1" || l.Holder.Metadata != "why" || l.Holder.Token <= old || s.Used() != 3 || len(s.Holders) != 2 {
				t.Errorf("%+v, %+v", l.Holder, s)
			}
			if !slices.Equal(next.LockNames(), []string{"free", "main"}) {
				t.Errorf("locks %v", next.LockNames())
			}
			ok(t, next.ReleaseLock(ctx, "main", "w1"))
			if list := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path))); len(list) != 1 {
				t.Errorf("files %v", list)
			}
		})
	}
}

// A manager that was killed: what it held is taken over after one threshold, and its
// holders have another whole one.
func TestImport_AfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		ctx, path := t.Context(), filepath.Join(t.TempDir(), "f.json")
		dead := must[*manager.Manager](t)(manager.New(manager.Config{Space: s})) // nobody calls it again
		ok(t, dead.EnsureLock(manager.LockConfig{Name: "main"}))
		must[holdfast.Token](t)(dead.AcquireLock(ctx, "main", "w1", ""))
		ok(t, dead.Export(path))
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		began := time.Now()
		ok(t, m.Import(ctx, path))
		if took := time.Since(began); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("it took %s", took)
		}
		time.Sleep(55 * time.Second)
		ok(t, m.HeartbeatLock(ctx, "main", "w1"))
	})
}

// A name that stays held is no reason to wait for the names behind it: the error names
// the one that did not come back.
func TestImport_OneIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		path := filepath.Join(t.TempDir(), "f.json")
		ok(t, os.WriteFile(path, []byte(`{"version":1,"locks":[{"name":"a","holders":[{"holder":"x","weight":1}]},{"name":"b","holders":[{"holder":"x","weight":1}]}]}`), 0o644))
		h := must[*holdfast.Hold](t)(s.Mutex("a").Acquire(t.Context()))
		defer h.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		if err := m.Import(ctx, path); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"a"`) || strings.Contains(err.Error(), `"b"`) {
			t.Errorf("got %v", err)
		}
		if l, _ := m.GetLock("b"); l.Holder == nil {
			t.Error("b did not come back")
		}
	})
}

// What is being acquired when the manager closes is given back, and its callers are told;
// so is one that waits.
func TestClose_WhileAcquiring(t *testing.T) {
	a, b := backends.Open(t, "memory")
	path := filepath.Join(t.TempDir(), "f.json")
	ok(t, os.WriteFile(path, []byte(`{"version":1,"locks":[{"name":"held","holders":[{"holder":"x","weight":1}]}]}`), 0o644))
	h := must[*holdfast.Hold](t)(b.Mutex("held").Acquire(t.Context()))
	defer h.Release()
	for range 50 {
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: a}))
		var all sync.WaitGroup
		for i := range 8 {
			ok(t, m.EnsureLock(manager.LockConfig{Name: fmt.Sprint(i)}))
			all.Go(func() {
				if _, err := m.AcquireLock(t.Context(), fmt.Sprint(i), "x", ""); err != nil && !errors.Is(err, holdfast.ErrClosed) {
					t.Errorf("an acquire beside Close: %v", err)
				}
			})
		}
		all.Go(func() {
			if err := m.Import(t.Context(), path); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("a wait beside Close: %v", err)
			}
		})
		ok(t, m.Close())
		all.Wait()
		for i := range 8 {
			must[*holdfast.Hold](t)(b.Mutex(fmt.Sprint(i)).TryAcquire(t.Context())).Release()
		}
	}
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

// Files that make no sense change nothing.
func TestImport_Bad(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m, path := manage(t, s), filepath.Join(t.TempDir(), "f.json")
	refused(t, m.Import(t.Context(), path), fs.ErrNotExist)
	for _, text := range []string{"", "{", `{"version":2}`, `[]`, `{"version":1,"locks":[{"name":""}]}`, `{"version":1,"locks":[{"name":"a","max_slots":2}]}`,
		`{"version":1,"locks":[{"name":"fine"}],"semaphores":[{"name":"a"}]}`, `{"version":1,"locks":[{"name":"a","stale_threshold_ms":-1}]}`,
		`{"version":1,"locks":[{"name":"a"},{"name":"a"}]}`, `{"version":1,"locks":[{"name":"a","colour":1}]}`, `{"version":1} {}`,
		`{"version":1,"locks":[{"name":"a","stale_threshold_ms":9223372036854775807}]}`, `{"version":1,"locks":[{"name":"fine"},{"name":"a","stale_threshold_ms":1}]}`,
		`{"version":1,"locks":[{"name":"a","holders":[{"holder":"","weight":1}]}]}`, `{"version":1,"locks":[{"name":"a","holders":[{"holder":"x","weight":2}]}]}`,
		`{"version":1,"locks":[{"name":"a","holders":[{"holder":"x","weight":1},{"holder":"y","weight":1}]}]}`,
		`{"version":1,"semaphores":[{"name":"a","max_slots":3,"holders":[{"holder":"x","weight":1},{"holder":"x","weight":1}]}]}`,
		`{"version":1,"semaphores":[{"name":"a","max_slots":3,"holders":[{"holder":"x","weight":2},{"holder":"y","weight":2}]}]}`} {
		ok(t, os.WriteFile(path, []byte(text), 0o644))
		refused(t, m.Import(t.Context(), path), fs.ErrInvalid)
		if len(m.LockNames())+len(m.SemaphoreNames()) > 0 {
			t.Fatalf("%s: %v %v", text, m.LockNames(), m.SemaphoreNames())
		}
	}
	if err := m.Export(filepath.Join(path, "below")); err == nil {
		t.Error("an export below a file")
	}
}

// The seed: "guard:evaluating", "guard:failed", "guard:passed", with what is waited for,
// told by every backend; a guard resumes by an event of its inputs. "Events emitted for guard state changes".
func TestGuards(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			m, ctx := manage(t, a), t.Context()
			next, stop := iter.Pull2(manage(t, b).Events(ctx))
			defer stop()
			event := func(want string) manager.Event {
				t.Helper()
				e, err, _ := next()
				if err != nil || e.String() != want {
					t.Fatalf("the event is %s of %+v (%v), want %s", e.String(), e, err, want)
				}
				return e
			}
			event(":")
			h := must[*holdfast.Hold](t)(b.Mutex("main-branch", holdfast.Owner("deploy-7")).Acquire(ctx))
			g := manager.Guard{ID: "g1", Pipeline: "p1", Condition: guard.All(guard.LockFree("main-branch")), WakeOn: []string{"semaphore:agents:*"}}
			ok(t, m.RegisterGuard(g))
			refused(t, m.RegisterGuard(g), fs.ErrExist)
			event("guard:evaluating")
			e := event("guard:failed")
			if e.GuardID != "g1" || e.Pipeline != "p1" || !strings.Contains(e.Reason, "deploy-7") || len(e.WaitingOn) != 1 || e.Condition != guard.KindAll || len(e.WakeOn) != 1 {
				t.Errorf("the event is %+v", e)
			}
			ok(t, h.Release())
			if r := must[guard.Result](t)(m.WaitGuard(ctx, "g1")); r.Outcome != guard.Passed {
				t.Errorf("%s", r)
			}
			event("guard:passed")
			if got, known := m.GetGuard("g1"); !known || got.Pipeline != "p1" {
				t.Errorf("%+v", got)
			}
			ok(t, m.UnregisterGuard(ctx, "g1"))
			refused(t, m.UnregisterGuard(ctx, "g1"), fs.ErrNotExist)
			over, cancel := context.WithCancel(ctx)
			cancel()
			ok(t, m.RegisterGuard(manager.Guard{ID: "never", Condition: guard.LockHeldBy("main-branch", "nobody")}))
			for id, ctx := range map[string]context.Context{"g1": ctx, "never": over} {
				r, err := m.WaitGuard(ctx, id)
				if err == nil || r.Outcome == guard.Passed {
					t.Errorf("a wait that fails says %s, %v", r.Outcome, err)
				}
			}
			ok(t, m.UnregisterGuard(ctx, "never"))
			_, err := m.WaitGuard(ctx, "g1")
			refused(t, err, fs.ErrNotExist)
			for e, err := range a.KV().Range(ctx, gather.EventPrefix) {
				t.Errorf("%s is left (%v)", e.Key, err)
			}
		})
	}
}

// A refusal is told by the manager where the backend does not.
func TestDenied(t *testing.T) {
	a, b := backends.Open(t, "file")
	m, ctx := manage(t, a), t.Context()
	ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
	h := must[*holdfast.Hold](t)(b.Mutex("main").Acquire(ctx))
	defer h.Release()
	next, stop := iter.Pull2(m.Events(ctx))
	defer stop()
	next()
	_, err := m.AcquireLock(ctx, "main", "w1", "")
	refused(t, err, holdfast.ErrHeld)
	if e, err, _ := next(); err != nil || e.String() != "lock:denied" || e.Name != "main" || e.Holder != "w1" {
		t.Errorf("%+v, %v", e, err)
	}
}

// A refusal wakes a guard also where the manager tells it by a key. The seed: "Guard wake subscriptions work".
func TestWakeOn_Denied(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			facts, in := guardtest.New(), guard.Input{Source: guard.SourceBranch, Name: "b"}
			facts.Set(in, guard.Fact{})
			g := gather.New(gather.Config{Space: a, Sources: map[guard.Source]gather.Source{guard.SourceBranch: facts}})
			m := must[*manager.Manager](t)(manager.New(manager.Config{Space: a, Gatherer: g, Recheck: time.Hour}))
			defer m.Close()
			ctx := t.Context()
			ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
			h := must[*holdfast.Hold](t)(b.Mutex("main").Acquire(ctx))
			next, stop := iter.Pull2(m.Events(ctx))
			defer stop()
			next()
			ok(t, m.RegisterGuard(manager.Guard{ID: "narrow", Condition: guard.LockFree("main")})) // its watch is of this name alone
			ok(t, m.RegisterGuard(manager.Guard{ID: "g", Condition: guard.BranchExists("b"), WakeOn: []string{"lock:main:denied"}}))
			for failed := 0; failed < 2; {
				if e, _, _ := next(); e.String() == "guard:failed" {
					failed++
				}
			}
			ok(t, h.Release())
			must[guard.Result](t)(m.WaitGuard(ctx, "narrow")) // the watch has begun
			h = must[*holdfast.Hold](t)(b.Mutex("main").Acquire(ctx))
			defer h.Release()
			facts.Lose(true)
			facts.Set(in, guard.Fact{Is: true}) // nobody tells
			_, err := m.AcquireLock(ctx, "main", "w1", "")
			refused(t, err, holdfast.ErrHeld)
			within, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			must[guard.Result](t)(m.WaitGuard(within, "g"))
		})
	}
}

// wake_on wakes by events that no input has, also those of other guards.
func TestWakeOn(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	facts := guardtest.New()
	in := guard.Input{Source: guard.SourceBranch, Name: "b"}
	facts.Set(in, guard.Fact{})
	g := gather.New(gather.Config{Space: s, Sources: map[guard.Source]gather.Source{guard.SourceBranch: facts}})
	m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s, Gatherer: g, Recheck: time.Hour}))
	defer m.Close()
	ctx := t.Context()
	next, stop := iter.Pull2(m.Events(ctx))
	defer stop()
	next()
	ok(t, m.RegisterGuard(manager.Guard{ID: "second", Condition: guard.BranchExists("b"), WakeOn: []string{"guard:first:passed"}}))
	for e, _, _ := next(); e.String() != "guard:failed"; e, _, _ = next() {
	}
	facts.Lose(true)
	facts.Set(in, guard.Fact{Is: true})                                                         // nobody tells
	ok(t, m.RegisterGuard(manager.Guard{ID: "first", Condition: guard.During(guard.Window{})})) // no input of it has the watch begin anew
	within, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	must[guard.Result](t)(m.WaitGuard(within, "second"))
	for _, bad := range []manager.Guard{{}, {ID: "a/b", Condition: guard.LockFree("x")}, {ID: "a\nb", Condition: guard.LockFree("x")}, {ID: "\xe9", Condition: guard.LockFree("x")}, {ID: "x"}, {ID: "x", Condition: guard.LockFree("x"), WakeOn: []string{"lok:*"}}, {ID: "x", Condition: guard.Not(guard.SessionAlive("pid:abc"))}} {
		refused(t, m.RegisterGuard(bad), fs.ErrInvalid)
	}
}

func TestNew(t *testing.T) {
	_, err := manager.New(manager.Config{})
	refused(t, err, fs.ErrInvalid)
}
