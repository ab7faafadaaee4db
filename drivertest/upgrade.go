package drivertest

import (
	"context"
	"io/fs"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var upgrade = []driver.Feature{driver.FeatureShared, driver.FeatureUpgrade}

var upgradeCases = []Case{
	{Name: "Upgrade/OnlyReader", Needs: upgrade, Run: run(upgradeOnlyReader),
		Promise: "The only reader becomes the writer at once: a new hold with a greater token, and the old one is over."},
	{Name: "Upgrade/WaitsForReaders", Needs: upgrade, Run: run(upgradeWaitsForReaders),
		Promise: "An upgrade waits for the other readers and keeps new ones out."},
	{Name: "Upgrade/GoesFirst", Needs: upgrade, Run: run(upgradeGoesFirst),
		Promise: "An upgrade goes before the writers that wait."},
	{Name: "Upgrade/SecondIsDeadlock", Needs: upgrade, Run: run(upgradeSecondIsDeadlock),
		Promise: "A second upgrader gets ErrDeadlock at once, and both keep what they hold."},
	{Name: "Upgrade/CancelKeepsReader", Needs: upgrade, Run: run(upgradeCancelKeepsReader),
		Promise: "An upgrade that is cancelled leaves the reader's hold with its token."},
	{Name: "Upgrade/Downgrade", Needs: upgrade, Run: run(upgradeDowngrade),
		Promise: "A downgrade keeps the token and lets in the readers that wait, but no writer."},
	{Name: "Upgrade/DowngradeUnheard", Needs: upgrade, Uses: HasDriver, Run: run(upgradeDowngradeUnheard),
		Promise: "A writer that does not hear whether it was downgraded has lost its hold at once, and leaves nothing: the next writer is granted."},
	{Name: "Upgrade/WrongHold", Needs: upgrade, Run: run(upgradeWrongHold),
		Promise: "An upgrade of a hold that is no reader's of this name is fs.ErrInvalid and changes nothing."},
}

// waiters waits until the name has so many, for waits that OnWait does not
// tell.
func waiters(ctx context.Context, s *holdfast.Space, name string, n int) {
	eventually(ctx, "what has to wait does not appear in the queue", func() bool {
		return len(must(s.Inspect(ctx, name)).Waiters) == n
	})
}

func upgradeOnlyReader(ctx context.Context, e *Env) {
	m, other := e.Client().RWMutex("rw"), e.Client().RWMutex("rw")
	reader := must(m.Reader().Acquire(ctx))
	writer := must(m.Upgrade(ctx, reader))
	want(writer.Token() > reader.Token(), "the upgrade has the token %d, the reader had %d", writer.Token(), reader.Token())
	refused(reader.Err(), holdfast.ErrReleased, "Err of the reader's hold after its upgrade")
	refused(second(other.Reader().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireRead beside an upgraded writer")
	done(reader.Release())
	done(writer.Err())
	refused(second(other.Reader().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireRead after a Release of the old hold")
	done(writer.Release())
	done(must(other.Writer().TryAcquire(ctx)).Release())
}

func upgradeWaitsForReaders(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	mine, others := must(a.RWMutex("rw").Reader().Acquire(ctx)), must(b.RWMutex("rw").Reader().Acquire(ctx))
	up := later(func() (*holdfast.Hold, error) { return a.RWMutex("rw").Upgrade(ctx, mine) })
	waiters(ctx, b, "rw", 1)
	want(!up.over(), "a reader was upgraded beside another")
	done(mine.Err())
	refused(second(b.RWMutex("rw").Reader().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireRead past a waiting upgrade")
	done(others.Release())
	done(must(up.wait(ctx, "Upgrade")).Release())
}

func upgradeGoesFirst(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	mine := must(a.RWMutex("rw").Reader().Acquire(ctx))
	writer := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.RWMutex("rw", o).Writer().Acquire(ctx) })
	up := later(func() (*holdfast.Hold, error) { return a.RWMutex("rw").Upgrade(ctx, mine) })
	upgraded := must(up.wait(ctx, "Upgrade before a waiting writer"))
	want(!writer.over(), "a writer was granted beside an upgraded one")
	done(upgraded.Release())
	want(writer.granted(ctx).Token() > upgraded.Token(), "the writer that waited has an older token than the upgrade")
}

func upgradeSecondIsDeadlock(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	first, other := must(a.RWMutex("rw").Reader().Acquire(ctx)), must(b.RWMutex("rw").Reader().Acquire(ctx))
	up := later(func() (*holdfast.Hold, error) { return a.RWMutex("rw").Upgrade(ctx, first) })
	waiters(ctx, b, "rw", 1)
	refused(second(b.RWMutex("rw").Upgrade(ctx, other)), holdfast.ErrDeadlock, "a second Upgrade")
	done(other.Err())
	want(!up.over(), "the first upgrader was granted beside another reader")
	done(other.Release())
	done(must(up.wait(ctx, "the first Upgrade")).Release())
}

func upgradeCancelKeepsReader(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	mine, others := must(a.RWMutex("rw").Reader().Acquire(ctx)), must(b.RWMutex("rw").Reader().Acquire(ctx))
	waiting, cancel := context.WithCancel(ctx)
	up := later(func() (*holdfast.Hold, error) { return a.RWMutex("rw").Upgrade(waiting, mine) })
	waiters(ctx, b, "rw", 1)
	cancel()
	refused(second(up.wait(ctx, "a cancelled Upgrade")), context.Canceled, "a cancelled Upgrade")
	waiters(ctx, b, "rw", 0)
	done(others.Release())
	done(mine.Err())
	err := second(b.RWMutex("rw").Writer().TryAcquire(ctx))
	want(holdfast.Token(heldBy(err).Token) == mine.Token(), "the reader's hold is told as %v", err)
	done(must(b.RWMutex("rw").Reader().TryAcquire(ctx)).Release())
	done(mine.Release())
	done(must(b.RWMutex("rw").Writer().TryAcquire(ctx)).Release())
}

func upgradeDowngrade(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	writer := must(a.RWMutex("rw").Writer().Acquire(ctx))
	waiting := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.RWMutex("rw", o).Reader().Acquire(ctx) })
	reader := must(a.RWMutex("rw").Downgrade(ctx, writer))
	want(reader.Token() == writer.Token(), "the downgrade has the token %d, the writer had %d", reader.Token(), writer.Token())
	refused(writer.Err(), holdfast.ErrReleased, "Err of the writer's hold after its downgrade")
	joined := waiting.granted(ctx)
	refused(second(b.RWMutex("rw").Writer().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireWrite beside readers")
	done(joined.Release())
	refused(second(b.RWMutex("rw").Writer().TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquireWrite beside the downgraded hold")
	done(reader.Release())
	done(must(b.RWMutex("rw").Writer().TryAcquire(ctx)).Release())
}

func upgradeDowngradeUnheard(ctx context.Context, e *Env) {
	for _, made := range []bool{true, false} {
		m, other := e.unanswered(ctx, made).RWMutex("rw"), e.Client().RWMutex("rw")
		writer := must(m.Writer().Acquire(ctx))
		refused(second(m.Downgrade(ctx, writer)), holdfast.ErrUnavailable, "Downgrade without an answer")
		refused(writer.Err(), holdfast.ErrLost, "Err of a writer's hold that may be a reader's")
		done(must(other.Writer().Acquire(ctx)).Release())
		refused(writer.Release(), holdfast.ErrLost, "Release of a writer's hold that may be a reader's")
	}
}

func upgradeWrongHold(ctx context.Context, e *Env) {
	s := e.Client()
	m := s.RWMutex("rw")
	writer, other, mutex := must(m.Writer().Acquire(ctx)), must(s.RWMutex("other").Reader().Acquire(ctx)), must(s.Mutex("m").Acquire(ctx))
	for _, h := range []*holdfast.Hold{nil, writer, other, mutex} {
		refused(second(m.Upgrade(ctx, h)), fs.ErrInvalid, "Upgrade of a wrong hold")
	}
	for _, h := range []*holdfast.Hold{writer, other, mutex} {
		done(h.Err())
		done(h.Release())
	}
	refused(second(m.Upgrade(ctx, other)), holdfast.ErrReleased, "Upgrade of a released hold")
	done(must(e.Client().RWMutex("rw").Writer().TryAcquire(ctx)).Release())
}
