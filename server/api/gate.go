package api

import (
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// gate bounds the calls under way: those that work, and those that stay for long,
// because they wait for a hold, watch, or carry sessions.
type gate struct {
	mu         sync.Mutex
	work, stay admission.Room
}

func (g *gate) limit(calls, stays int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.work.Limit, g.stay.Limit = calls, stays
}

// enter takes a call in; leave has to be called when it ends.
func (g *gate) enter(c admission.Class) (leave func(), err error) {
	return g.into(&g.work, "--max-calls", c)
}

// settle takes a call in that will stay.
func (g *gate) settle(c admission.Class) (leave func(), err error) {
	return g.into(&g.stay, "--max-waits", c)
}

func (g *gate) into(r *admission.Room, flag string, c admission.Class) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait, ok := r.Takes(c); !ok {
		return nil, busy(r, flag, wait)
	}
	r.Used++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		r.Used--
	}, nil
}

// rest turns a call that works into one that waits for a hold; resume has to be
// called when it works again.
func (g *gate) rest() (resume func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait, ok := g.stay.Takes(admission.Grant); !ok {
		return nil, busy(&g.stay, "--max-waits", wait)
	}
	g.move(-1)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.move(1)
	}, nil
}

// away counts a call that the leader is asked for among those that wait, since only
// the leader knows whether it does; while there is room, else it goes on working
// here. back has to be called with the answer.
func (g *gate) away(c admission.Class) (back func()) {
	if c == admission.Grant {
		if back, err := g.rest(); err == nil {
			return back
		}
	}
	return func() {}
}

func (g *gate) move(n int) {
	g.work.Used += n
	g.stay.Used -= n
}

// busy is what who finds no room is told.
func busy(r *admission.Room, flag string, wait time.Duration) error {
	e := driver.Errorf("call", "", driver.ErrExhausted,
		"the node has %d such calls under way and takes no more of this kind: try again in %s, or let it take more than %d (serve %s)", r.Used, wait, r.Limit, flag)
	e.RetryAfter = wait
	return e
}
