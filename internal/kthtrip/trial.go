package kthtrip

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// trial is one operation that is disturbed once: the subject does it, by a proxy;
// the bystander, undisturbed, sees what came of it.
type trial struct {
	r     *run
	op    Operation
	fault Fault
	k     int

	ctx     context.Context
	path    Proxy
	driver  driver.Driver // the subject's
	subject *holdfast.Space
	prefix  string // of its names
	names   []name
	tokens  map[string]holdfast.Token // the greatest one of each name
	armed   bool
	struck  bool
	err     error // of the operation
}

// timeLimit is how long an operation may take: a fault that lasts a moment delays it
// by much less.
const timeLimit = 30 * time.Second

// run does the operation and looks what came of it. false: it ended before its
// k-th round trip.
func (x *trial) run() bool {
	ctx, cancel := context.WithTimeout(x.r.t.Context(), timeLimit)
	defer cancel()
	x.ctx, x.prefix, x.tokens = ctx, "kth/"+rand.Text()[:10]+"/", map[string]holdfast.Token{}
	x.path = x.r.e.Proxy(x.r.t)
	defer x.path.End()
	defer x.stop()
	x.op.Run(x)
	x.disarm()
	ctx, cancel = context.WithTimeout(x.r.t.Context(), 4*x.r.e.Bound)
	defer cancel()
	x.ctx = ctx
	x.after()
	if x.err == nil && !x.r.t.Failed() {
		x.r.succeeded(x.op.Name)
	}
	return x.struck
}

// broken reports that a promise was broken.
func (x *trial) broken(format string, args ...any) {
	x.r.t.Errorf("%s, at round trip %d (it came: %t; the operation said: %v): %s", pair{x.op, x.fault}, x.k, x.struck, x.err, fmt.Sprintf(format, args...))
}

// over ends a trial that cannot go on; it has been reported.
type over struct{}

// must reports an error of what nothing disturbs, and ends the trial.
func (x *trial) must(what string, err error) {
	if err != nil {
		x.broken("%s, undisturbed: %v", what, err)
		panic(over{})
	}
}

func (x *trial) stop() {
	if p := recover(); p != nil && p != any(over{}) {
		panic(p)
	}
}

// eventually is the last result of f within the bound.
func (x *trial) eventually(f func() error) (err error) {
	within(x.ctx, x.r.e.Bound, func() bool {
		err = f()
		return err == nil
	})
	return err
}

// client is the subject; it is opened if the operation did not do that.
func (x *trial) client() *holdfast.Space {
	if x.subject == nil {
		x.must("open", x.open())
	}
	return x.subject
}

func (x *trial) open() (err error) {
	if x.driver, err = x.path.Open(x.ctx); err == nil {
		x.subject, err = holdfast.New(x.driver, holdfast.TTL(TTL))
	}
	return err
}

func (x *trial) other() *holdfast.Space { return x.r.bystander }

// arm has the fault count from here on.
func (x *trial) arm() {
	x.client()
	x.path.Arm(x.k, x.fault)
	x.armed = true
}

// disarm ends the disturbed part; what follows is about what came of it.
func (x *trial) disarm() {
	if x.armed {
		x.struck = x.path.Disarm()
	}
	x.armed = false
}

// said notes what the operation said. One that does not end, or that fails
// although nothing disturbed it and the machine was not too slow, is broken.
func (x *trial) said(err error) error {
	x.disarm()
	if x.err = err; x.ctx.Err() != nil {
		x.broken("it did not end in %s", timeLimit)
	}
	slow := errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrLost)
	if err != nil && !x.struck && !slow {
		x.broken("it failed although nothing disturbed it")
	}
	return err
}

// after is what has to be so when a trial is over: every name can be had by the
// bystander although the subject lives, the subject serves on, and nothing is left
// when it is closed.
func (x *trial) after() {
	for _, n := range x.names {
		x.free(n)
	}
	if x.subject != nil && x.path.Killed() {
		_ = x.subject.Close()
	} else if x.subject != nil {
		x.serves()
		x.must("close", x.subject.Close())
	}
	if !within(x.ctx, x.r.e.Bound, func() bool { return x.path.Conns() == 0 }) {
		x.broken("%d connections are open after Close", x.path.Conns())
	}
	if left := x.r.leftovers(x.ctx, x.prefix); len(left) > 0 {
		x.broken("the engine still has %q", left)
	}
}

// serves: the subject takes and frees a name that nobody used before.
func (x *trial) serves() {
	err := x.eventually(func() error {
		h, err := x.subject.Mutex(x.prefix + "serves").Acquire(x.ctx)
		if err != nil {
			return err
		}
		return h.Release()
	})
	if err != nil {
		x.broken("the client does not serve any more: %v", err)
	}
}

// free: the bystander can have all of a name, with a token of its own.
func (x *trial) free(n name) {
	ctx, cancel := context.WithTimeout(x.ctx, x.r.e.Bound)
	defer cancel()
	h, err := n.all(ctx, x.other(), false)
	if err != nil {
		x.broken("%s cannot be had within %s: %v", n.text, x.r.e.Bound, err)
		return
	}
	x.token(n, h)
	x.must("release of "+n.text, h.Release())
	if n.delete != nil {
		x.must("delete of "+n.text, x.eventually(func() error { return n.delete(x.ctx, x.other(), n.text) })) // a late arrival is taken back
	}
}

// token: it is greater than every one before.
func (x *trial) token(n name, h *holdfast.Hold) {
	if t := h.TokenOf(n.text); t <= x.tokens[n.text] {
		x.broken("%s has the token %d after %d", n.text, t, x.tokens[n.text])
	} else {
		x.tokens[n.text] = t
	}
}

// got takes what the subject got: a hold excludes the bystander as long as it
// says so, and its release is seen at once.
func (x *trial) got(h *holdfast.Hold, err error, names ...name) {
	if x.said(err) != nil {
		return
	}
	for _, n := range names {
		x.excludes(n, h)
	}
	x.released(h.Release(), names...)
}

// lasts: the hold says so, to a program that still runs.
func (x *trial) lasts(h *holdfast.Hold) bool { return h.Err() == nil && !x.path.Killed() }

// excludes: while the hold says that it lasts, nobody else has the name.
func (x *trial) excludes(n name, h *holdfast.Hold) {
	other, err := n.all(x.ctx, x.other(), true)
	if err == nil {
		if x.lasts(h) {
			x.broken("%s has two holders, with the tokens %d and %d", n.text, h.TokenOf(n.text), other.TokenOf(n.text))
		}
		x.must("release of "+n.text, other.Release())
	} else if !errors.Is(err, holdfast.ErrHeld) {
		x.must("try of "+n.text, err)
	}
	x.tokens[n.text] = max(x.tokens[n.text], h.TokenOf(n.text))
}

// released: a release that succeeded is seen by everybody.
func (x *trial) released(err error, names ...name) {
	if err != nil {
		return
	}
	for _, n := range names {
		h, err := n.all(x.ctx, x.other(), true)
		if err != nil {
			x.broken("%s is not free after its release: %v", n.text, err)
			continue
		}
		x.token(n, h)
		x.must("release of "+n.text, h.Release())
	}
}
