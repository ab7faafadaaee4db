package drivertest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
)

// broken is how a check leaves its case: [run] turns it into the case's error.
type broken struct{ err error }

// run lets a check be written straight on: must, want and fail leave it. When a call was unavailable and the backend had been
// silent for a while, it is the machine that was seen, and the check is made anew, as long as its time lasts.
func run(check func(ctx context.Context, e *Env)) func(context.Context, *Env) error {
	return anewIf(check, func(*Env) time.Duration { return silence }, func(err error, heldUp bool) bool {
		return heldUp && errors.Is(err, holdfast.ErrUnavailable)
	})
}

// silence is how late the backend was at least, as far as it was asked, when calls that wait for 2 s or more gave up.
const silence = 500 * time.Millisecond

// timed is run for checks in which sessions of the shortest TTL have to live
// for a while. When the program itself, or the process of the backend, was held up for a
// good part of it, what was seen says nothing about the backend, and the check is made
// anew. So it is when the backend asks to come again later, since it was too slow for the
// TTL.
func timed(check func(ctx context.Context, e *Env)) func(context.Context, *Env) error {
	return anewIf(check, func(e *Env) time.Duration { return max(e.TTL, time.Second) / 4 }, func(err error, heldUp bool) bool {
		return heldUp || holdfast.RetryAfter(err) > 0 || errors.Is(err, errLate)
	})
}

// anewIf makes a check that fails anew if that is the machine's fault: heldUp is whether the program, or the process
// of the backend, was held up for longer than it may be.
func anewIf(check func(context.Context, *Env), may func(*Env) time.Duration, machine func(err error, heldUp bool) bool) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		for {
			heldUp := pauses(may(e), func(ctx context.Context) { _ = e.probe.Ping(ctx) })
			err := caught(func() { check(ctx, e) })
			if again := machine(err, heldUp()); err == nil || !again || ctx.Err() != nil {
				return err
			}
			e.anew()
		}
	}
}

// inTime leaves a timed case, which then begins anew, if h has ended by its own clock
// meanwhile: what others got after that proves nothing.
func inTime(h *holdfast.Hold) {
	if h.Err() != nil {
		fail("%w: %w", errLate, h.Err())
	}
}

var errLate = errors.New("the machine was too slow for the TTL of the case")

// pauses looks for pauses of the program, and of the backend, which ask asks now and then; the
// function returned ends that and reports whether they lasted longer than d together, within
// four times d: a session of that TTL ends by several short ones as well as by one.
func pauses(d time.Duration, ask func(context.Context)) (ended func() bool) {
	var (
		ctx, stop = context.WithCancel(context.Background())
		all       sync.WaitGroup
		late      = lateness{every: d / 5}
		paused    bool
	)
	all.Go(func() {
		tick := time.NewTicker(late.every)
		defer tick.Stop()
		for last, n := time.Now(), 0; ctx.Err() == nil; n++ {
			if n%5 == 0 {
				ask(ctx)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			now := time.Now()
			paused = late.after(now.Sub(last)) > d || paused
			last = now
		}
	})
	return func() bool {
		stop()
		all.Wait()
		return paused
	}
}

// lateness adds up how much later than expected the last ticks came.
type lateness struct {
	every time.Duration // between two ticks
	late  [20]time.Duration
	next  int
	sum   time.Duration
}

// after takes the time to a tick since the one before, and is the sum with it.
func (l *lateness) after(took time.Duration) time.Duration {
	late := max(took-l.every, 0)
	l.sum += late - l.late[l.next]
	l.late[l.next] = late
	l.next = (l.next + 1) % len(l.late)
	return l.sum
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
