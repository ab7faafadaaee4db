package drivertest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var (
	shared     = []driver.Feature{driver.FeatureShared}
	sharedFIFO = []driver.Feature{driver.FeatureShared, driver.FeatureFIFO}
)

var rwCases = []Case{
	{Name: "RWMutex/ReadersShare", Needs: shared, Run: run(rwReadersShare),
		Promise: "Readers of several clients hold together."},
	{Name: "RWMutex/WriterIsAlone", Needs: shared, Run: run(rwWriterIsAlone),
		Promise: "While a writer holds, readers and writers are ErrHeld."},
	{Name: "RWMutex/ReadersKeepWriterOut", Needs: shared, Run: run(rwReadersKeepWriterOut),
		Promise: "A writer is granted only after the last reader has released."},
	{Name: "RWMutex/Crowd", Needs: shared, Run: run(rwCrowd),
		Promise: "Of many readers and writers at once no writer is inside with anybody else, and all get their turn."},
	{Name: "RWMutex/WriterIsNotStarved", Needs: sharedFIFO, Run: run(rwWriterIsNotStarved),
		Promise: "Readers that come after a waiting writer wait behind it."},
	{Name: "RWMutex/ReadersWakeTogether", Needs: shared, Run: run(rwReadersWakeTogether),
		Promise: "When a writer releases, all readers that wait next hold together."},
	{Name: "RWMutex/ServedInOrder", Needs: sharedFIFO, Run: run(rwServedInOrder),
		Promise: "Readers and writers in the queue are served in the order of their arrival."},
	{Name: "RWMutex/CancelledWriter", Needs: sharedFIFO, Run: run(rwCancelledWriter),
		Promise: "Readers behind a writer that gives up waiting join the readers that hold."},
	{Name: "RWMutex/EveryGrantHasAToken", Needs: shared, Run: run(rwEveryGrantHasAToken),
		Promise: "Every grant, also a shared one, has a token of its own, greater than those before."},
	{Name: "RWMutex/TryTellsReaders", Needs: shared, Run: run(rwTryTellsReaders),
		Promise: "A writer's ErrHeld lists every reader, with its token and mode."},
	{Name: "RWMutex/Do", Needs: shared, Run: run(rwDo),
		Promise: "DoRead shares and DoWrite excludes, and both release."},
}

func rwReadersShare(ctx context.Context, e *Env) {
	var holds []*holdfast.Hold
	for range 3 {
		m := e.Client().RWMutex("rw")
		holds = append(holds, must(m.Reader().Acquire(ctx)), must(m.Reader().TryAcquire(ctx)))
	}
	for _, h := range holds {
		done(h.Err())
		done(h.Release())
	}
	done(must(e.Client().RWMutex("rw").Writer().TryAcquire(ctx)).Release())
}

func rwWriterIsAlone(ctx context.Context, e *Env) {
	a, b := e.Client().RWMutex("rw"), e.Client().RWMutex("rw")
	h := must(a.Writer().Acquire(ctx))
	for _, m := range []*holdfast.RWMutex{a, b} {
		refused(second(m.Reader().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireRead beside a writer")
		refused(second(m.Writer().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireWrite beside a writer")
	}
	done(h.Release())
	done(must(b.Reader().TryAcquire(ctx)).Release())
}

func rwReadersKeepWriterOut(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	first, last := must(a.RWMutex("rw").Reader().Acquire(ctx)), must(b.RWMutex("rw").Reader().Acquire(ctx))
	writer := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return a.RWMutex("rw", o).Writer().Acquire(ctx) })
	done(first.Release())
	must(b.Inspect(ctx, "rw"))
	want(!writer.over(), "a writer was granted beside a reader")
	done(last.Release())
	done(writer.granted(ctx).Release())
}

func rwCrowd(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client(), e.Client()}
	var readers, writers atomic.Int64
	crowd(ctx, 60, clients, func(i int, s *holdfast.Space, entered func()) {
		m := s.RWMutex("rw")
		act, mine := m.Reader().Do, &readers
		if i%4 == 0 {
			act, mine = m.Writer().Do, &writers
		}
		done(act(ctx, func(context.Context, *holdfast.Hold) error {
			mine.Add(1)
			entered()
			r, w := readers.Load(), writers.Load()
			want(w == 0 || w == 1 && r == 0, "%d readers and %d writers are inside at once", r, w)
			mine.Add(-1)
			return nil
		}))
	})
}

func rwWriterIsNotStarved(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	reader := must(a.RWMutex("rw").Reader().Acquire(ctx))
	writer := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.RWMutex("rw", o).Writer().Acquire(ctx) })
	refused(second(a.RWMutex("rw").Reader().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireRead past a waiting writer")
	done(reader.Release())
	done(writer.granted(ctx).Release())
	done(must(a.RWMutex("rw").Reader().TryAcquire(ctx)).Release())
}

func rwReadersWakeTogether(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	writer := must(a.RWMutex("rw").Writer().Acquire(ctx))
	var readers []queued
	for _, s := range []*holdfast.Space{a, b, b} {
		readers = append(readers, queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return s.RWMutex("rw", o).Reader().Acquire(ctx) }))
	}
	done(writer.Release())
	for _, r := range readers {
		defer r.granted(ctx).Release()
	}
	refused(second(a.RWMutex("rw").Writer().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireWrite beside readers")
}

func rwServedInOrder(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	read := func(s *holdfast.Space) queued {
		return queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return s.RWMutex("rw", o).Reader().Acquire(ctx) })
	}
	write := func(s *holdfast.Space) queued {
		return queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return s.RWMutex("rw", o).Writer().Acquire(ctx) })
	}
	h := must(a.RWMutex("rw").Writer().Acquire(ctx))
	inOrder(ctx, h, []queued{write(a), read(b), write(a), write(b), read(a), write(b)})
}

func rwCancelledWriter(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	first := must(a.RWMutex("rw").Reader().Acquire(ctx))
	waiting, cancel := context.WithCancel(ctx)
	writer := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) {
		return b.RWMutex("rw", o).Writer().Acquire(waiting)
	})
	reader := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return a.RWMutex("rw", o).Reader().Acquire(ctx) })
	cancel()
	refused(second(writer.wait(ctx, "a cancelled writer")), context.Canceled, "a cancelled writer")
	done(reader.granted(ctx).Release())
	done(first.Release())
}

func rwEveryGrantHasAToken(ctx context.Context, e *Env) {
	a, b := e.Client().RWMutex("rw"), e.Client().RWMutex("rw")
	var last holdfast.Token
	for _, acquire := range []func(context.Context) (*holdfast.Hold, error){a.Reader().Acquire, b.Reader().Acquire, a.Reader().Acquire} {
		h := must(acquire(ctx))
		defer h.Release()
		want(h.Token() > last, "the token %d came after %d", h.Token(), last)
		last = h.Token()
	}
}

func rwTryTellsReaders(ctx context.Context, e *Env) {
	a, b := e.Client(holdfast.Owner("a")), e.Client(holdfast.Owner("b"))
	holders := map[holdfast.Token]string{
		e.take(a.RWMutex("rw").Reader().Acquire(ctx)).Token(): "a",
		e.take(b.RWMutex("rw").Reader().Acquire(ctx)).Token(): "b",
	}
	err := second(a.RWMutex("rw").Writer().TryAcquire(ctx))
	refused(err, holdfast.ErrHeld, "TryAcquireWrite beside readers")
	he, _ := errors.AsType[*holdfast.Error](err)
	want(len(he.Holders) == 2, "ErrHeld lists %d holders; there are two", len(he.Holders))
	for _, c := range he.Holders {
		want(holders[c.Token] == c.Owner, "the holder %q is told with the token %d", c.Owner, c.Token)
		want(c.Mode == driver.Shared, "the reader %q is told as a writer", c.Owner)
	}
}

func rwDo(ctx context.Context, e *Env) {
	m, other := e.Client().RWMutex("rw"), e.Client().RWMutex("rw")
	done(m.Reader().Do(ctx, func(context.Context, *holdfast.Hold) error {
		return other.Reader().TryDo(ctx, func(context.Context, *holdfast.Hold) error { return nil })
	}))
	done(m.Writer().Do(ctx, func(context.Context, *holdfast.Hold) error {
		refused(other.Reader().TryDo(ctx, nil), holdfast.ErrHeld, "TryDoRead beside a writer")
		refused(other.Writer().TryDo(ctx, nil), holdfast.ErrHeld, "TryDoWrite beside a writer")
		return nil
	}))
	done(must(other.Writer().TryAcquire(ctx)).Release())
}
