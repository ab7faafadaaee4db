package filehold_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// unreadable has every look at what the processes of a directory hold fail: one of them, which seems to live,
// tells it in what is no file.
func unreadable(t *testing.T, dir string) {
	t.Helper()
	at := filepath.Join(dir, ".holdfast", "live", "ffffffffffffffff")
	if err := errors.Join(syscall.Mkfifo(at+".pipe", 0o600), os.Mkdir(at+".claims", 0o700)); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(at+".pipe", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })
}

// TestWaiterBehindAnotherDoesNotLook: of thousands that wait for one lock in a process only the first reads what
// all processes hold and await, which all the others are in. With 5,000 that took 50 s.
func TestWaiterBehindAnotherDoesNotLook(t *testing.T) {
	dir := t.TempDir()
	s, err := holdfast.Open(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h, err := s.Mutex("m").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const many = 5000
	over, leave := make(chan error, many), func() {}
	for i := range many {
		ctx, cancel := context.WithCancel(t.Context())
		queued, end := make(chan struct{}), make(chan error, 1)
		go func() {
			h, err := s.Mutex("m", holdfast.OnWait(func(int) { close(queued) })).Acquire(ctx)
			if err == nil {
				err = h.Release()
			}
			end <- err
			over <- err
		}()
		select {
		case <-queued:
		case err := <-end:
			t.Fatalf("waiter %d: %v", i, err)
		}
		if leave = cancel; i == 0 {
			unreadable(t, dir)
		}
		defer cancel()
	}
	leave()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the last leaves: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := s.RWMutex("m", holdfast.OnWait(func(int) { cancel() })).Reader().Acquire(ctx); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("one of another kind does not look: %v", err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	for range many - 1 {
		if err := <-over; err != nil {
			t.Fatal(err)
		}
	}
}
