package pghold

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
)

// withdraw runs a step in the background that takes back what was done for a request that is not granted; it tells whether
// the server has confirmed that.
func (c *client) withdraw(cl *rowClaim, step func() (heard bool)) {
	cl.withdrawn.Begin()
	if !c.spawn(func() { cl.withdrawn.End(step()) }) {
		cl.withdrawn.End(false)
	}
}

// doubt notes that the server may have done for a request what a job asked before its connection broke: it keeps that until it has
// noticed.
func (cl *rowClaim) doubt(j *job) {
	if j.state.Load() == running && uncertain(j.err) {
		cl.withdrawn.Doubt()
	}
}

// uncertain: what failed with err may have been done.
func uncertain(err error) bool {
	if err == nil || errors.Is(err, errPassed) {
		return false
	}
	e, ok := errors.AsType[*driver.Error](failed(context.Background(), err))
	return !ok || e.Outcome != driver.NotDone
}
