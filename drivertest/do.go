package drivertest

import (
	"context"
	"errors"
	"runtime"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var doCases = []Case{
	{Name: "Do/ReleasesOnReturn", Run: run(doReleasesOnReturn),
		Promise: "Do holds the mutex while f runs and has released it when it returns."},
	{Name: "Do/ReturnsTheError", Run: run(doReturnsTheError),
		Promise: "Do returns f's error and releases all the same."},
	{Name: "Do/ReleasesOnPanic", Run: run(doReleasesOnPanic),
		Promise: "A panic inside Do passes on, and the mutex is released."},
	{Name: "Do/ReleasesOnGoexit", Run: run(doReleasesOnGoexit),
		Promise: "A goroutine that exits inside Do leaves the mutex released."},
	{Name: "Do/TryRunsNothing", Run: run(doTryRunsNothing),
		Promise: "TryDo of a held mutex is ErrHeld, and f does not run."},
}

var endCases = []Case{
	{Name: "Do/LossIsTold", Needs: []driver.Feature{driver.FeatureForce}, Run: run(doLossIsTold),
		Promise: "When the hold is lost inside Do, f's context ends with that cause, and Do returns ErrLost, not the cancellation."},
	{Name: "Do/LossJoinsTheError", Needs: []driver.Feature{driver.FeatureForce}, Run: run(doLossJoinsTheError),
		Promise: "When the hold is lost inside Do and f fails for a reason of its own, Do tells both."},
	{Name: "Do/ParentEnds", Run: run(doParentEnds),
		Promise: "When the caller's context ends inside Do, f's context does, and Do returns f's error and releases."},
}

func doReleasesOnReturn(ctx context.Context, e *Env) {
	m, other := e.Client().Mutex("m"), e.Client().Mutex("m")
	done(m.Do(ctx, func(bound context.Context, h *holdfast.Hold) error {
		refused(second(other.TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire while Do runs")
		done(h.Err())
		return bound.Err()
	}))
	free(ctx, other, "after Do")
}

func doReturnsTheError(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	why := errors.New("f failed")
	refused(m.Do(ctx, func(context.Context, *holdfast.Hold) error { return why }), why, "Do with a failing f")
	free(ctx, m, "after a failing Do")
}

func doReleasesOnPanic(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	func() {
		defer func() {
			if p := recover(); p != "out of coffee" {
				fail("the panic became %v", p)
			}
		}()
		_ = m.Do(ctx, func(context.Context, *holdfast.Hold) error { panic("out of coffee") })
	}()
	free(ctx, m, "after a panic inside Do")
}

func doReleasesOnGoexit(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = m.Do(ctx, func(context.Context, *holdfast.Hold) error { runtime.Goexit(); return nil })
	}()
	ends(ctx, over, "a goroutine that exits inside Do")
	free(ctx, m, "after an exit inside Do")
}

func doTryRunsNothing(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	ran := false
	err := s.Mutex("m").TryDo(ctx, func(context.Context, *holdfast.Hold) error { ran = true; return nil })
	refused(err, holdfast.ErrHeld, "TryDo of a held mutex")
	want(!ran, "f ran without the mutex")
	done(h.Release())
	done(s.Mutex("m").TryDo(ctx, func(context.Context, *holdfast.Hold) error { ran = true; return nil }))
	want(ran, "f did not run with the mutex")
}

// lose ends the hold by force, from another client.
func lose(ctx context.Context, s *holdfast.Space, name string, h *holdfast.Hold) {
	must(s.ForceRelease(ctx, name, h.Token()))
}

func doLossIsTold(ctx context.Context, e *Env) {
	m, other := e.Client().Mutex("m"), e.Client()
	err := m.Do(ctx, func(bound context.Context, h *holdfast.Hold) error {
		lose(ctx, other, "m", h)
		ends(ctx, bound.Done(), "the context of a lost hold")
		refused(context.Cause(bound), holdfast.ErrLost, "the cause of a lost hold's context")
		return bound.Err()
	})
	refused(err, holdfast.ErrLost, "Do with a lost hold")
	want(!errors.Is(err, context.Canceled), "Do with a lost hold returned the cancellation: %v", err)
}

func doLossJoinsTheError(ctx context.Context, e *Env) {
	m, other := e.Client().Mutex("m"), e.Client()
	why := errors.New("f failed")
	err := m.Do(ctx, func(bound context.Context, h *holdfast.Hold) error {
		lose(ctx, other, "m", h)
		ends(ctx, bound.Done(), "the context of a lost hold")
		return why
	})
	refused(err, holdfast.ErrLost, "Do with a lost hold and a failing f")
	refused(err, why, "Do with a lost hold and a failing f")
}

func doParentEnds(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	parent, cancel := context.WithCancel(ctx)
	err := m.Do(parent, func(bound context.Context, h *holdfast.Hold) error {
		cancel()
		ends(ctx, bound.Done(), "f's context after the caller's")
		done(h.Err())
		return bound.Err()
	})
	refused(err, context.Canceled, "Do whose caller's context ended")
	free(ctx, m, "after Do")
}
