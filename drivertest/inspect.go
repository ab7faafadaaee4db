package drivertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var inspectCases = []Case{
	{Name: "Inspect/Holder", Run: run(inspectHolder),
		Promise: "Inspect tells who holds a name: owner, metadata, token and since when; of a mutex 1 of 1 is used."},
	{Name: "Inspect/Free", Run: run(inspectFree),
		Promise: "Inspect of a name that nobody holds tells no holder and no error."},
	{Name: "Inspect/Waiters", Needs: fifo, Run: run(inspectWaiters),
		Promise: "Inspect tells who waits, in order, with places from 1 on and without tokens."},
	{Name: "Inspect/Semaphore", Needs: weighted, Run: run(inspectSemaphore),
		Promise: "Inspect of a semaphore tells its limit, how much is used, and each holder's weight."},
	{Name: "Inspect/GreatSemaphore", Needs: weighted, Run: run(inspectGreatSemaphore),
		Promise: "Inspect and List tell the limit of a semaphore and how much is used, also of one of 2⁵⁰."},
	{Name: "Inspect/Latch", Needs: latch, Run: run(inspectLatch),
		Promise: "Inspect and List tell with which count a latch was made, whatever is left of it."},
	{Name: "Inspect/Readers", Needs: shared, Run: run(inspectReaders),
		Promise: "Inspect tells readers as sharing, as many as there are without a limit, and a writer as alone."},
	{Name: "Inspect/Several", Run: run(inspectSeveral),
		Promise: "InspectAll tells several names in the order asked for, free ones too; with atomic-all as of one revision."},
	{Name: "List/Names", Run: run(listNames),
		Promise: "List yields the names with a prefix that are held, in order of name, with their holders."},
	{Name: "List/ManyNames", Run: run(listManyNames),
		Promise: "List yields every one of several hundred names once."},
}

func inspectHolder(ctx context.Context, e *Env) {
	a, b := e.Client(holdfast.Owner("who"), holdfast.Meta("what")), e.Client()
	start := time.Now()
	h := must(a.Mutex("m").Acquire(ctx))
	r := must(b.Inspect(ctx, "m"))
	want(r.Name == "m" && r.Kind == driver.Mutex, "the mutex m is told as %s %q", r.Kind, r.Name)
	want(r.Limit == 1 && r.Used == 1, "of a mutex %d of %d are told as used; want 1 of 1", r.Used, r.Limit)
	want(len(r.Holders) == 1 && len(r.Waiters) == 0, "%d are told to hold and %d to wait", len(r.Holders), len(r.Waiters))
	c := r.Holders[0]
	want(c.Owner == "who" && c.Meta == "what", "owner and metadata are told as %q and %q", c.Owner, c.Meta)
	want(holdfast.Token(c.Token) == h.Token() && c.Position == 0, "the token %d is told as %d, at place %d", h.Token(), c.Token, c.Position)
	want(c.Held >= 0 && c.Held <= time.Since(start)+clockError, "the holder is told to hold for %s, %s after it began", c.Held, time.Since(start))
	done(h.Release())
}

func inspectFree(ctx context.Context, e *Env) {
	s := e.Client()
	for range 2 {
		r := must(s.Inspect(ctx, "m"))
		want(len(r.Holders) == 0 && len(r.Waiters) == 0, "a free name is told as %+v", r)
		want(r.Name == "m", "the name is told as %q", r.Name)
		done(must(s.Mutex("m").Acquire(ctx)).Release())
	}
}

func inspectSeveral(ctx context.Context, e *Env) {
	a, b := e.Client(holdfast.Owner("who")), e.Client()
	x, y := must(a.Mutex("x").Acquire(ctx)), must(a.Mutex("y").Acquire(ctx))
	all, at, err := b.InspectAll(ctx, "y", "free", "x")
	done(err)
	want(len(all) == 3 && all[0].Name == "y" && all[1].Name == "free" && all[2].Name == "x", "three names are told as %+v", all)
	for i, h := range map[int]*holdfast.Hold{0: y, 2: x} {
		want(len(all[i].Holders) == 1 && all[i].Holders[0].Token == h.Token() && all[i].Holders[0].Owner == "who", "%q is told as %+v", all[i].Name, all[i])
	}
	want(len(all[1].Holders) == 0, "a free name is told as %+v", all[1])
	want((at > 0) == b.Info().Features[driver.FeatureAtomicAll], "the revision is told as %d", at)
	done(x.Release())
	done(y.Release())
}

func inspectWaiters(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(holdfast.Owner("a")), e.Client(holdfast.Owner("b")), e.Client(holdfast.Owner("c"))}
	h, queue := line(ctx, 3, clients...)
	r := must(clients[1].Inspect(ctx, "m"))
	want(len(r.Waiters) == 3, "%d are told to wait; three do", len(r.Waiters))
	for i, owner := range []string{"a", "b", "c"} {
		c := r.Waiters[i]
		want(c.Owner == owner && c.Position == i+1 && c.Token == 0, "waiter %d, of %q, is told as %q at place %d with the token %d", i+1, owner, c.Owner, c.Position, c.Token)
	}
	inOrder(ctx, h, queue)
}

func inspectSemaphore(ctx context.Context, e *Env) {
	s := e.Client()
	two, three := must(s.Semaphore("s", 7).Acquire(ctx, 2)), must(s.Semaphore("s", 7).Acquire(ctx, 3))
	r := must(e.Client().Inspect(ctx, "s"))
	want(r.Kind == driver.Semaphore && r.Limit == 7 && r.Used == 5, "5 of the semaphore's 7 are told as %d of the %s's %d", r.Used, r.Kind, r.Limit)
	weights := map[driver.Token]int64{two.Token(): 2, three.Token(): 3}
	want(len(r.Holders) == 2, "%d are told to hold; two do", len(r.Holders))
	for _, c := range r.Holders {
		want(weights[c.Token] == c.Weight, "the holder with the token %d is told with the weight %d", c.Token, c.Weight)
	}
	done(two.Release())
	done(three.Release())
}

func inspectGreatSemaphore(ctx context.Context, e *Env) {
	const limit = 1 << 50
	e.take(e.Client().Semaphore("s", limit).Acquire(ctx, 3))
	for _, r := range bothWays(ctx, e, "s") {
		want(r.Kind == driver.Semaphore && r.Limit == limit && r.Used == 3, "3 of the semaphore's 2⁵⁰ are told as %d of the %s's %d", r.Used, r.Kind, r.Limit)
	}
}

func inspectLatch(ctx context.Context, e *Env) {
	s := e.Client()
	must(s.Latch("l", 5).CountDown(ctx, 2))
	must(s.Latch("l", 7).CountDown(ctx, 1))
	for _, r := range bothWays(ctx, e, "l") {
		want(r.Kind == driver.Latch && r.Limit == 5, "a latch of 5 is told as a %s of %d", r.Kind, r.Limit)
	}
}

// bothWays are what Inspect tells of a name, and List.
func bothWays(ctx context.Context, e *Env, name string) []driver.Resource {
	s := e.Client()
	all := []driver.Resource{must(s.Inspect(ctx, name))}
	for r, err := range s.List(ctx, name) {
		done(err)
		all = append(all, r)
	}
	want(len(all) == 2, "List tells %d names; there is one", len(all)-1)
	return all
}

func inspectReaders(ctx context.Context, e *Env) {
	m, other := e.Client().RWMutex("rw"), e.Client()
	a, b := must(m.Reader().Acquire(ctx)), must(m.Reader().Acquire(ctx))
	r := must(other.Inspect(ctx, "rw"))
	want(r.Kind == driver.RWMutex && len(r.Holders) == 2, "two readers are told as %d holders of a %s", len(r.Holders), r.Kind)
	want(r.Limit == 0 && r.Used == 2, "of two readers %d are told as used, with a limit of %d; want 2, without one", r.Used, r.Limit)
	for _, c := range r.Holders {
		want(c.Mode == driver.Shared, "a reader is told as a writer")
	}
	done(a.Release())
	done(b.Release())
	w := must(m.Writer().Acquire(ctx))
	r = must(other.Inspect(ctx, "rw"))
	want(len(r.Holders) == 1 && r.Holders[0].Mode == driver.Exclusive, "a writer is told as %+v", r.Holders)
	done(w.Release())
}

// namesOf are what List yields.
func namesOf(ctx context.Context, s *holdfast.Space, prefix string) []string {
	var names []string
	for r, err := range s.List(ctx, prefix) {
		done(err)
		want(len(r.Holders) == 1, "%q is told with %d holders; one holds it", r.Name, len(r.Holders))
		names = append(names, r.Name)
	}
	return names
}

func listNames(ctx context.Context, e *Env) {
	s, other := e.Client(), e.Client()
	for _, name := range []string{"b/2", "a", "b/1", "b", "c", "b0", "B/1"} {
		e.take(s.Mutex(name).Acquire(ctx))
	}
	gone := must(s.Mutex("b/3").Acquire(ctx))
	done(gone.Release())
	got := namesOf(ctx, other, "b/")
	want(slices.Equal(got, []string{"b/1", "b/2"}), "the names that begin with b/ are told as %q", got)
	got = namesOf(ctx, other, "")
	want(slices.Equal(got, []string{"B/1", "a", "b", "b/1", "b/2", "b0", "c"}), "all names are told as %q", got)
}

func listManyNames(ctx context.Context, e *Env) {
	const n = 250
	s := e.Client()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%03d", i)
	}
	together(10, func(i int) {
		for j := i; j < n; j += 10 {
			e.take(s.Mutex(names[j]).Acquire(ctx))
		}
	})
	got := namesOf(ctx, e.Client(), "")
	want(slices.Equal(got, names), "of %d names %d are told: %q", n, len(got), got)
}
