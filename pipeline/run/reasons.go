package run

import (
	"time"

	"github.com/holdfast-io/holdfast/pipeline"
)

// reasons keeps an attempt from writing an event for each change of what it waits for: one
// a second is kept, the last.
type reasons struct {
	of   pipeline.State // where the run stood when the last was kept, at
	at   time.Time
	last message
	due  *time.Timer
}

// reasonsApart is the time between two reasons of one wait that are kept.
const reasonsApart = time.Second

// now reports that a reason is to be kept now: it is another one, and the first of its wait
// or long enough after the last. Of those that come too early the last is due later.
func (r *reasons) now(m *message, s *pipeline.State) bool {
	r.due.Stop()
	if clip(m.event.Reason) == s.Reason {
		return false
	}
	rest := reasonsApart - time.Since(r.at)
	if same := r.of.Status == s.Status && r.of.Phase == s.Phase && r.of.Attempt == s.Attempt; same && rest > 0 {
		r.last = *m
		r.due.Reset(rest)
		return false
	}
	r.of, r.at = *s, time.Now()
	return true
}
