package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pipeline"
)

// queueTurn does what the queue says: a run that is replaced ends, and one that is next
// takes its place.
func (a *active) queueTurn() error {
	if a.Definition.Places > 0 {
		l, err := a.lookAtQueue()
		if err != nil {
			return ifPassing(err)
		}
		q := l.q
		i := q.find(a.ID)
		switch {
		case i < 0 || q.Runs[i].Replaced:
			if a.State.Status == pipeline.Stopping {
				return nil
			}
			return a.take(message{event: pipeline.Event{Kind: pipeline.Cancel, Reason: "a newer run replaces it"}})
		case a.State.Status != pipeline.Queued:
			return nil
		case q.Runs[i].Lost != 0: // it has a runner
			return a.found(*q, i)
		case l.err != nil:
			return l.err
		case l.next == "":
			a.stands(q, "", l.lost)
			return nil
		case l.next != a.ID: // it may have no runner
			a.recheck.Reset(min(cmp.Or(max(a.p.settles(&q.Runs[q.find(l.next)]), 0), settling), a.p.between()))
			a.stands(q, l.next, nil)
			return nil
		}
	}
	if a.State.Status != pipeline.Queued {
		return nil
	}
	return a.take(message{event: pipeline.Event{Kind: pipeline.Admitted}})
}

// found takes back that a run was without a runner.
func (a *active) found(q queue, i int) error {
	q.Runs = slices.Clone(q.Runs) // others look at it, too
	q.Runs[i].Lost = 0
	if err := a.p.keepQueue(a.ctx, a.Pipeline, &q); err != nil {
		return ifPassing(err)
	}
	a.look()
	return nil
}

// look is what was found of a queue. It is not changed.
type look struct {
	q    *queue
	next string          // the run that starts next; empty: there is no place
	err  error           // why that is not known
	lost map[string]bool // if there is no place: those without a runner
}

// lookAtQueue looks at the queue. A change of it wakes all runs that wait: those of this program that were
// woken before a look began share it, so that a change costs one look, and not one for each.
func (a *active) lookAtQueue() (*look, error) {
	if a.State.Status != pipeline.Queued { // what is next is nothing to it
		q, err := a.p.loadQueue(a.ctx, a.Pipeline)
		return &look{q: q}, err
	}
	name := fmt.Sprintf("%s/look/%d/%s", a.Pipeline, a.Definition.Places, a.Definition.Policy) // no pipeline has a slash in its name
	t, begun := a.p.enterTurns(name)
	leave, err := a.p.awaitTurn(a.ctx, t, name)
	if err != nil {
		return nil, err
	}
	defer leave()
	if t.begun > begun && t.last != nil {
		return t.last, nil
	}
	a.p.mu.Lock()
	t.begun++
	a.p.mu.Unlock()
	t.last, err = a.lookNow()
	return t.last, err
}

// lookNow looks. What was found when the run had to stop meanwhile is half a look, and nobody's.
func (a *active) lookNow() (*look, error) {
	q, err := a.p.loadQueue(a.ctx, a.Pipeline)
	if err != nil {
		return nil, err
	}
	l := &look{q: q}
	if l.next, _, l.err = q.next(a.Definition, a.p.abandoned(a.ctx, a.view, q)); l.err == nil && l.next == "" {
		l.lost = a.p.endLost(a.ctx, a.Pipeline, q)
	}
	if a.ctx.Err() != nil {
		return nil, context.Cause(a.ctx)
	}
	return l, nil
}

// stands tells where the run stands in the queue. It is not kept: it changes with every run
// before it.
func (a *active) stands(q *queue, next string, lost map[string]bool) {
	if why := clip(q.why(a.view, next, lost)); why != a.State.Reason {
		a.State.Reason = why
		a.p.told(a.Ref, a.State)
	}
}

func ifPassing(err error) error {
	if passing(err) {
		return nil
	}
	return err
}
