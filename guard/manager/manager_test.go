package manager_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
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

// game is where [play] plays.
type game struct {
	s     *holdfast.Space
	slots int64
	force func(name string, now bool)
	sleep func(d time.Duration) // up to 70 s
	look  func(m *manager.Manager)
}

// play does random things to a lock or a semaphore and looks at it after each.
func play(t *testing.T, seed uint64, g game) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	m := must[*manager.Manager](t)(manager.New(manager.Config{Space: g.s}))
	defer m.Close()
	ok(t, m.EnsureLock(manager.LockConfig{Name: "x"}))
	ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "y", MaxSlots: g.slots}))
	for range 12 {
		g.turn(t, m, rnd)
		g.look(m)
	}
}

// turn does one thing. None of them waits for a holder, so that all return within the bound.
func (g *game) turn(t *testing.T, m *manager.Manager, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	owner := fmt.Sprint("w", rnd.IntN(3))
	kind := rnd.IntN(9)
	switch kind {
	case 0, 1:
		_, _ = m.AcquireLock(ctx, "x", owner, "")
	case 2:
		_ = m.ReleaseLock(ctx, "x", owner)
		_ = m.ReleaseSemaphore(ctx, "y", owner)
	case 3:
		_ = m.HeartbeatLock(ctx, "x", owner)
		_ = m.HeartbeatSemaphore(ctx, "y", owner)
	case 4, 5:
		_, _ = m.AcquireSemaphore(ctx, "y", owner, 1+rnd.Int64N(g.slots), "")
	case 6:
		_, _ = m.Tick(ctx)
	case 7:
		g.sleep(time.Duration(rnd.IntN(70)) * time.Second)
	case 8:
		g.force([]string{"x", "y"}[rnd.IntN(2)], rnd.IntN(2) == 0)
	}
	if kind != 7 && ctx.Err() != nil {
		t.Fatalf("the manager did not answer turn %d of %q within 30 s", kind, owner)
	}
}

// The seed's properties, 1,000 cases: "lock_transitions_preserve_invariants: Lock always
// Free or Held after any event sequence", where held means by one, the one that believes
// it, and "semaphore_never_exceeds_capacity: used_slots() <= max_slots after any event
// sequence".
func TestProperties(t *testing.T) {
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			s, slots, last := memhold.Open(), int64(1+seed%5), holdfast.Token(0)
			defer s.Close()
			play(t, seed, game{s, slots, func(name string, now bool) { force(t, s, name, now) }, time.Sleep, func(m *manager.Manager) {
				ok(t, broken(t, s, slots, &last))
				ok(t, believed(t, m, s, slots))
			}})
		})
	}
}

var seeds = flag.Uint64("manager.seeds", 5, "with how many seeds TestProperties_Backends plays on each backend")

// The same by the clocks of file, PostgreSQL and a node, with pauses of milliseconds, in which nobody becomes stale. What the
// manager believes of a hold that was forced is true a moment later there.
func TestProperties_Backends(t *testing.T) {
	for _, backend := range backends.All[1:] {
		t.Run(backend, func(t *testing.T) {
			for seed := range *seeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { playOn(t, backend, seed) }) // its clients are closed with it
			}
			t.Logf("proof: %s: %d seeds", backend, *seeds)
		})
	}
}

func playOn(t *testing.T, backend string, seed uint64) {
	s, other := backends.Open(t, backend)
	slots, last := int64(1+seed%5), holdfast.Token(0)
	sleep := func(d time.Duration) { time.Sleep(d / 10_000) }
	play(t, seed, game{s, slots, func(name string, now bool) { forceIfCan(t, other, name, now) }, sleep, func(m *manager.Manager) {
		ok(t, broken(t, other, slots, &last))
		for until := time.Now().Add(20 * time.Second); believed(t, m, other, slots) != nil && time.Now().Before(until); {
			time.Sleep(time.Millisecond)
		}
		ok(t, believed(t, m, other, slots))
	}})
}

// broken says what is wrong on the backend.
func broken(t *testing.T, s *holdfast.Space, slots int64, last *holdfast.Token) error {
	lock, sem := must[holdfast.Resource](t)(s.Inspect(t.Context(), "x")), must[holdfast.Resource](t)(s.Inspect(t.Context(), "y"))
	switch {
	case sem.Used > slots:
		return fmt.Errorf("%d used of %d: %+v", sem.Used, slots, sem.Holders)
	case len(lock.Holders) > 1:
		return fmt.Errorf("held by %+v", lock.Holders)
	case len(lock.Holders) == 1 && lock.Holders[0].Token < *last:
		return fmt.Errorf("the token %d came after %d", lock.Holders[0].Token, *last)
	case len(lock.Holders) == 1:
		*last = lock.Holders[0].Token
	}
	return nil
}

// believed says what the manager believes that is not so.
func believed(t *testing.T, m *manager.Manager, s *holdfast.Space, slots int64) error {
	l, _ := m.GetLock("x")
	sem, _ := m.GetSemaphore("y")
	r := must[holdfast.Resource](t)(s.Inspect(t.Context(), "x"))
	switch {
	case sem.Used() > slots:
		return fmt.Errorf("%d are believed to be used of %d: %+v", sem.Used(), slots, sem.Holders)
	case l.Holder != nil && !l.Holder.Stale && (len(r.Holders) == 0 || r.Holders[0].Token != l.Holder.Token):
		return fmt.Errorf("%+v believes, and the backend has %+v", l.Holder, r.Holders)
	}
	return nil
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

func TestNew(t *testing.T) {
	_, err := manager.New(manager.Config{})
	refused(t, err, fs.ErrInvalid)
}
