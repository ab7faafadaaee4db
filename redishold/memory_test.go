package redishold_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestFullServer: on a server that is out of memory holds are renewed and given
// back, waits are granted, holds are forced, keys are deleted, and only what is new
// is refused.
func TestFullServer(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL(), holdfast.TTL(3*time.Second)), admin(t, server.URL())
	holds := []*holdfast.Hold{}
	for _, take := range []func() (*holdfast.Hold, error){
		func() (*holdfast.Hold, error) { return s.Mutex("m").Acquire(t.Context()) },
		func() (*holdfast.Hold, error) { return s.RWMutex("rw").AcquireRead(t.Context()) },
		func() (*holdfast.Hold, error) { return s.Semaphore("sem", 3).Acquire(t.Context(), 2) },
		func() (*holdfast.Hold, error) { return s.RWMutex("forced").AcquireWrite(t.Context()) },
	} {
		h, err := take()
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
	}
	if _, err := s.KV().Put(t.Context(), "key", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Counter("counter").Store(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	waits, granted := make(chan struct{}), make(chan error, 1)
	go func() {
		h, err := s.Mutex("m", holdfast.OnWait(func(int) { close(waits) })).Acquire(t.Context())
		if err == nil {
			err = h.Release()
		}
		granted <- err
	}()
	<-waits
	do(t, rc, "CONFIG", "SET", "maxmemory", "100kb") // less than it has
	if _, err := s.Mutex("new").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "raise maxmemory") {
		t.Errorf("a new hold: %v", err)
	}
	first, _ := holds[0].Deadline()
	eventually(t, "the holds are not renewed", func() bool {
		d, _ := holds[0].Deadline()
		return holds[0].Err() != nil || d.After(first.Add(3*time.Second))
	})
	for i, h := range holds {
		if err := h.Err(); err != nil {
			t.Fatalf("hold %d was lost: %v", i, err)
		}
	}
	if deleted, err := s.KV().Delete(t.Context(), "key"); err != nil || !deleted {
		t.Errorf("delete of a key: %v", err)
	}
	if err := s.Counter("counter").Delete(t.Context()); err != nil {
		t.Errorf("delete of a counter: %v", err)
	}
	if _, err := s.ForceRelease(t.Context(), "forced", holds[3].Token(), holdfast.Now()); err != nil {
		t.Errorf("force release: %v", err)
	}
	for i, h := range holds[:3] {
		if err := h.Release(); err != nil {
			t.Errorf("release of hold %d: %v", i, err)
		}
	}
	if err := <-granted; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
