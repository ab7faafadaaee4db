package drivertest

import (
	"context"
	"io/fs"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var (
	all       = []driver.Feature{driver.FeatureAll}
	allMixed  = []driver.Feature{driver.FeatureAll, driver.FeatureShared, driver.FeatureWeighted}
	allAtOnce = []driver.Feature{driver.FeatureAll, driver.FeatureAtomicAll}
)

var allCases = []Case{
	{Name: "All/Holds", Needs: all, Run: run(allHolds),
		Promise: "AcquireAll holds every name, and its Release frees every one."},
	{Name: "All/TryTakesAllOrNothing", Needs: all, Run: run(allTryTakesAllOrNothing),
		Promise: "TryAcquireAll with one name held is ErrHeld and takes none of the others."},
	{Name: "All/WaitsForEveryName", Needs: all, Run: run(allWaitsForEveryName),
		Promise: "AcquireAll is granted when the last of its names is free, and not before."},
	{Name: "All/MixedKinds", Needs: allMixed, Run: run(allMixedKinds),
		Promise: "AcquireAll takes mutexes, readers, writers and weights together."},
	{Name: "All/CancelTakesNothing", Needs: all, Run: run(allCancelTakesNothing),
		Promise: "A cancelled AcquireAll leaves none of its names taken."},
	{Name: "All/TokenOf", Needs: all, Run: run(allTokenOf),
		Promise: "TokenOf has a token for every name, greater than that name's token before, and 0 for others; Token is the greatest."},
	{Name: "All/OneToken", Needs: allAtOnce, Run: run(allOneToken),
		Promise: "An AcquireAll in one step has one token for all its names."},
	{Name: "All/OrderDoesNotMatter", Needs: all, Run: run(allOrderDoesNotMatter),
		Promise: "Clients that want the same names in different order never wait for each other in a circle."},
	{Name: "All/WaitingKeepsFreeNamesUsable", Needs: allAtOnce, Run: run(allWaitingKeepsFree),
		Promise: "An AcquireAll that waits for its first name keeps nobody from its later ones."},
	{Name: "All/Bad", Needs: all, Run: run(allBad),
		Promise: "AcquireAll of nothing, or of a name twice, is fs.ErrInvalid and takes nothing."},
	{Name: "All/NoUpgrade", Needs: []driver.Feature{driver.FeatureAll, driver.FeatureUpgrade}, Run: run(allNoUpgrade),
		Promise: "A hold of several names cannot be upgraded: fs.ErrInvalid, and it goes on."},
}

// wants are mutexes by name.
func wants(s *holdfast.Space, names ...string) []holdfast.Want {
	ws := make([]holdfast.Want, len(names))
	for i, name := range names {
		ws[i] = s.Mutex(name).Want()
	}
	return ws
}

func allHolds(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.AcquireAll(ctx, wants(a, "x", "y", "z")...))
	for _, name := range []string{"x", "y", "z"} {
		refused(second(b.Mutex(name).TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of one of the names")
	}
	done(h.Release())
	for _, name := range []string{"x", "y", "z"} {
		free(ctx, b.Mutex(name), "after Release of all")
	}
}

func allTryTakesAllOrNothing(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	for _, busy := range []string{"x", "y", "z"} {
		h := must(a.Mutex(busy).Acquire(ctx))
		err := second(b.TryAcquireAll(ctx, wants(b, "x", "y", "z")...))
		refused(err, holdfast.ErrHeld, "TryAcquireAll with one name held")
		want(holdfast.Token(heldBy(err).Token) == h.Token(), "the holder is told as %v", err)
		done(h.Release())
		for _, name := range []string{"x", "y", "z"} {
			free(ctx, a.Mutex(name), "after a refused TryAcquireAll")
		}
	}
	done(must(b.TryAcquireAll(ctx, wants(b, "x", "y", "z")...)).Release())
}

// gather waits in the queue for all of the mutexes.
func gather(ctx, waiting context.Context, s *holdfast.Space, names ...string) queued {
	return queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) {
		s := s.With(o)
		return s.AcquireAll(waiting, wants(s, names...)...)
	})
}

func allWaitsForEveryName(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	x, z := must(a.Mutex("x").Acquire(ctx)), must(a.Mutex("z").Acquire(ctx))
	both := gather(ctx, ctx, b, "x", "y", "z")
	done(x.Release())
	blocked(ctx, "AcquireAll with one of its names held", func(ctx context.Context) error {
		return second(a.AcquireAll(ctx, wants(a, "w", "z")...))
	})
	want(!both.over(), "AcquireAll was granted with one of its names held")
	done(z.Release())
	done(both.granted(ctx).Release())
}

func allMixedKinds(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.AcquireAll(ctx, a.Mutex("m").Want(), a.RWMutex("r").Reader().Want(), a.RWMutex("w").Writer().Want(), a.Semaphore("s", 3).Want(2)))
	refused(second(b.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of the mutex")
	done(must(b.RWMutex("r").Reader().TryAcquire(ctx)).Release())
	refused(second(b.RWMutex("r").Writer().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireWrite beside the reader")
	refused(second(b.RWMutex("w").Reader().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireRead beside the writer")
	refused(second(b.Semaphore("s", 3).TryAcquire(ctx, 2)), holdfast.ErrHeld, "2 of 3 beside 2")
	done(must(b.Semaphore("s", 3).TryAcquire(ctx, 1)).Release())
	done(h.Release())
	done(must(b.TryAcquireAll(ctx, b.Mutex("m").Want(), b.RWMutex("r").Writer().Want(), b.RWMutex("w").Writer().Want(), b.Semaphore("s", 3).Want(3))).Release())
}

func allCancelTakesNothing(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	y := must(a.Mutex("y").Acquire(ctx))
	waiting, cancel := context.WithCancel(ctx)
	w := gather(ctx, waiting, b, "x", "y", "z")
	cancel()
	refused(second(w.wait(ctx, "a cancelled AcquireAll")), context.Canceled, "a cancelled AcquireAll")
	done(y.Release())
	for _, name := range []string{"x", "y", "z"} {
		eventually(ctx, "a name of a cancelled AcquireAll did not become free", func() bool { return isFree(ctx, a.Mutex(name)) })
	}
}

func allTokenOf(ctx context.Context, e *Env) {
	s := e.Client()
	before := map[string]holdfast.Token{}
	for _, name := range []string{"x", "y"} {
		h := must(s.Mutex(name).Acquire(ctx))
		before[name] = h.Token()
		done(h.Release())
	}
	h := must(s.AcquireAll(ctx, wants(s, "x", "y")...))
	for name, old := range before {
		want(h.TokenOf(name) <= h.Token(), "the token of %s is %d, greater than that of the whole, %d", name, h.TokenOf(name), h.Token())
		want(h.TokenOf(name) > old, "the token of %s is %d; before it was %d", name, h.TokenOf(name), old)
		told := must(s.Inspect(ctx, name)).Holders
		want(len(told) == 1 && holdfast.Token(told[0].Token) == h.TokenOf(name), "Inspect tells the holders %+v of %s, whose token is %d", told, name, h.TokenOf(name))
	}
	want(h.TokenOf("z") == 0, "a name that is not held has the token %d", h.TokenOf("z"))
	done(h.Release())
}

func allOneToken(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.AcquireAll(ctx, wants(s, "x", "y")...))
	for _, name := range []string{"x", "y"} {
		want(h.TokenOf(name) == h.Token(), "the token of %s is %d, that of the hold %d", name, h.TokenOf(name), h.Token())
	}
	done(h.Release())
}

func allOrderDoesNotMatter(ctx context.Context, e *Env) {
	orders := [][]string{{"x", "y", "z"}, {"z", "y", "x"}, {"y", "x"}, {"z", "x"}}
	clients := []*holdfast.Space{e.Client(), e.Client()}
	together(16, func(i int) {
		s := clients[i%len(clients)]
		for range 3 {
			done(s.DoAll(ctx, wants(s, orders[i%len(orders)]...), func(context.Context, *holdfast.Hold) error { return nil }))
		}
	})
}

func allWaitingKeepsFree(ctx context.Context, e *Env) {
	a, b, c := e.Client(), e.Client(), e.Client()
	x, first := must(a.Mutex("x").Acquire(ctx)), must(b.Mutex("a").Acquire(ctx))
	behind := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return a.Mutex("a", o).Acquire(ctx) })
	both := gather(ctx, ctx, c, "x", "y")
	y := must(b.Mutex("y").Acquire(ctx))
	done(y.Release())
	done(first.Release())
	done(behind.granted(ctx).Release())
	done(x.Release())
	done(both.granted(ctx).Release())
}

func allBad(ctx context.Context, e *Env) {
	s := e.Client()
	refused(second(s.AcquireAll(ctx)), fs.ErrInvalid, "AcquireAll of nothing")
	refused(second(s.AcquireAll(ctx, wants(s, "x", "y", "x")...)), fs.ErrInvalid, "AcquireAll of a name twice")
	refused(second(s.AcquireAll(ctx, s.Mutex("x").Want(), holdfast.Want{})), fs.ErrInvalid, "AcquireAll of an empty Want")
	for _, name := range []string{"x", "y"} {
		free(ctx, s.Mutex(name), "after a refused AcquireAll")
	}
}

func allNoUpgrade(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.AcquireAll(ctx, s.Mutex("m").Want(), s.RWMutex("rw").Reader().Want()))
	refused(second(s.RWMutex("rw").Upgrade(ctx, h)), fs.ErrInvalid, "Upgrade of a hold of several names")
	done(h.Err())
	done(must(e.Client().RWMutex("rw").Reader().TryAcquire(ctx)).Release())
	done(h.Release())
	free(ctx, s.Mutex("m"), "after Release of all")
}
