package cli

import (
	"context"
	"sync/atomic"
	"time"
)

// patience is a context that ends, as with a deadline, when the backend has said nothing for
// the timeout: how long it all takes depends on how much there is. It has no Deadline, which
// others would take for one that stays.
type patience struct {
	context.Context // ends also with this one
	done            chan struct{}
	silence         *time.Timer
	timeout         time.Duration
	until           atomic.Int64 // nanoseconds since began
	began           time.Time
}

func (a *app) patience(parent context.Context) (*patience, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	p := &patience{Context: ctx, done: make(chan struct{}), timeout: a.timeout, began: time.Now()}
	p.until.Store(int64(a.timeout))
	p.silence = time.AfterFunc(a.timeout, func() { cancel(errTimeout) })
	context.AfterFunc(ctx, func() {
		p.silence.Stop()
		close(p.done)
	})
	return p, func() { cancel(nil) }
}

// Done is another channel than that of the context within: what is made of p takes its error
// from p.
func (p *patience) Done() <-chan struct{} { return p.done }

func (p *patience) Err() error {
	switch {
	case !isClosed(p.done):
		return nil
	case context.Cause(p.Context) == errTimeout:
		return context.DeadlineExceeded
	}
	return p.Context.Err()
}

// came begins the timeout anew: something was heard.
func (p *patience) came() {
	p.until.Store(int64(time.Since(p.began) + p.timeout))
	p.silence.Reset(p.timeout)
}

// left is the time to the end if nothing more is heard.
func (p *patience) left() time.Duration { return time.Duration(p.until.Load()) - time.Since(p.began) }
