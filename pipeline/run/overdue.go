package run

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pipeline"
)

// hearTask takes a message of what is waited for, or of the command. A wait that was over when it
// began ends with it, unless the run has come further by it.
func (a *active) hearTask(m message) error {
	if err := a.hear(m); err != nil || m.task == nil || m.task.Err() != nil {
		return err
	}
	a.silent = false
	if !a.overdue {
		return nil
	}
	a.overdue = false
	return a.take(message{event: a.of(pipeline.Ticked)})
}

// wakeAt has the wait end at an instant. One that is over already ends with what is found now: a run
// that was left may be resumed later than that.
func (a *active) wakeAt(at time.Time) {
	left := at.Sub(a.p.now())
	if a.overdue = left <= 0 && a.silent; a.overdue {
		left = patience
	}
	a.until.Reset(max(left, 0))
}

// write keeps an event. An end of the run's context does not interrupt it: what was kept has
// to be known then, too.
func (a *active) write(e pipeline.Event) ([]pipeline.Effect, error) {
	if a.ctx.Err() != nil {
		return nil, context.Cause(a.ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), patience)
	defer cancel()
	if e.Kind == pipeline.Acquired || e.Kind == pipeline.Launched {
		e.At = a.waited()
	}
	return a.p.put(ctx, a.view, e, nil)
}

// waited is the instant at which what the run waits for is there, by how long it has waited here: a clock of the caller's that
// was set back would say that it was no time, and the condition would not be looked at again after a long wait.
func (a *active) waited() time.Time { return a.State.Since.Add(time.Since(a.since)) }

// later is the later of two instants.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
