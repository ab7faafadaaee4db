package size

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// BenchmarkHolds is what a bystander sees beside work on very many holds.
func BenchmarkHolds(b *testing.B) { bench(b, besideHolds) }

func besideHolds(tb testing.TB, s size) figures {
	g := start(tb, s.nodes)
	h := hold(tb, g.space(), s.items)
	return g.beside([]work{
		idle(s.lasts),
		{"list", func(ctx context.Context) { h.list(ctx) }},
		{"names", reading(tb, s.lasts, 4, func(ctx context.Context) error { return first(ctx, h.space) })},
		{"info", func(ctx context.Context) { h.info(ctx) }},
		g.saving(),
		{"end", func(ctx context.Context) { h.end(ctx) }},
	})
}

// sessionTTL is that of the session with all holds.
const sessionTTL = 30 * time.Second

// holds are very many of one session, a lock each.
type holds struct {
	tb      testing.TB
	space   *holdfast.Space
	session *holdfast.Session
	n       int
	all     []*holdfast.Hold // one that nothing refers to is given back
}

func hold(tb testing.TB, space *holdfast.Space, n int) *holds {
	tb.Helper()
	session, err := space.Session(tb.Context(), holdfast.TTL(sessionTTL))
	done(tb, err)
	h := &holds{tb, space, session, n, make([]*holdfast.Hold, n)}
	under := space.With(holdfast.Under(session))
	together(tb, n, func(ctx context.Context, i int) (err error) {
		h.all[i], err = under.Mutex(h.name(i)).Acquire(ctx)
		return err
	})
	return h
}

func (h *holds) name(i int) string { return fmt.Sprintf("l/%07d", i) }

// list reads all names: none may be missing, or come twice.
func (h *holds) list(ctx context.Context) {
	i := 0
	for r, err := range h.space.List(ctx, "l/") {
		if err != nil || r.Name != h.name(i) || len(r.Holders) != 1 {
			h.tb.Fatalf("the list has %q with %d holders where %q belongs: %v", r.Name, len(r.Holders), h.name(i), err)
		}
		i++
	}
	if i != h.n {
		h.tb.Errorf("the list has %d names, want %d", i, h.n)
	}
}

// first reads one page of the list.
func first(ctx context.Context, s *holdfast.Space) (err error) {
	for _, err = range s.List(ctx, "l/") {
		break
	}
	return err
}

// info reads what the session has.
func (h *holds) info(ctx context.Context) {
	if info, err := h.session.Info(ctx); err != nil || len(info.Names) != h.n {
		h.tb.Errorf("the session has %d names, want %d: %v", len(info.Names), h.n, err)
	}
}

// end ends the session, until the last lock is free. The list, which costs more to ask for, is
// asked when the lock is free that was taken as one of the last.
func (h *holds) end(ctx context.Context) {
	done(h.tb, h.session.Revoke())
	await(h.tb, "a lock of a session that has ended is still held", func() bool {
		r, err := h.space.Inspect(ctx, h.name(h.n-1))
		done(h.tb, err)
		return len(r.Holders) == 0
	})
	await(h.tb, "locks of a session that has ended are still held", func() bool {
		for _, err := range h.space.List(ctx, "l/") {
			done(h.tb, err)
			return false
		}
		return true
	})
}

// together does n things, many at a time.
func together(tb testing.TB, n int, do func(ctx context.Context, i int) error) {
	tb.Helper()
	const atOnce = 256
	var all sync.WaitGroup
	next := make(chan int)
	for range min(n, atOnce) {
		all.Go(func() {
			for i := range next {
				if err := do(tb.Context(), i); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	for i := 0; i < n && !tb.Failed(); i++ {
		next <- i
	}
	close(next)
	all.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}
