package drivertest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// Env is what one case works with: clients of the store, and names that no
// other case uses. Everything that it opened is closed when the case ends.
type Env struct {
	*suite
	ctx    context.Context
	prefix string

	mu     sync.Mutex
	opened []*holdfast.Space
	kept   []*holdfast.Hold
}

// Root opens another client. Its names are the store's own: put Prefix before
// them.
func (e *Env) Root(opts ...holdfast.Option) *holdfast.Space {
	s := must(e.Open(e.ctx, opts...))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opened = append(e.opened, s)
	return s
}

// Client opens another client whose names are the case's own.
func (e *Env) Client(opts ...holdfast.Option) *holdfast.Space {
	return e.Root(opts...).Sub(e.prefix)
}

// take is must for a hold that lasts as long as the case: one that nobody keeps
// would be released as abandoned.
func (e *Env) take(h *holdfast.Hold, err error) *holdfast.Hold {
	done(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, h)
	return h
}

// Prefix is what every name of the case begins with.
func (e *Env) Prefix() string { return e.prefix }

// Info is what the backend declares.
func (e *Env) Info() driver.Info { return e.info }

// Has reports whether the backend declares f.
func (e *Env) Has(f driver.Feature) bool { return e.info.Features[f] }

// short is the TTL of sessions that are meant to be lost; backends without TTLs
// ignore it.
func (e *Env) short() holdfast.TTL { return holdfast.TTL(max(e.TTL, time.Second)) }

func (e *Env) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, s := range e.opened {
		if err := s.Close(); err != nil {
			errs = append(errs, fmt.Errorf("a client did not close: %w", err))
		}
	}
	return errors.Join(errs...)
}

// broken is how a check leaves its case: [run] turns it into the case's error.
type broken struct{ err error }

// run lets a check be written straight on: must, want and fail leave it.
func run(check func(ctx context.Context, e *Env)) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		return caught(func() { check(ctx, e) })
	}
}

// caught runs f and returns how it was left. A panic of the backend is told as
// an error too, so that one case does not end the others.
func caught(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			err = p.err
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	f()
	return nil
}

// fail leaves the case.
func fail(format string, args ...any) { panic(broken{fmt.Errorf(format, args...)}) }

// want leaves the case unless ok.
func want(ok bool, format string, args ...any) {
	if !ok {
		fail(format, args...)
	}
}

// must leaves the case if err is not nil.
func must[T any](v T, err error) T {
	done(err)
	return v
}

// done leaves the case if err is not nil.
func done(err error) {
	if err != nil {
		panic(broken{err})
	}
}

// refused leaves the case unless err is of the kind; what names the call.
func refused(err, kind error, what string) {
	switch {
	case err == nil:
		fail("%s succeeded; want %v", what, kind)
	case !errors.Is(err, kind):
		fail("%s: got %w; want %v", what, err, kind)
	}
}

// second is the error of a call whose value does not matter.
func second[T any](_ T, err error) error { return err }

// free leaves the case unless the mutex is free.
func free(ctx context.Context, m *holdfast.Mutex, when string) {
	h, err := m.TryAcquire(ctx)
	if err != nil {
		fail("%s the name is not free: %w", when, err)
	}
	done(h.Release())
}

// eventually looks until it sees what it wants; the case's end is an error that
// says what was missing.
func eventually(ctx context.Context, missing string, look func() bool) {
	for pause := time.Millisecond; !look(); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-ctx.Done():
			fail("%s: %w", missing, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

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
		fail("an Acquire of a name that is taken did not wait: it got %v, %w", b.value, b.err)
	case <-ctx.Done():
		fail("an Acquire that has to wait did not say so to OnWait: %w", context.Cause(ctx))
	}
	return queued{b}
}

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

// ends leaves the case unless the hold ends before it does.
func ends(ctx context.Context, done <-chan struct{}, what string) {
	select {
	case <-done:
	case <-ctx.Done():
		fail("%s did not end: %w", what, context.Cause(ctx))
	}
}
