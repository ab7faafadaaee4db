package client

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/until"
)

// waits keeps what callers wait with: a command should not pay for a channel and
// a timer that the one before has just left. They are of one mux, since what
// was made under a test's clock is of no use elsewhere.
type waits struct {
	channels sync.Pool
	timers   sync.Pool
}

// channel has room for one answer.
func (w *waits) channel() chan struct{} {
	if c, ok := w.channels.Get().(chan struct{}); ok {
		return c
	}
	return make(chan struct{}, 1)
}

// emptied takes a channel back that has given its one answer. Of any other an
// answer may still be on its way, and would wake the next wait that has it.
func (w *waits) emptied(c chan struct{}) { w.channels.Put(c) }

// wait waits for the answer; false: ctx has ended before.
func (w *waits) wait(ctx context.Context, ready <-chan struct{}) bool {
	u, ok := ctx.(*until.Context)
	if !ok {
		select {
		case <-ready:
			return true
		case <-ctx.Done():
			return false
		}
	}
	at, _ := u.Deadline()
	t := w.timer(time.Until(at))
	defer w.timers.Put(t)
	defer t.Stop()
	select {
	case <-ready:
		return true
	case <-t.C:
		return false
	}
}

func (w *waits) timer(d time.Duration) *time.Timer {
	if t, ok := w.timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}
