package drivertest

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var spaceCases = []Case{
	{Name: "Space/Ping", Run: run(spacePing),
		Promise: "Ping of a backend that is there succeeds; a call whose context has ended fails with its error."},
	{Name: "Space/PingWhileGone", Uses: CanCut, Run: run(spacePingWhileGone),
		Promise: "With the backend gone a call returns when its context ends, and later calls succeed when it is there again."},
	{Name: "Space/CloseEndsHolds", Run: run(spaceCloseEndsHolds),
		Promise: "Close ends every hold with ErrLost and ErrClosed and frees its name for others."},
	{Name: "Space/AfterClose", Run: run(spaceAfterClose),
		Promise: "Every call after Close is ErrClosed; a second Close returns the first result."},
	{Name: "Space/CloseOfAPart", Run: run(spaceCloseOfAPart),
		Promise: "Closing a part that Sub or With made does nothing."},
	{Name: "Space/CloseLeavesOthers", Run: run(spaceCloseLeavesOthers),
		Promise: "Closing one client leaves the holds of every other alone."},
	{Name: "Space/ShutdownWaits", Run: run(spaceShutdownWaits),
		Promise: "Shutdown takes no new claims, waits until every hold is given back and then closes."},
	{Name: "Space/ShutdownGivesUp", Run: run(spaceShutdownGivesUp),
		Promise: "Shutdown whose context ends closes with holds left, says so, and frees their names."},
	{Name: "Space/With", Run: run(spaceWith),
		Promise: "With sets the options of everything made from the Space, and an option of the name's own wins."},
	{Name: "Space/HooksTellHolds", Run: run(spaceHooksTellHolds),
		Promise: "Hooks are told of each Acquire with its outcome, and of each hold's end with its reason."},
	{Name: "Space/HooksTellLoss", Needs: force, Run: run(spaceHooksTellLoss),
		Promise: "Hooks.End tells a hold that was lost as ErrLost."},
}

func spacePing(ctx context.Context, e *Env) {
	s := e.Client()
	done(s.Ping(ctx))
	over, cancel := context.WithCancel(ctx)
	cancel()
	refused(s.Ping(over), context.Canceled, "Ping with a cancelled context")
	done(s.Ping(ctx))
}

func spacePingWhileGone(ctx context.Context, e *Env) {
	root := e.Root()
	done(root.Ping(ctx))
	mend := e.Cut(root)
	defer mend()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	want(root.Ping(short) != nil, "Ping with the backend gone succeeded")
	want(second(root.Sub(e.Prefix()).Mutex("m").Acquire(short)) != nil, "Acquire with the backend gone succeeded")
	mend()
	done(root.Ping(ctx))
	eventually(ctx, "the name did not become free", func() bool { return isFree(ctx, root.Sub(e.Prefix()).Mutex("m")) })
}

func spaceCloseEndsHolds(ctx context.Context, e *Env) {
	root, other := must(e.Open(ctx)), e.Client()
	s := root.Sub(e.Prefix())
	m, n := must(s.Mutex("m").Acquire(ctx)), must(s.Mutex("n").Acquire(ctx))
	bound := m.Bind(ctx)
	done(root.Close())
	for _, h := range []*holdfast.Hold{m, n} {
		refused(h.Err(), holdfast.ErrLost, "Err after Close")
		refused(h.Err(), holdfast.ErrClosed, "Err after Close")
	}
	ends(ctx, bound.Done(), "a bound context after Close")
	refused(context.Cause(bound), holdfast.ErrClosed, "the cause of a bound context after Close")
	for _, name := range []string{"m", "n"} {
		eventually(ctx, "a closed client's name did not become free", func() bool { return isFree(ctx, other.Mutex(name)) })
	}
}

func spaceAfterClose(ctx context.Context, e *Env) {
	root := must(e.Open(ctx))
	s := root.Sub(e.Prefix())
	h := must(s.Mutex("m").Acquire(ctx))
	done(root.Close())
	for what, err := range map[string]error{
		"Acquire": second(s.Mutex("m").Acquire(ctx)), "TryAcquire": second(s.Mutex("m").TryAcquire(ctx)),
		"Ping": s.Ping(ctx), "Inspect": second(s.Inspect(ctx, "m")),
	} {
		refused(err, holdfast.ErrClosed, what+" after Close")
	}
	if e.Has(driver.FeatureCounter) {
		refused(second(s.Counter("c").Add(ctx, 1)), holdfast.ErrClosed, "Add after Close")
	}
	refused(h.Release(), holdfast.ErrLost, "Release after Close")
	done(root.Close())
}

func spaceCloseOfAPart(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	done(s.Close())
	done(s.With(holdfast.Owner("who")).Close())
	refused(s.Shutdown(ctx), fs.ErrInvalid, "Shutdown of a part")
	done(h.Err())
	done(s.Ping(ctx))
	done(h.Release())
}

func spaceCloseLeavesOthers(ctx context.Context, e *Env) {
	a, root := e.Client(), must(e.Open(ctx))
	h := must(a.Mutex("m").Acquire(ctx))
	done(must(root.Sub(e.Prefix()).Mutex("n").Acquire(ctx)).Release())
	done(root.Close())
	done(h.Err())
	done(a.Ping(ctx))
	refused(second(e.Client().Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire after another client closed")
	done(h.Release())
}

func spaceShutdownWaits(ctx context.Context, e *Env) {
	root, other := must(e.Open(ctx)), e.Client()
	s := root.Sub(e.Prefix())
	h := must(s.Mutex("m").Acquire(ctx))
	down := later(func() (struct{}, error) { return struct{}{}, root.Shutdown(ctx) })
	eventually(ctx, "Shutdown lets new claims in", func() bool {
		got, err := s.Mutex("n").TryAcquire(ctx)
		if err == nil {
			done(got.Release())
		}
		return errors.Is(err, holdfast.ErrClosed)
	})
	done(h.Err())
	refused(second(other.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire while Shutdown waits")
	want(!down.over(), "Shutdown did not wait for the hold")
	done(h.Release())
	must(down.wait(ctx, "Shutdown without holds"))
	free(ctx, other.Mutex("m"), "after Shutdown")
}

func spaceShutdownGivesUp(ctx context.Context, e *Env) {
	root, other := must(e.Open(ctx)), e.Client()
	h := must(root.Sub(e.Prefix()).Mutex("m").Acquire(ctx))
	short, cancel := context.WithCancel(ctx)
	cancel()
	refused(root.Shutdown(short), context.Canceled, "Shutdown with a hold left")
	refused(h.Err(), holdfast.ErrClosed, "Err after Shutdown gave up")
	eventually(ctx, "the name of a hold that was left did not become free", func() bool { return isFree(ctx, other.Mutex("m")) })
}

func spaceWith(ctx context.Context, e *Env) {
	s := e.Client(holdfast.Owner("opened")).With(holdfast.Owner("with"), holdfast.Meta("m"))
	h := must(s.Mutex("m").Acquire(ctx))
	c := must(s.Inspect(ctx, "m")).Holders[0]
	want(c.Owner == "with" && c.Meta == "m", "With set owner and metadata to %q and %q", c.Owner, c.Meta)
	done(h.Release())
	h = must(s.Mutex("m", holdfast.Owner("own")).Acquire(ctx))
	c = must(s.Inspect(ctx, "m")).Holders[0]
	want(c.Owner == "own" && c.Meta == "m", "the name's own option gives owner and metadata %q and %q", c.Owner, c.Meta)
	done(h.Release())
}

// diary notes what hooks are told.
type diary struct {
	mu      sync.Mutex
	entries []string
	errs    []error
}

func (d *diary) note(entry string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries, d.errs = append(d.entries, entry), append(d.errs, err)
}

func (d *diary) hooks() holdfast.Hooks {
	return holdfast.Hooks{
		Acquire: func(ctx context.Context, name string) (context.Context, func(*holdfast.Hold, error)) {
			d.note("ask "+name, nil)
			return ctx, func(_ *holdfast.Hold, err error) { d.note("got "+name, err) }
		},
		End: func(h *holdfast.Hold, _ time.Duration, err error) { d.note("end "+h.Name(), err) },
	}
}

// read checks the entries from the last read on.
func (d *diary) read(name string, wanted ...string) []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range wanted {
		want(i < len(d.entries) && d.entries[i] == wanted[i]+" "+name, "the hooks were told %q; want %q", d.entries, wanted)
	}
	want(len(d.entries) == len(wanted), "the hooks were told %q; want %q", d.entries, wanted)
	errs := d.errs
	d.entries, d.errs = nil, nil
	return errs
}

func spaceHooksTellHolds(ctx context.Context, e *Env) {
	var d diary
	name := e.Prefix() + "m"
	m := e.Client(d.hooks()).Mutex("m")
	h := must(m.Acquire(ctx))
	done(d.read(name, "ask", "got")[1])
	refused(second(m.TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of a held mutex")
	refused(d.read(name, "ask", "got")[1], holdfast.ErrHeld, "what the hook is told of a refused TryAcquire")
	done(h.Release())
	refused(d.read(name, "end")[0], holdfast.ErrReleased, "what the hook is told of a released hold")
}

func spaceHooksTellLoss(ctx context.Context, e *Env) {
	var d diary
	name := e.Prefix() + "m"
	h := must(e.Client(d.hooks()).Mutex("m").Acquire(ctx))
	done(d.read(name, "ask", "got")[1])
	lose(ctx, e.Client(), "m", h)
	ends(ctx, h.Done(), "a hold that was forced out")
	eventually(ctx, "the hook is not told of a loss", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.entries) > 0
	})
	refused(d.read(name, "end")[0], holdfast.ErrLost, "what the hook is told of a lost hold")
	runtime.KeepAlive(h) // one that nobody can reach is released
}
