package manager_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/memhold"
)

// faulty is a backend that does not answer writes of keys as long as it is silent, and refuses
// to force as long as it is stubborn.
type faulty struct {
	driver.Driver
	silent, stubborn atomic.Bool
}

func (f *faulty) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if f.silent.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return f.Driver.Txn(ctx, r)
}

func (f *faulty) Force(ctx context.Context, r *driver.ForceRequest) (driver.ForceReply, error) {
	if f.stubborn.Load() {
		return driver.ForceReply{}, context.DeadlineExceeded
	}
	return f.Driver.Force(ctx, r)
}

// A backend that does not answer keeps no guard waiting that is decided without it.
func TestGuards_SilentBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Driver: memhold.New()}
		s := must[*holdfast.Space](t)(holdfast.New(f))
		defer s.Close()
		facts, in := guardtest.New(), guard.Input{Source: guard.SourceBranch, Name: "b"}
		facts.Set(in, guard.Fact{})
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s, Gatherer: gather.New(gather.Config{Sources: facts.Sources()})}))
		f.silent.Store(true)
		ok(t, m.RegisterGuard(manager.Guard{ID: "g", Condition: guard.BranchExists("b")}))
		synctest.Wait()
		if facts.Asked(in) == 0 {
			t.Fatal("the guard was not looked at")
		}
		began := time.Now()
		facts.Set(in, guard.Fact{Is: true})
		must[guard.Result](t)(m.WaitGuard(t.Context(), "g"))
		if d := time.Since(began); d > 0 {
			t.Errorf("the guard passed after %s", d)
		}
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refused(t, m.UnregisterGuard(within, "g"), context.DeadlineExceeded)
		f.silent.Store(false)
		ok(t, m.UnregisterGuard(t.Context(), "g")) // it can be done again
		ok(t, m.Close())
	})
}

// A guard that is unregistered as soon as it has passed has told so.
func TestEvents_OfAShortGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		told := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for ev := range s.Watch(ctx, gather.EventPrefix, 0) {
				told <- ev.String() + " " + ev.Name
			}
		}()
		synctest.Wait()
		for i := range 20 {
			id := fmt.Sprint("g", i)
			ok(t, m.RegisterGuard(manager.Guard{ID: id, Condition: guard.LockFree("x")}))
			must[guard.Result](t)(m.WaitGuard(t.Context(), id))
			ok(t, m.UnregisterGuard(t.Context(), id))
		}
		synctest.Wait()
		passed := 0
		for len(told) > 0 {
			if ev := <-told; strings.HasPrefix(ev, "kv:put ") && strings.Contains(ev, "/passed/") {
				passed++
			}
		}
		if passed != 20 {
			t.Errorf("of 20 guards that passed %d have told so", passed)
		}
		ok(t, m.Close())
	})
}

// The events of a manager's guards end with it.
func TestEvents_EndWithTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		ok(t, m.RegisterGuard(manager.Guard{ID: "g", Condition: guard.LockFree("x")}))
		must[guard.Result](t)(m.WaitGuard(t.Context(), "g"))
		synctest.Wait()
		left := func() (n int) {
			for _, err := range s.KV().Range(t.Context(), gather.EventPrefix) {
				ok(t, err)
				n++
			}
			return n
		}
		if left() == 0 {
			t.Error("nothing was told")
		}
		ok(t, m.Close())
		if n := left(); n != 0 {
			t.Errorf("%d events are left", n)
		}
	})
}

// Maintenance goes on after a round that failed, and one holder that cannot be reclaimed
// keeps no other from it.
func TestMaintenance_Trouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Driver: memhold.New()}
		s := must[*holdfast.Space](t)(holdfast.New(f))
		defer s.Close()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		for _, name := range []string{"a", "b", "c"} {
			ok(t, m.EnsureLock(manager.LockConfig{Name: name}))
			must[holdfast.Token](t)(m.AcquireLock(t.Context(), name, "w1", ""))
		}
		f.stubborn.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- m.Run(ctx) }()
		time.Sleep(100 * time.Second)
		if found, err := m.Tick(ctx); len(found) != 3 || err == nil {
			t.Errorf("a round found %+v, %v", found, err)
		}
		f.stubborn.Store(false)
		time.Sleep(30 * time.Second)
		for _, name := range m.LockNames() {
			if l, _ := m.GetLock(name); l.Holder != nil {
				t.Errorf("%s has %+v", name, l.Holder)
			}
		}
		cancel()
		ok(t, <-ran)
	})
}

// slowEnd is a backend that needs a second for the end of a session.
type slowEnd struct{ driver.Driver }

func (s slowEnd) EndSession(ctx context.Context, l *driver.Session) error {
	time.Sleep(time.Second)
	return s.Driver.EndSession(ctx, l)
}

// Close does not give back one hold after the other.
func TestClose_ManyHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must[*holdfast.Space](t)(holdfast.New(slowEnd{memhold.New()}))
		defer s.Close()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 100}))
		for i := range 100 {
			must[holdfast.Token](t)(m.AcquireSemaphore(t.Context(), "agents", fmt.Sprint("w", i), 1, ""))
		}
		began := time.Now()
		ok(t, m.Close())
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("100 holders took %s", took)
		}
		if r, err := s.Inspect(t.Context(), "agents"); err != nil || len(r.Holders) > 0 {
			t.Errorf("%d holders are left, %v", len(r.Holders), err)
		}
	})
}

// What cannot be the key of an event, with the prefix of a Sub, is no id.
func TestRegisterGuard_LongID(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s.Sub(strings.Repeat("p", 300))}))
	defer m.Close()
	if err := m.RegisterGuard(manager.Guard{ID: strings.Repeat("g", 250), Condition: guard.LockFree("x")}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("registered with %v", err)
	}
	ok(t, m.RegisterGuard(manager.Guard{ID: strings.Repeat("g", 100), Condition: guard.LockFree("x")}))
	ok(t, m.UnregisterGuard(t.Context(), strings.Repeat("g", 100)))
}
