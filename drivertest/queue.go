package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var fifo = []driver.Feature{driver.FeatureFIFO}

var queueCases = []Case{
	{Name: "Queue/OrderOfArrival", Needs: fifo, Run: run(queueOrderOfArrival),
		Promise: "Waiters of all clients are served in the order of their arrival."},
	{Name: "Queue/OrderInOneClient", Run: run(queueOrderInOneClient),
		Promise: "Waiters of one client are served in the order of their arrival."},
	{Name: "Queue/OnWaitTellsPlace", Needs: fifo, Run: run(queueOnWaitTellsPlace),
		Promise: "OnWait is told the place in the queue, 1 being next."},
	{Name: "Queue/FreeNeverWaits", Run: run(queueFreeNeverWaits),
		Promise: "OnWait is not called when the name is free."},
	{Name: "Queue/CancelReturnsAtOnce", Run: run(queueCancelReturnsAtOnce),
		Promise: "Cancelling the context of a waiting Acquire returns at once, with the context's error."},
	{Name: "Queue/DeadlineReturnsAtOnce", Run: run(queueDeadlineReturnsAtOnce),
		Promise: "When the deadline of a waiting Acquire passes it returns context.DeadlineExceeded."},
	{Name: "Queue/DeadlineOnItsWay", Run: run(queueDeadlineOnItsWay),
		Promise: "A deadline that passes while a new client is still on its way to the backend is context.DeadlineExceeded too."},
	{Name: "Queue/CancelLeaves", Run: run(queueCancelLeaves),
		Promise: "A cancelled waiter leaves the queue: it is never granted, and a waiter behind it moves up."},
	{Name: "Queue/CancelMeetsGrant", Run: run(queueCancelMeetsGrant),
		Promise: "When a cancel and the grant meet, the caller has the hold or the name is free; nothing leaks."},
	{Name: "Queue/EndedContext", Run: run(queueEndedContext),
		Promise: "With a context that has ended, Acquire of a free name fails with its error and takes nothing."},
	{Name: "Queue/CloseLeaves", Run: run(queueCloseLeaves),
		Promise: "The waiters of a client that closes get ErrClosed, leave the queue and take nothing."},
	{Name: "Queue/ContextBoundsOnlyTheWait", Run: run(queueContextBoundsOnlyTheWait),
		Promise: "A hold goes on after the context of its Acquire has ended."},
}

// line is a queue behind one holder: waiters[i] is the i-th to arrive, of
// clients[i modulo their number].
func line(ctx context.Context, n int, clients ...*holdfast.Space) (*holdfast.Hold, []queued) {
	first := must(clients[0].Mutex("m").Acquire(ctx))
	waiters := make([]queued, n)
	for i := range waiters {
		s := clients[i%len(clients)]
		waiters[i] = queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return s.Mutex("m", o).Acquire(ctx) })
	}
	return first, waiters
}

// inOrder releases h and then each waiter as it is granted, and leaves the case
// if a later one was granted first.
func inOrder(ctx context.Context, h *holdfast.Hold, waiters []queued) {
	for i, w := range waiters {
		done(h.Release())
		for !w.over() {
			eventually(ctx, "nobody of the queue was granted", func() bool { return anyOver(waiters[i:]) })
			want(w.over(), "a later waiter was granted before number %d", i+1)
		}
		h = w.granted(ctx)
	}
	done(h.Release())
}

func anyOver(waiters []queued) bool {
	for _, w := range waiters {
		if w.over() {
			return true
		}
	}
	return false
}

func queueOrderOfArrival(ctx context.Context, e *Env) {
	h, waiters := line(ctx, 9, e.Client(), e.Client(), e.Client())
	inOrder(ctx, h, waiters)
}

func queueOrderInOneClient(ctx context.Context, e *Env) {
	h, waiters := line(ctx, 5, e.Client())
	inOrder(ctx, h, waiters)
}

func queueOnWaitTellsPlace(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	for i, s := range []*holdfast.Space{a, b, a} {
		place := make(chan int, 8)
		m := s.Mutex("m", holdfast.OnWait(func(position int) { place <- position }))
		later(func() (*holdfast.Hold, error) { return m.Acquire(ctx) })
		select {
		case p := <-place:
			want(p == i+1, "number %d in the queue was told that its place is %d", i+1, p)
		case <-ctx.Done():
			fail("OnWait was not called: %w", context.Cause(ctx))
		}
	}
	done(h.Release())
}

func queueFreeNeverWaits(ctx context.Context, e *Env) {
	waited := make(chan int, 8)
	m := e.Client().Mutex("m", holdfast.OnWait(func(position int) { waited <- position }))
	for range 3 {
		done(must(m.Acquire(ctx)).Release())
	}
	want(len(waited) == 0, "OnWait was called for a free name")
}

func queueCancelReturnsAtOnce(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	waiting, cancel := context.WithCancel(ctx)
	w := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return s.Mutex("m", o).Acquire(waiting) })
	cancel()
	refused(second(w.wait(ctx, "a cancelled Acquire")), context.Canceled, "a cancelled Acquire")
	done(h.Err())
	done(h.Release())
}

func queueDeadlineReturnsAtOnce(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	waiting, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	err := second(s.Mutex("m").Acquire(waiting))
	refused(err, context.DeadlineExceeded, "Acquire past its deadline")
	done(h.Err())
	done(h.Release())
}

func queueDeadlineOnItsWay(ctx context.Context, e *Env) {
	h := must(e.Client().Mutex("m").Acquire(ctx))
	for i := range 20 {
		s := must(e.Open(ctx))
		short, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond/2)
		err := second(s.Sub(e.Prefix()).Mutex("m").Acquire(short))
		cancel()
		done(s.Close())
		refused(err, context.DeadlineExceeded, "the first Acquire of a client, past its deadline")
	}
	done(h.Release())
}

func queueCancelLeaves(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	waiting, cancel := context.WithCancel(ctx)
	gone := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.Mutex("m", o).Acquire(waiting) })
	next := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return a.Mutex("m", o).Acquire(ctx) })
	cancel()
	refused(second(gone.wait(ctx, "a cancelled Acquire")), context.Canceled, "a cancelled Acquire")
	done(h.Release())
	got := next.granted(ctx)
	eventually(ctx, "the cancelled waiter is still in the queue", func() bool { return len(must(a.Inspect(ctx, "m")).Waiters) == 0 })
	done(got.Release())
	free(ctx, a.Mutex("m"), "after the last Release")
}

func queueCancelMeetsGrant(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	for range 50 {
		h := must(a.Mutex("m").Acquire(ctx))
		waiting, cancel := context.WithCancel(ctx)
		w := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.Mutex("m", o).Acquire(waiting) })
		released := later(func() (struct{}, error) { return struct{}{}, h.Release() })
		cancel()
		must(released.wait(ctx, "Release"))
		if got, err := w.wait(ctx, "a cancelled Acquire"); err == nil {
			done(got.Err())
			done(got.Release())
		} else {
			refused(err, context.Canceled, "a cancelled Acquire")
		}
		eventually(ctx, "the name did not become free", func() bool { return isFree(ctx, a.Mutex("m")) })
	}
}

// isFree tries the mutex.
func isFree(ctx context.Context, m *holdfast.Mutex) bool {
	h, err := m.TryAcquire(ctx)
	if errors.Is(err, holdfast.ErrHeld) {
		return false
	}
	done(err)
	done(h.Release())
	return true
}

func queueEndedContext(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	over, cancel := context.WithCancel(ctx)
	cancel()
	err := second(m.Acquire(over))
	refused(err, context.Canceled, "Acquire with a cancelled context")
	want(holdfast.NotDone(err), "NotDone is false for %v", err)
	late, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	refused(second(m.TryAcquire(late)), context.DeadlineExceeded, "TryAcquire past its deadline")
	free(ctx, m, "after calls with ended contexts")
}

func queueCloseLeaves(ctx context.Context, e *Env) {
	a, b := e.Client(), must(e.Open(ctx))
	h := must(a.Mutex("m").Acquire(ctx))
	w := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) {
		return b.Sub(e.Prefix()).Mutex("m", o).Acquire(ctx)
	})
	done(b.Close())
	refused(second(w.wait(ctx, "an Acquire of a closed client")), holdfast.ErrClosed, "an Acquire of a closed client")
	done(h.Release())
	eventually(ctx, "the name did not become free", func() bool { return isFree(ctx, a.Mutex("m")) })
}

func queueContextBoundsOnlyTheWait(ctx context.Context, e *Env) {
	s := e.Client()
	waiting, cancel := context.WithCancel(ctx)
	h := must(s.Mutex("m").Acquire(waiting))
	cancel()
	done(h.Err())
	refused(second(s.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire while the hold lasts")
	done(h.Release())
	free(ctx, s.Mutex("m"), "after a Release past the context's end")
}
