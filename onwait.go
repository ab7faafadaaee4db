package holdfast

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// orElse calls f, and undo unless f returns: a function of the program that f calls may panic or end
// the goroutine, which goes on after undo.
func orElse(f, undo func()) {
	returned := false
	defer func() {
		if !returned {
			undo()
		}
	}()
	f()
	returned = true
}

// errLeft is why a call took nothing that has not returned.
var errLeft error = driver.Errorf("", "", context.Canceled, "a function of the program that was called meanwhile, of OnWait or of Hooks, panicked or ended its goroutine")

// request sends w to the backend.
func (c *holdState) request(ctx context.Context, w *request) (driver.Grant, error) {
	if w.Try || c.cfg.onWait == nil {
		return c.r.d.Acquire(ctx, &w.Request)
	}
	return c.requestBeside(ctx, w)
}

// requestBeside is request with a function to be told of the queue. Drivers tell that under their locks, or
// in goroutines that others need; the function may block, panic or end the goroutine. So the driver gets a
// goroutine of its own, and the function that of its caller.
func (c *holdState) requestBeside(ctx context.Context, w *request) (driver.Grant, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &besideRequest{place: make(chan int, 1), answered: make(chan struct{})}
	w.Waiting = b.queued
	go func() {
		defer close(b.answered)
		b.grant, b.err = c.r.d.Acquire(ctx, &w.Request)
	}()
	orElse(func() { b.tell(c.cfg.onWait) }, func() {
		cancel()
		<-b.answered
		if b.err == nil {
			c.fill(b.grant)
			c.callOff()
		}
	})
	return b.grant, b.err
}

// besideRequest is a request that a goroutine of its own waits for.
type besideRequest struct {
	place    chan int      // the last one that f was not told
	answered chan struct{} // closed when the rest is set
	grant    driver.Grant
	err      error
}

// queued takes note of a place; it does not block.
func (b *besideRequest) queued(position int) {
	for {
		select {
		case b.place <- position:
			return
		default:
		}
		select {
		case <-b.place: // told too late to be of use
		default:
		}
	}
}

// tell calls f with the places, until the request is answered.
func (b *besideRequest) tell(f func(position int)) {
	for {
		select {
		case p := <-b.place:
			f(p)
			continue
		case <-b.answered:
		}
		select {
		case p := <-b.place:
			f(p)
		default:
		}
		return
	}
}

// callOff gives back what was granted to a call that does not return.
func (c *holdState) callOff() {
	c.r.busy()
	defer c.r.done()
	c.end(errLeft)
	_ = c.giveBack(c.patience(), nil)
}
