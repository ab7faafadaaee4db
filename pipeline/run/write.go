package run

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pipeline"
)

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
