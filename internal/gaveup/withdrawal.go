package gaveup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Patience is how long the error of a request that is taken back waits for the engine to confirm that: a round trip to a
// server that is well. It is what a caller pays beyond the end of its context if the server is not.
const Patience = 100 * time.Millisecond

// Withdrawal is what a backend does in the background to take a request back that ended without a grant. The zero value
// is one that had nothing to take back.
type Withdrawal struct {
	mu    sync.Mutex
	steps int           // under way
	doubt bool          // the engine may keep something of the request for a while
	idle  chan struct{} // closed when no step is under way
}

// Begin announces a step, before the call that needs it returns, or from within another step.
func (w *Withdrawal) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.steps == 0 {
		w.idle = make(chan struct{})
	}
	w.steps++
}

// End is the end of a step. heard: the engine has confirmed it.
func (w *Withdrawal) End(heard bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubt = w.doubt || !heard
	if w.steps--; w.steps == 0 {
		close(w.idle)
	}
}

// Doubt notes that the engine may keep something of the request that nobody can take back, such as what was asked on a
// connection that broke.
func (w *Withdrawal) Doubt() {
	w.Begin()
	w.End(false)
}

// begun: there was something to take back.
func (w *Withdrawal) begun() bool { return w.under() != nil }

// under is what to wait for.
func (w *Withdrawal) under() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle
}

func (w *Withdrawal) doubted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt
}

// Withdrawn is the error of an Acquire that ended without a grant, and all that is done to take back what the backend did
// for it. Where its context ended it, or err says that nothing was done, the outcome is NotDone if the engine
// confirms all of that within Patience, and unknown if it does not.
func Withdrawn(err error, all ...*Withdrawal) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Kind != context.Canceled && e.Kind != context.DeadlineExceeded && e.Outcome != driver.NotDone {
		return err
	}
	if !slices.ContainsFunc(all, (*Withdrawal).begun) {
		return err
	}
	told := *e
	if told.Outcome = driver.Unknown; confirmed(all) {
		told.Outcome = driver.NotDone
	}
	return &told
}

// confirmed waits until the engine has confirmed all, for Patience at most.
func confirmed(all []*Withdrawal) bool {
	late := time.NewTimer(Patience)
	defer late.Stop()
	for _, w := range all {
		if w.begun() && !w.doubted() {
			select {
			case <-w.under():
			case <-late.C:
				return false
			}
		}
		if w.doubted() {
			return false
		}
	}
	return true
}
