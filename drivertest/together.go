package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
)

// background is a call that runs beside the case.
type background[T any] struct {
	ended chan struct{}
	value T
	err   error
}

// later starts f.
func later[T any](f func() (T, error)) *background[T] {
	b := &background[T]{ended: make(chan struct{})}
	go func() {
		defer close(b.ended)
		if err := caught(func() { b.value, b.err = f() }); err != nil {
			b.err = err
		}
	}()
	return b
}

// wait returns what the call returned; the case's end leaves the case.
func (b *background[T]) wait(ctx context.Context, what string) (T, error) {
	select {
	case <-b.ended:
		return b.value, b.err
	case <-ctx.Done():
		fail("%s did not return: %w", what, context.Cause(ctx))
		panic("unreachable")
	}
}

// over reports whether the call has returned.
func (b *background[T]) over() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// queued is a wait for a hold that is known to have reached the queue.
type queued struct{ *background[*holdfast.Hold] }

// queue starts acquire with an option that tells when it has to wait, and
// returns once it does.
func queue(ctx context.Context, acquire func(holdfast.HoldOption) (*holdfast.Hold, error)) queued {
	waits := make(chan struct{}, 1)
	b := later(func() (*holdfast.Hold, error) {
		return acquire(holdfast.OnWait(func(int) {
			select {
			case waits <- struct{}{}:
			default:
			}
		}))
	})
	select {
	case <-waits:
	case <-b.ended:
		refused(b.err, errWaits, "an Acquire of a name that is taken")
	case <-ctx.Done():
		fail("an Acquire that has to wait did not say so to OnWait: %w", context.Cause(ctx))
	}
	return queued{b}
}

var errWaits = errors.New("a wait")

// queueFor is queue for waits that give no hold.
func queueFor(ctx context.Context, s *holdfast.Space, wait func(s *holdfast.Space) error) queued {
	return queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return nil, wait(s.With(o)) })
}

// granted waits for the hold.
func (q queued) granted(ctx context.Context) *holdfast.Hold {
	return must(q.wait(ctx, "the next in the queue"))
}

// together runs f n times at once and leaves the case with the first error.
func together(n int, f func(i int)) {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = caught(func() { f(i) }) })
	}
	all.Wait()
	done(errors.Join(errs...))
}

// blocked leaves the case unless call is still waiting when its context ends.
func blocked(ctx context.Context, what string, call func(ctx context.Context) error) {
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	refused(call(short), context.DeadlineExceeded, what)
}

// crowd runs f n times at once, of one client after the other. f calls entered when it
// is inside, which returns when everybody is inside or waits in the queue, so that a
// backend that lets too many in is seen to.
func crowd(ctx context.Context, n int, clients []*holdfast.Space, f func(i int, s *holdfast.Space, entered func())) {
	var here, turns atomic.Int64
	together(n, func(i int) {
		arrive := sync.OnceFunc(func() { here.Add(1) })
		s := clients[i%len(clients)].With(holdfast.OnWait(func(int) { arrive() }))
		f(i, s, func() {
			arrive()
			turns.Add(1)
			eventually(ctx, "not everybody is inside or in the queue", func() bool { return here.Load() == int64(n) })
		})
	})
	want(turns.Load() == int64(n), "%d of %d got their turn", turns.Load(), n)
}

// ends leaves the case unless the hold ends before it does.
func ends(ctx context.Context, done <-chan struct{}, what string) {
	select {
	case <-done:
	case <-ctx.Done():
		fail("%s did not end: %w", what, context.Cause(ctx))
	}
}
