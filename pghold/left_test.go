package pghold_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pghold"
)

// TestCancelledWaitsLeaveNothing: a wait that is given up at any moment leaves no
// waiter behind, also where there are more waits than connections for them: a name
// with one could not be taken any more as long as its program ran.
func TestCancelledWaitsLeaveNothing(t *testing.T) {
	url := database(t) + "&holdfast_waits=1"
	programs := []*holdfast.Space{open(t, url), open(t, url)}
	end := time.Now().Add(3 * time.Second)
	var all sync.WaitGroup
	for i := range 80 {
		all.Go(func() {
			for time.Now().Before(end) {
				cancelled(t, programs[i%2].Mutex(fmt.Sprint("m", rand.IntN(50))))
			}
		})
	}
	all.Wait()
	eventually(t, "waiters stay", func() bool {
		for r, err := range programs[0].List(t.Context(), "") {
			check(t, err)
			if len(r.Holders)+len(r.Waiters) > 0 {
				return false
			}
		}
		return true
	})
}

// cancelled takes m and gives it back, if its patience, which is short now and then,
// suffices.
func cancelled(t *testing.T, m *holdfast.Mutex) {
	ctx, cancel := context.WithTimeout(t.Context(), patience) // nobody holds for long
	defer cancel()
	if rand.IntN(3) == 0 {
		defer time.AfterFunc(rand.N(6*time.Millisecond), cancel).Stop()
	}
	h, err := m.Acquire(ctx)
	switch {
	case err == nil:
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	case errors.Is(err, context.DeadlineExceeded):
		t.Errorf("a wait for nobody: %v", err)
	}
}

// TestLostPartFreesTheRest: an AcquireAll that loses a name on the way has none of
// them; if it was granted before the connection's end was heard of, it is lost.
func TestLostPartFreesTheRest(t *testing.T) {
	url := database(t)
	a, b, look := open(t, url), open(t, url), connect(t, url)
	first, second := inOrder(t, "x", "y")
	held := must(b.Mutex(second).Acquire(t.Context()))(t)
	result := make(chan error, 1)
	go func() {
		h, err := a.AcquireAll(t.Context(), a.Mutex(first).Want(), a.Mutex(second).Want())
		if err == nil {
			<-h.Done()
			err = h.Release()
		}
		result <- err
	}()
	eventually(t, "nobody waits", func() bool { return len(must(b.Inspect(t.Context(), second))(t).Waiters) == 1 })
	var killed bool
	scan(t, look, &killed, "select pg_terminate_backend($1)", holderOf(t, look, first))
	check(t, held.Release())
	if err := <-result; err == nil {
		t.Error("a hold was given and given back although a part of it was lost")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	check(t, must(b.Mutex(second).Acquire(ctx))(t).Release())
}

// inOrder are two names in the order in which an AcquireAll takes them.
func inOrder(t *testing.T, a, b string) (first, second string) {
	n := func(name string) int64 {
		k, err := pghold.ParseKey(name, true)
		check(t, err)
		n, _ := k.Single()
		return n
	}
	if n(a) > n(b) {
		a, b = b, a
	}
	return a, b
}
