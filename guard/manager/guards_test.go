package manager_test

import (
	"context"
	"io/fs"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/memhold"
)

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

// A wait says why it ended: its own context, with what was seen last, or the guard or the manager that is gone.
func TestWaitGuard_Ends(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m, ctx := manage(t, s), t.Context()
	next, stop := iter.Pull2(m.Events(ctx))
	defer stop()
	next()
	for _, id := range []string{"left", "kept"} {
		ok(t, m.RegisterGuard(manager.Guard{ID: id, Condition: guard.KeyExists("never")}))
	}
	for failed := 0; failed < 2; {
		if e, err, _ := next(); err != nil {
			t.Fatal(err)
		} else if e.String() == "guard:failed" {
			failed++
		}
	}
	ended := func(ctx context.Context, id string, want error) {
		t.Helper()
		r, err := m.WaitGuard(ctx, id)
		refused(t, err, want)
		if r.Outcome != guard.Failed || len(r.Reasons) != 1 {
			t.Errorf("beside %v: %s", err, r)
		}
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	ended(over, "left", context.Canceled)
	refused(t, m.UnregisterGuard(over, "left"), context.Canceled) // its events are left, and its wait has ended
	ended(ctx, "left", fs.ErrNotExist)
	ok(t, m.UnregisterGuard(ctx, "left"))
	ok(t, m.Close())
	ended(ctx, "kept", holdfast.ErrClosed)
}
