package run

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/pipeline"
)

// launch takes what the limiters allow, unless it was taken before, and tells that the command
// may start. What it took is given back if it does not.
func (a *active) launch(ctx context.Context, f *pipeline.Effect, before func()) {
	if before != nil {
		a.send(ctx, message{task: ctx, event: about(pipeline.Launched, f), undo: before})
		return
	}
	woken := make(chan struct{}, 1)
	for try := 0; ; try++ {
		taken, refused, err := a.p.reserve(ctx, f.Limits)
		undo := func() { cancelAll(ctx, taken) }
		if err == nil && refused == nil {
			a.send(ctx, message{task: ctx, event: about(pipeline.Launched, f), undo: undo})
			return
		}
		undo()
		switch {
		case ctx.Err() != nil || err != nil && a.refused(ctx, f, err):
			return
		case try == 0:
			defer a.p.events.Subscribe(changesOf(f.Limits, woken))()
			continue // what has changed before that is not told
		}
		if !wait(ctx, woken, a.waitsForLimits(ctx, f, refused, err, try)) {
			return
		}
	}
}

// waitsForLimits tells why it waits, and is how long at most until it asks again.
func (a *active) waitsForLimits(ctx context.Context, f *pipeline.Effect, refused *refusal, err error, try int) time.Duration {
	if err != nil {
		a.waits(ctx, f, guard.Error, err.Error())
		return backoff(try)
	}
	a.waits(ctx, f, guard.Failed, refused.reason)
	return min(refused.after, a.p.recheck)
}

// changesOf wakes when the rate of one of the limiters was set, or it was reset or deleted.
func changesOf(limits []pipeline.Limit, woken chan struct{}) gather.Interest {
	i := gather.Interest{Changed: func(...guard.Input) {
		select {
		case woken <- struct{}{}:
		default: // it is about to ask
		}
	}}
	for _, l := range limits {
		i.Inputs = append(i.Inputs, guard.Input{Source: guard.SourceLimit, Name: l.Limiter, Other: l.Key})
	}
	return i
}

// leastPause is between two requests to a limiter: each is a write of the backend, and
// what a limiter of many users promises may be gone when it is asked again.
const leastPause = 50 * time.Millisecond

// wait waits for at least leastPause, and at most so long unless it is woken; false: ctx has ended.
func wait(ctx context.Context, woken <-chan struct{}, most time.Duration) bool {
	if !rest(ctx, leastPause) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-woken:
	case <-time.After(most - leastPause):
	}
	return true
}

// refusal is what a limiter says.
type refusal struct {
	after  time.Duration
	reason string
}

// reserve takes from every limiter, or tells which one refuses; what one never allows is an [fs.ErrInvalid].
func (p *Pipelines) reserve(ctx context.Context, limits []pipeline.Limit) (taken []*holdfast.Reservation, refused *refusal, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, l := range limits {
		r, err := p.space.Limiter(l.Limiter, limit.Rate{}).Reserve(ctx, l.Key, l.Cost)
		if err != nil {
			return taken, nil, err
		}
		if d := r.Decision; !d.Allowed {
			if d.RetryAfter == limit.Never {
				return taken, nil, fmt.Errorf("the limiter %q never allows a cost of %d: the most is %d: %w", l.Limiter, l.Cost, d.Limit, fs.ErrInvalid)
			}
			text := fmt.Sprintf("the limiter %q allows a cost of %d in %s", l.Limiter, l.Cost, d.RetryAfter.Round(time.Millisecond))
			return taken, &refusal{d.RetryAfter, text}, nil
		}
		taken = append(taken, r)
	}
	return taken, nil, nil
}

// cancelAll gives reservations back; what cannot be given back passes unused.
func cancelAll(ctx context.Context, taken []*holdfast.Reservation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for _, r := range taken {
		_ = r.Cancel(ctx)
	}
}
