package onstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// swaps is a fault of every swap.
func swaps(x fault) func(op, key string) fault {
	return func(op, _ string) fault {
		if op == "swap" {
			return x
		}
		return fault{}
	}
}

// A call that Close ends is told as one that was not done only if it was not: not if the
// engine has done it and has not answered yet.
func TestCloseDuringCalls(t *testing.T) {
	calls := map[string]func(ctx context.Context, sp *holdfast.Space) error{
		"add": func(ctx context.Context, sp *holdfast.Space) error {
			_, err := sp.Counter("c").Add(ctx, 1)
			return err
		},
		"put": func(ctx context.Context, sp *holdfast.Space) error {
			_, err := sp.KV().Put(ctx, "k", []byte{1})
			return err
		},
		"reserve": func(ctx context.Context, sp *holdfast.Space) error {
			_, err := sp.Sequence("q").Reserve(ctx, 1)
			return err
		},
		"allow": func(ctx context.Context, sp *holdfast.Space) error {
			_, err := sp.Limiter("l", limit.Rate{Count: 1, Per: 1e9}).Allow(ctx, "k")
			return err
		},
	}
	for name, call := range calls {
		for _, sent := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memoryStore) { closeDuring(t, s, sent, call) })
			})
		}
	}
}

func closeDuring(t *testing.T, s *memoryStore, sent bool, call func(ctx context.Context, sp *holdfast.Space) error) {
	sp := open(t, s)
	s.set(func(string, string) fault { return fault{hang: true} })
	if sent {
		s.set(swaps(fault{stall: true, after: errLink}))
	}
	over := make(chan error)
	go func() { over <- call(t.Context(), sp) }()
	synctest.Wait()
	closed := make(chan error, 1)
	go func() { closed <- sp.Close() }()
	if err := <-over; !errors.Is(err, holdfast.ErrClosed) || holdfast.NotDone(err) == sent {
		t.Errorf("sent %v: told %v, not done: %v", sent, err, holdfast.NotDone(err))
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A lock that is granted while the driver closes is given back as all others are: nobody
// waits for its TTL.
func TestCloseDuringAGrant(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		s.set(swaps(fault{stall: true}))
		over := make(chan error)
		go func() {
			_, err := sp.Mutex("m").Acquire(t.Context())
			over <- err
		}()
		synctest.Wait()
		s.set(func(string, string) fault { return fault{} })
		go sp.Close()
		if err := <-over; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Acquire: %v", err)
		}
		synctest.Wait()
		if _, err := open(t, s).Mutex("m").TryAcquire(t.Context()); err != nil {
			t.Errorf("after Close: %v", err)
		}
	})
}
