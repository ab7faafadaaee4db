package gather

import (
	"context"
	"sync"
	"time"
)

// shared are the answers that many ask for at the same moment, as all waits of a program do for what is looked at every so
// often: one of them asks for all. The zero shared is ready.
type shared[K comparable, T any] struct {
	mu      sync.Mutex
	flights map[K]*flight[T]
}

// flight is what is being asked for.
type flight[T any] struct {
	users int
	turn  chan struct{} // holds one: that user asks, and changes what follows
	known bool
	began time.Time // when the last that was answered was asked
	value T
	err   error
}

// ask is the answer to what was not asked before this call, by itself or another. What ended with the context of the asking call is
// asked again.
func (s *shared[K, T]) ask(ctx context.Context, key K, find func() (T, error)) (value T, err error) {
	called := time.Now()
	f := s.join(key)
	defer s.leave(key, f)
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return value, ctx.Err()
	}
	if f.known && !f.began.Before(called) {
		return f.value, f.err
	}
	f.known, f.began = false, time.Now()
	f.value, f.err = find()
	f.known = ctx.Err() == nil
	return f.value, f.err
}

func (s *shared[K, T]) join(key K) *flight[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[key]
	if f == nil {
		f = &flight[T]{turn: make(chan struct{}, 1)}
		if s.flights == nil {
			s.flights = map[K]*flight[T]{}
		}
		s.flights[key] = f
	}
	f.users++
	return f
}

func (s *shared[K, T]) leave(key K, f *flight[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users--; f.users == 0 {
		delete(s.flights, key)
	}
}
