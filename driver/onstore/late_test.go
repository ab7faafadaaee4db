package onstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// lateStore is a store with a swap that is given up before the engine takes it.
type lateStore struct {
	*memoryStore
	next  atomic.Bool  // the next swap is late
	comes func() error // lets it come
}

func (s *lateStore) Swap(ctx context.Context, key string, old driver.Revision, value []byte) (driver.Revision, error) {
	if !s.next.Swap(false) {
		return s.memoryStore.Swap(ctx, key, old, value)
	}
	s.comes = func() error {
		_, err := s.memoryStore.Swap(context.Background(), key, old, value)
		return err
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

// A request to take a lock that the engine gets when its caller has given up takes nothing: nobody
// would give it back.
func TestLateRequestTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, m *memoryStore) {
		s := &lateStore{memoryStore: m}
		sp := open(t, s)
		for used := range 2 {
			mutex := sp.Mutex(fmt.Sprint("used ", used))
			for range used {
				release(t, mutex)
			}
			s.next.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := mutex.Acquire(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || holdfast.NotDone(err) {
				t.Errorf("given up: %v", err)
			}
			synctest.Wait() // what it has left is taken back
			if err := s.comes(); !errors.Is(err, driver.ErrConflict) {
				t.Errorf("the late request: %v", err)
			}
			release(t, mutex)
		}
	})
}

// release takes a mutex that is free, and gives it back.
func release(t *testing.T, m *holdfast.Mutex) {
	t.Helper()
	h, err := m.TryAcquire(t.Context())
	if err == nil {
		err = h.Release()
	}
	if err != nil {
		t.Errorf("%s: %v", m.Name(), err)
	}
}

// A refusal says once by whom the name is held.
func TestHeldIsSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T, m *memoryStore) {
		sp := open(t, m).With(holdfast.Owner("me"))
		first, err := sp.Mutex("a").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer first.Release()
		_, one := sp.Mutex("a").TryAcquire(t.Context())
		_, both := sp.TryAcquireAll(t.Context(), sp.Mutex("Z").Want(), sp.Mutex("a").Want())
		for _, err := range []error{one, both} {
			if text := fmt.Sprint(err); strings.Count(text, "held by me") != 1 {
				t.Error(text)
			}
		}
	})
}
