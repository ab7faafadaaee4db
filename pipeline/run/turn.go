package run

import (
	"cmp"

	"github.com/holdfast-io/holdfast/pipeline"
)

// queueTurn does what the queue says: a run that is replaced ends, and one that is next
// takes its place.
func (a *active) queueTurn() error {
	if a.Definition.Places > 0 {
		q, err := a.p.loadQueue(a.ctx, a.Pipeline)
		if err != nil {
			return ifPassing(err)
		}
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
			q.Runs[i].Lost = 0
			if err := a.p.keepQueue(a.ctx, a.Pipeline, q); err != nil {
				return ifPassing(err)
			}
			a.look()
			return nil
		}
		id, _, err := q.next(a.Definition, a.p.abandoned(a.ctx, a.view, q))
		switch {
		case err != nil:
			return err
		case id == "":
			a.stands(q, "", a.p.endLost(a.ctx, a.Pipeline, q))
			return nil
		case id != a.ID: // it may have no runner
			a.recheck.Reset(min(cmp.Or(max(a.p.settles(&q.Runs[q.find(id)]), 0), settling), a.p.between()))
			a.stands(q, id, nil)
			return nil
		}
	}
	if a.State.Status != pipeline.Queued {
		return nil
	}
	return a.take(message{event: pipeline.Event{Kind: pipeline.Admitted}})
}

// stands tells where the run stands in the queue. It is not kept: it changes with every run
// before it.
func (a *active) stands(q *queue, next string, lost map[string]bool) {
	if why := clip(q.why(a.ID, next, lost)); why != a.State.Reason {
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
