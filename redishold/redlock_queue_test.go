package redishold_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

// TestRedLockHandsOn: a release lets the next waiter of the client ask at once. Here the pause
// between two looks is longer than the test.
func TestRedLockHandsOn(t *testing.T) {
	var urls []string
	for _, s := range services.RedisN(t, 3) {
		urls = append(urls, s.URL())
	}
	d, err := redishold.OpenRedLock(t.Context(), urls, &redishold.Options{BusyWaitMin: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := s.Mutex("m").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const waiters = 3
	waits, had := make(chan int, waiters), make(chan error, waiters)
	for range waiters {
		go func() {
			next, err := s.Mutex("m", holdfast.OnWait(func(n int) { waits <- n })).Acquire(ctx)
			if err == nil {
				err = next.Release()
			}
			had <- err
		}()
	}
	for range waiters {
		<-waits
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
	for range waiters {
		if err := <-had; err != nil {
			t.Errorf("a waiter of a mutex that was given back: %v", err)
		}
	}
}
