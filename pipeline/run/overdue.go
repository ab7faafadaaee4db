package run

import (
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
