package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/causes"
	"github.com/holdfast-io/holdfast/pipeline"
)

// Run runs a run until it has ended, and returns its last state. If another program runs
// it, Run waits, and goes on with it if that one is lost. When ctx ends, a command that
// runs is ended, which is a failure of its phase, what is held is given back, and what
// follows is left to the next runner: the next attempt, the phase for failures, or nothing.
func (p *Pipelines) Run(ctx context.Context, r Ref) (pipeline.State, error) {
	var left unkept
	var stalled stall
	for try := 0; ; try++ {
		s, err := p.once(ctx, r, &left)
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			return s, fmt.Errorf("pipeline: run %s: %w", r, context.Cause(ctx))
		case errors.Is(err, errChanged):
		case !passing(err):
			return s, err
		case stalled.fresh(&s, err):
			p.onError(r, err)
		}
		if !pause(ctx, try) {
			return s, fmt.Errorf("pipeline: run %s: %w", r, context.Cause(ctx))
		}
	}
}

// stall is a run that does not go on.
type stall struct {
	since time.Time // of the state that it does not leave
	tried bool
	told  causes.Told
}

// fresh reports that the error is to be told: not of the first try, which often is the last, and each cause once.
func (l *stall) fresh(s *pipeline.State, err error) bool {
	if s.Status != "" && !s.Since.Equal(l.since) { // it was read, and has gone on
		*l = stall{since: s.Since}
	}
	if !l.tried {
		l.tried = true
		return false
	}
	return l.told.Fresh(err)
}

// unkept is the end of a command that was seen here, and could not be kept for so long that
// the run was left: the next time that this program has the run, it is kept first. So is that
// a command was not started, if whether its launch was kept was not known for so long. Of another
// runner's commands it knows nothing.
type unkept struct {
	event pipeline.Event
	token uint64 // under which the command ran, or was to; 0: there is none
}

// keep keeps the end, if no other runner had the run meanwhile. One that does not fit any more
// is dropped.
func (u *unkept) keep(ctx context.Context, p *Pipelines, v *view) error {
	if u.token == 0 || u.token != v.Token {
		return nil
	}
	if _, _, unfit := v.Definition.Step(v.State, u.event); unfit != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience) // what is wrong is to be told
	defer cancel()
	if _, err := p.put(ctx, v, u.event, nil); err != nil {
		return err
	}
	p.told(v.Ref, v.State)
	*u = unkept{}
	return nil
}

// once waits until this program runs the run, and runs it until it has ended or is lost.
func (p *Pipelines) once(ctx context.Context, r Ref, left *unkept) (pipeline.State, error) {
	v, err := p.load(ctx, r)
	if err != nil || v.State.Status.Ended() {
		return stateOf(v), err
	}
	if err := p.canRun(v.Definition); err != nil {
		return v.State, err
	}
	l, err := p.space.Election(r.election()).Campaign(ctx, nil)
	if err != nil {
		return v.State, err
	}
	defer l.Resign() // one that is lost needs no resignation
	return p.lead(ctx, r, l, left)
}
