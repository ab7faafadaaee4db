package pghold

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// What is set up for more than one call (the schema, the home link, links for waits) is made with the context of the client,
// and goes on when the caller that needed it first has left. With that caller's own, callers that are all shorter of time
// than a set-up takes would begin it anew each time, and none of them would ever be served.

// shared is one such work: done once at a time, for all that ask meanwhile.
type shared[T any] struct {
	mu       sync.Mutex
	underWay *attempt[T]
}

// attempt is one run of it.
type attempt[T any] struct {
	over chan struct{} // closed when the rest is known
	made T
	err  error
}

// do returns what run made, or what came of the run that is under way. If ctx ends first the run goes on.
func (s *shared[T]) do(ctx context.Context, c *client, run func(ctx context.Context) (T, error)) (none T, _ error) {
	a := s.begin(c, run)
	if a == nil {
		return none, errClosed
	}
	select {
	case <-a.over:
		return a.made, a.err
	case <-ctx.Done():
		return none, gaveup.Error(ctx, driver.NotDone)
	}
}

// begin is the attempt that is under way, or a new one; nil: the client is closed.
func (s *shared[T]) begin(c *client, run func(ctx context.Context) (T, error)) *attempt[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.underWay != nil {
		return s.underWay
	}
	a := &attempt[T]{over: make(chan struct{})}
	if !c.spawn(func() { s.run(c, a, run) }) {
		return nil
	}
	s.underWay = a
	return a
}

func (s *shared[T]) run(c *client, a *attempt[T], run func(ctx context.Context) (T, error)) {
	a.made, a.err = run(c.life)
	a.err = c.orClosed(a.err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay = nil
	close(a.over)
}

// orClosed is the error of a set-up, which ends with the client too.
func (c *client) orClosed(err error) error {
	if err != nil && c.life.Err() != nil {
		return errClosed
	}
	return err
}

// dialled is what a caller that wants a link for a wait gets.
type dialled struct {
	l   *pgLink
	err error
}

// want asks for a link for a wait, and has one made unless one is that nobody waits for any more; the client is locked.
func (c *client) want() chan dialled {
	w := make(chan dialled, 1)
	c.wanting = append(c.wanting, w)
	if c.dialling < len(c.wanting) {
		c.waits++
		c.dialling++
		c.work.Go(c.dialWait)
	}
	return w
}

// wantNoMore is for a caller that leaves: what it has been given in this moment is another's.
func (c *client) wantNoMore(w chan dialled) {
	c.mu.Lock()
	i := slices.Index(c.wanting, w)
	if i >= 0 {
		c.wanting = slices.Delete(c.wanting, i, i+1)
		c.mu.Unlock()
		return
	}
	d := <-w
	unused := d.l != nil && !c.keep(d.l)
	c.mu.Unlock()
	if unused {
		d.l.fail(errUnused)
	}
}

// dialWait makes a link for a wait, for the first that wants one by then, or the next. If that fails it does so for all:
// the others' attempts are no better.
func (c *client) dialWait() {
	l, err := c.dial(c.life, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialling--
	if err != nil {
		c.waits--
	} else if !c.keep(l) {
		err = errGoneAtOnce
	}
	if err = c.orClosed(err); err == nil {
		return
	}
	for _, w := range c.wanting {
		w <- dialled{err: err}
	}
	c.wanting = nil
}

// errGoneAtOnce: the link that was made has been lost before anybody had it.
var errGoneAtOnce = refuse(driver.ErrUnavailable, "the connection broke as soon as it was made; try again")

// keep hands an idle link to a caller that wants one, or keeps it for the next; false: it has ended, or the client closed. The client is
// locked.
func (c *client) keep(l *pgLink) bool {
	if _, lives := c.links[l]; !lives || c.closed {
		return false
	}
	if len(c.wanting) == 0 {
		c.spare = append(c.spare, l)
		return true
	}
	c.wanting[0] <- dialled{l: l}
	c.wanting = c.wanting[1:]
	return true
}
