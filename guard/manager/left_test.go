package manager_test

import (
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/memhold"
)

// What the manager refuses by itself is ErrInvalid, as what the Space refuses.
func TestRefusals_Kind(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m, ctx := manage(t, s), t.Context()
	ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "s", MaxSlots: 2}))
	_, empty := m.AcquireSemaphore(ctx, "s", "", 1, "")
	_, heavy := m.AcquireSemaphore(ctx, "s", "h", 3, "")
	_, none := manager.New(manager.Config{})
	for _, err := range []error{
		empty, heavy, none, m.EnsureLock(manager.LockConfig{}), m.EnsureLock(manager.LockConfig{Name: "l", Heartbeat: -1}),
		m.EnsureSemaphore(manager.SemaphoreConfig{Name: "z"}), m.RegisterGuard(manager.Guard{ID: "a/b", Condition: guard.LockFree("x")}),
		m.RegisterGuard(manager.Guard{ID: "g"}), m.RegisterGuard(manager.Guard{ID: "g", Condition: guard.LockFree("x"), WakeOn: []string{"x"}}),
	} {
		refused(t, err, holdfast.ErrInvalid)
		refused(t, err, fs.ErrInvalid)
	}
}

// free fails unless nobody holds the names.
func free(t *testing.T, s *holdfast.Space, names ...string) {
	t.Helper()
	for _, name := range names {
		if r := must[holdfast.Resource](t)(s.Inspect(t.Context(), name)); len(r.Holders) != 0 {
			t.Errorf("%s is held by %+v", name, r.Holders)
		}
	}
}

// Close gives back what stale holders have left, whether or not maintenance would have.
func TestClose_Stale(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := memhold.Open()
			defer s.Close()
			m, ctx := must[*manager.Manager](t)(manager.New(manager.Config{Space: s, KeepStale: keep})), t.Context()
			ok(t, m.EnsureLock(manager.LockConfig{Name: "stale"}))
			ok(t, m.EnsureLock(manager.LockConfig{Name: "fresh", StaleThreshold: time.Hour}))
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "slots", MaxSlots: 3}))
			must[holdfast.Token](t)(m.AcquireLock(ctx, "stale", "w1", ""))
			must[holdfast.Token](t)(m.AcquireLock(ctx, "fresh", "w1", ""))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "slots", "w1", 3, ""))
			time.Sleep(61 * time.Second)
			ok(t, m.Close())
			free(t, s, "stale", "fresh", "slots")
		})
	}
}

// A manager that is closed after its Space has nothing to give back, which is no error.
func TestClose_AfterSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
		must[holdfast.Token](t)(m.AcquireLock(t.Context(), "main", "w1", ""))
		ok(t, s.Close())
		ok(t, m.Close())
	})
}

// What a manager that was killed has left is reclaimed by the maintenance of another, which leaves alone what is not
// stale, what it has not ensured, and its own holders, and everything if it keeps stale holders.
func TestMaintenance_OfOthers(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := memhold.Open()
			defer s.Close()
			sub, ctx := s.Sub("team/"), t.Context()
			killed, m := manage(t, sub), must[*manager.Manager](t)(manager.New(manager.Config{Space: sub, KeepStale: keep}))
			defer m.Close()
			for _, name := range []string{"left", "own", "live", "unknown"} {
				ok(t, killed.EnsureLock(manager.LockConfig{Name: name}))
			}
			for _, name := range []string{"left", "own", "live"} {
				ok(t, m.EnsureLock(manager.LockConfig{Name: name, StaleThreshold: 2 * time.Minute}))
			}
			token := must[holdfast.Token](t)(killed.AcquireLock(ctx, "left", "w1", ""))
			must[holdfast.Token](t)(killed.AcquireLock(ctx, "unknown", "w1", ""))
			must[holdfast.Token](t)(m.AcquireLock(ctx, "own", "w2", ""))
			time.Sleep(61 * time.Second)
			must[holdfast.Token](t)(killed.AcquireLock(ctx, "live", "w1", ""))
			found := must[[]manager.Stale](t)(m.Tick(ctx))
			if keep {
				if len(found) != 0 {
					t.Errorf("a manager that keeps stale holders found %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0] != (manager.Stale{Name: "left", Holder: "w1", Token: token, Reclaimed: true}) {
				t.Errorf("maintenance found %+v", found)
			}
			free(t, sub, "left")
			for _, name := range []string{"own", "live", "unknown"} {
				if r := must[holdfast.Resource](t)(sub.Inspect(ctx, name)); len(r.Holders) != 1 {
					t.Errorf("%s is not held any more", name)
				}
			}
			ok(t, m.HeartbeatLock(ctx, "own", "w2"))
			if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 0 {
				t.Errorf("told twice: %+v", found)
			}
		})
	}
}

// A stale holder of the manager itself is told once, and nothing after Close.
func TestMaintenance_OwnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		m, ctx := manage(t, s), t.Context()
		ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
		must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", ""))
		time.Sleep(2 * time.Minute)
		if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 1 {
			t.Errorf("maintenance found %+v", found)
		}
		ok(t, m.Close())
		if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 0 {
			t.Errorf("after Close maintenance found %+v", found)
		}
	})
}
