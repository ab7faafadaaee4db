package drivertest

import (
	"context"
	"io/fs"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var force = []driver.Feature{driver.FeatureForce}

var forceCases = []Case{
	{Name: "Force/EndsTheHold", Needs: force, Run: timed(forceEndsTheHold),
		Promise: "ForceRelease with the holder's token ends its hold: the holder is told ErrLost, and the next is granted."},
	{Name: "Force/IsKnownFirst", Needs: []driver.Feature{driver.FeatureForce, driver.FeatureLostFirst}, Run: timed(forceIsKnownFirst),
		Promise: "A holder that is forced out knows it before the next is granted."},
	{Name: "Force/NeedsTheToken", Needs: force, Run: run(forceNeedsTheToken),
		Promise: "ForceRelease with another token, also that of the holder before, is fs.ErrNotExist and frees nobody."},
	{Name: "Force/ReleaseConfirms", Needs: force, Run: run(forceReleaseConfirms),
		Promise: "The Release of a holder that was forced out says ErrLost and lets the next in at once."},
	{Name: "Force/Now", Needs: force, Run: run(forceNow),
		Promise: "ForceRelease with Now frees the name before it returns."},
	{Name: "Force/Nobody", Needs: force, Run: run(forceNobody),
		Promise: "ForceRelease of a name that nobody holds is fs.ErrNotExist, and of the token 0 fs.ErrInvalid."},
}

func forceEndsTheHold(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m", e.short()).Acquire(ctx))
	next := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.Mutex("m", o).Acquire(ctx) })
	until := must(b.ForceRelease(ctx, "m", h.Token()))
	want(until >= 0, "the name is told to be free in %s", until)
	ends(ctx, h.Done(), "a hold that was forced out")
	refused(h.Err(), holdfast.ErrLost, "Err of a hold that was forced out")
	got := next.granted(ctx)
	want(got.Token() > h.Token(), "the next token is %d, the one before was %d", got.Token(), h.Token())
	done(got.Release())
}

func forceIsKnownFirst(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m", e.short()).Acquire(ctx))
	must(b.ForceRelease(ctx, "m", h.Token()))
	refused(witness(ctx, b.Mutex("m"), h), holdfast.ErrLost, "Err of the holder before, when the next is granted")
}

func forceNeedsTheToken(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	before := must(a.Mutex("m").Acquire(ctx))
	done(before.Release())
	h := must(a.Mutex("m").Acquire(ctx))
	for _, token := range []holdfast.Token{before.Token(), h.Token() + 1} {
		refused(second(b.ForceRelease(ctx, "m", token)), fs.ErrNotExist, "ForceRelease with another token")
	}
	done(h.Err())
	refused(second(b.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire after a refused ForceRelease")
	done(h.Release())
}

func forceReleaseConfirms(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m", holdfast.TTL(e.long())).Acquire(ctx))
	must(b.ForceRelease(ctx, "m", h.Token()))
	ends(ctx, h.Done(), "a hold that was forced out")
	refused(h.Release(), holdfast.ErrLost, "Release of a hold that was forced out")
	free(ctx, b.Mutex("m"), "after its holder's Release")
}

func forceNow(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	must(b.ForceRelease(ctx, "m", h.Token(), holdfast.ForceNow()))
	next := must(b.Mutex("m").TryAcquire(ctx))
	want(next.Token() > h.Token(), "the next token is %d, the one before was %d", next.Token(), h.Token())
	ends(ctx, h.Done(), "a hold that was forced out")
	refused(h.Release(), holdfast.ErrLost, "Release of a hold that was forced out")
	done(next.Err())
	refused(second(a.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of the next holder's mutex")
	done(next.Release())
}

func forceNobody(ctx context.Context, e *Env) {
	s := e.Client()
	refused(second(s.ForceRelease(ctx, "m", 1)), fs.ErrNotExist, "ForceRelease of a free name")
	h := must(s.Mutex("m").Acquire(ctx))
	refused(second(s.ForceRelease(ctx, "m", 0)), fs.ErrInvalid, "ForceRelease of the token 0")
	done(h.Err())
	done(h.Release())
	refused(second(s.ForceRelease(ctx, "m", h.Token())), fs.ErrNotExist, "ForceRelease of a released hold")
}
