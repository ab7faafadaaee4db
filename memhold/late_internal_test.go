package memhold

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// A process that was stopped finds all its timers late. Whatever comes first
// then, no grant may come before the loss that makes room for it was told. Here
// only the store's clock has gone on, so that every timer is late.
func TestLossIsToldBeforeAnyTimer(t *testing.T) {
	for _, ends := range []holdfast.HoldOption{holdfast.TTL(time.Second), holdfast.MaxHold(time.Second)} {
		t.Run(fmt.Sprintf("%T", ends), func(t *testing.T) {
			st := newStore("")
			a, b := space(t, st), space(t, st)
			h, err := a.Mutex("m", ends).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Release()
			lost := h.Done() // later calls of Done would look at the clock
			st.g.Shift(2 * time.Second)
			if _, err := b.Mutex("m", holdfast.TTL(time.Hour)).Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			select {
			case <-lost:
			default:
				t.Fatal("granted before the loss was known")
			}
		})
	}
}

// A caller that comes while another goroutine tells of the losses that it found is not
// granted anything before all of them are told either: those of a session, and
// those of holds alone.
func TestLossIsToldBeforeAnotherIsGranted(t *testing.T) {
	for name, request := range map[string]driver.Request{
		"session": {Spec: driver.Spec{TTL: time.Second}},
		"MaxHold": {Spec: driver.Spec{TTL: time.Hour}, MaxHold: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				grantTheLost(t, request)
			}
		})
	}
}

func grantTheLost(t *testing.T, request driver.Request) {
	st := newStore("")
	c, b := st.newClient(), space(t, st)
	defer c.Close(t.Context())
	var told [100]atomic.Bool
	for i := range told {
		var once sync.Once
		lost := func(error) {
			once.Do(func() {
				runtime.Gosched() // the others have every chance
				told[i].Store(true)
			})
		}
		r := request
		r.Lost, r.Wants = lost, []driver.Want{{Name: fmt.Sprint("m", i), Kind: driver.Mutex, Mode: driver.Exclusive, Weight: 1}}
		g, err := c.Acquire(t.Context(), &r)
		if err != nil {
			t.Fatal(err)
		}
		new(driver.Tie).To(g.Session, lost)
	}
	st.g.Shift(2 * time.Second)
	var all sync.WaitGroup
	for i := range told {
		all.Go(func() {
			if _, err := b.Mutex(fmt.Sprint("m", i)).Acquire(t.Context()); err != nil {
				t.Error(err)
			}
			if !told[i].Load() {
				t.Errorf("m%d was granted before its loss was known", i)
			}
		})
	}
	all.Wait()
}

// A machine session that outlives its caller's session (the process was stopped while a
// renewal was being noted) ends with the next renewal: what it holds is free, and
// the next caller gets a session that lasts.
func TestLapsedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore("")
		c := st.newClient()
		defer c.Close(t.Context())
		var faults []string
		c.OnFault(func(op, _ string, err error) { faults = append(faults, fmt.Sprint(op, ": ", err)) })
		want := driver.Request{Spec: driver.Spec{TTL: time.Second}, Try: true, Lost: func(error) {},
			Wants: []driver.Want{{Name: "m", Kind: driver.Mutex, Mode: driver.Exclusive, Weight: 1}}}
		g, err := c.Acquire(t.Context(), &want)
		if err != nil {
			t.Fatal(err)
		}
		g.Session.End(errors.New("not renewed in time"))
		time.Sleep(time.Second)
		synctest.Wait()
		next, err := c.Acquire(t.Context(), &want)
		if err != nil || next.Session.Err() != nil {
			t.Errorf("the next grant: %v", err)
		}
		if len(faults) != 1 || faults[0] != "keep session: not renewed in time" {
			t.Errorf("faults: %q", faults)
		}
	})
}

// A renewal by hand of a session that has ended by its own clock says so, whatever
// the other side answers.
func TestLapsedSessionIsNotKept(t *testing.T) {
	st := newStore("")
	c := st.newClient()
	defer c.Close(t.Context())
	l, err := c.OpenSession(t.Context(), driver.Spec{TTL: time.Hour, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	l.End(driver.ErrLost)
	if err := c.KeepSession(t.Context(), l, 0); !errors.Is(err, driver.ErrLost) {
		t.Errorf("KeepSession: %v", err)
	}
}

func space(t *testing.T, st *store) *holdfast.Space {
	t.Helper()
	s, err := holdfast.New(st.newClient())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
