package kthtrip

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// GivenUp has requests end by their context, or by Close of the Space, while the engine cannot be heard any more, from each of
// their round trips on. One that says that it was not done has left nothing that keeps others out.
func GivenUp(t *testing.T, e Engine) {
	e.Faults = []Fault{Silence}
	try(t, e, 0, append(givenUp(), several))
	e.Faults = []Fault{Deafness}
	try(t, e, 0, []Operation{several}) // what is taken back step by step may not all be heard
}

// soon ends a request that waits for an answer.
const soon = 300 * time.Millisecond

// ask is a request of the subject; it is given up when it has to wait, or soon.
type ask func(ctx context.Context, waiting holdfast.HoldOption) (*holdfast.Hold, error)

// several is a request for two names of which the second is held.
var several = Operation{"several, given up", driver.FeatureAll, func(x *trial) {
	a, b := x.name(mutexes, "a"), x.name(mutexes, "b")
	x.givesUp(x.takes(b), []name{a, b}, func(ctx context.Context, waiting holdfast.HoldOption) (*holdfast.Hold, error) {
		return x.client().AcquireAll(ctx, x.client().Mutex(a.text, waiting).Want(), x.client().Mutex(b.text, waiting).Want())
	})
}}

// givenUp are the requests of GivenUp for one name.
func givenUp() (all []Operation) {
	for _, k := range kinds {
		all = append(all, Operation{k.name + " try, given up", k.needs, func(x *trial) {
			n := x.name(k, "free")
			x.givesUp(nil, []name{n}, x.asks(n, true))
		}}, Operation{k.name + " acquire, given up", k.needs, func(x *trial) {
			n := x.name(k, "free")
			x.givesUp(nil, []name{n}, x.asks(n, false))
		}}, Operation{k.name + " wait, given up", k.needs, func(x *trial) {
			n := x.name(k, "held")
			x.givesUp(x.takes(n), []name{n}, x.asks(n, false))
		}})
	}
	return append(all, Operation{Name: "wait, closed", Run: closedWait})
}

func (x *trial) asks(n name, try bool) ask {
	return func(ctx context.Context, waiting holdfast.HoldOption) (*holdfast.Hold, error) {
		return n.some(ctx, x.client(), n.text, try, waiting)
	}
}

// givesUp has the subject ask and leave; in the way is what the bystander holds.
func (x *trial) givesUp(inTheWay *holdfast.Hold, names []name, request ask) {
	x.warm()
	ctx, cancel := context.WithTimeout(x.ctx, soon)
	defer cancel()
	x.arm()
	h, err := request(ctx, holdfast.OnWait(func(int) { cancel() }))
	x.left(err, inTheWay, names)
	if err == nil {
		x.got(h, nil, names...)
	}
}

// closedWait is a wait that ends by Close of its Space.
func closedWait(x *trial) {
	n := x.name(mutexes, "held")
	hold := x.takes(n)
	x.warm()
	waits, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := x.subject.Mutex(n.text, holdfast.OnWait(func(int) { close(waits) })).Acquire(x.ctx)
		ended <- err
	}()
	<-waits
	x.arm()
	closing := x.subject
	go func() { _ = closing.Close() }()
	x.left(<-ended, hold, []name{n})
	x.must("close", closing.Close())
	x.subject = nil
}

// left: a request that was given up and says that it was not done keeps nobody out.
func (x *trial) left(err error, inTheWay *holdfast.Hold, names []name) {
	if inTheWay != nil {
		x.must("release", inTheWay.Release())
	}
	for _, n := range names {
		if !holdfast.NotDone(err) || x.path.Killed() {
			break
		}
		h, taken := n.all(x.ctx, x.other(), true)
		if taken != nil {
			x.broken("%v: it says that nothing was done, and others cannot have %s: %v", err, n.text, taken)
			break
		}
		x.must("release of "+n.text, h.Release())
	}
	_ = x.said(nil) // as it was asked to
}
