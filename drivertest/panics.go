package drivertest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/holdfast-io/holdfast"
)

var panicCases = []Case{
	{Name: "Panic/OnWait", Run: run(panicOnWait),
		Promise: "A panic of OnWait's function, or an exit of its goroutine, reaches the caller of Acquire, and the wait is taken back."},
	{Name: "Panic/Outcome", Run: run(panicOutcome),
		Promise: "A panic of a hook that is told of an outcome reaches the caller of Acquire or Do, and the name is free."},
	{Name: "Panic/End", Run: run(panicEnd),
		Promise: "A panic of a hook that is told of an end reaches the caller of Release, and the name is free."},
}

const mishap = "out of tea"

// leaves reports whether f left its goroutine by the mishap, or by an exit.
func leaves(ctx context.Context, f func()) bool {
	returned, over := false, make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			if p := recover(); p != nil && p != mishap {
				returned = true
			}
		}()
		f()
		returned = true
	}()
	ends(ctx, over, "a call with a function that does not return")
	return !returned
}

func panicOnWait(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	for what, leave := range map[string]func(){"panic": func() { panic(mishap) }, "exit": runtime.Goexit} {
		h := must(a.Mutex("m").Acquire(ctx))
		m := b.Mutex("m", holdfast.OnWait(func(int) { leave() }))
		want(leaves(ctx, func() { _, _ = m.Acquire(ctx) }), "the %s of OnWait's function did not reach the caller", what)
		eventually(ctx, "the wait is still there after the "+what, func() bool { return len(must(a.Inspect(ctx, "m")).Waiters) == 0 })
		done(h.Release())
		eventually(ctx, "the name did not become free after the "+what, func() bool { return isFree(ctx, a.Mutex("m")) })
	}
}

func panicOutcome(ctx context.Context, e *Env) {
	told := func(*holdfast.Hold, error) { panic(mishap) }
	hooks := holdfast.Hooks{Acquire: func(ctx context.Context, _ string) (context.Context, func(*holdfast.Hold, error)) { return ctx, told }}
	m, other := e.Client(hooks).Mutex("m"), e.Client().Mutex("m")
	want(leaves(ctx, func() { _, _ = m.Acquire(ctx) }), "the panic of a hook did not reach the caller of Acquire")
	free(ctx, other, "after a panic of a hook in Acquire")
	f := func(context.Context, *holdfast.Hold) error { return nil }
	want(leaves(ctx, func() { _ = m.Do(ctx, f) }), "the panic of a hook did not reach the caller of Do")
	free(ctx, other, "after a panic of a hook in Do")
}

func panicEnd(ctx context.Context, e *Env) {
	hooks := holdfast.Hooks{End: func(_ *holdfast.Hold, _ time.Duration, err error) {
		if errors.Is(err, holdfast.ErrReleased) { // a loss is told in a goroutine of the library
			panic(mishap)
		}
	}}
	m, other := e.Client(hooks).Mutex("m"), e.Client().Mutex("m")
	h := must(m.Acquire(ctx))
	want(leaves(ctx, func() { _ = h.Release() }), "the panic of a hook did not reach the caller of Release")
	free(ctx, other, "after a panic of a hook in Release")
	done(h.Release())
}
