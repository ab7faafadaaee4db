package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var reclaims = []driver.Feature{driver.FeatureReclaim, driver.FeatureSession, driver.FeatureForce}

var reclaimCases = []Case{
	{Name: "Reclaim/Never", Needs: reclaims, Uses: HasTTL, Run: timed(reclaimNever),
		Promise: "With ReclaimNever a name stays taken after its holder's TTL, is shown as stale, and a forced release frees it."},
	{Name: "Reclaim/OnDemand", Needs: reclaims, Uses: HasTTL, Run: timed(reclaimOnDemand),
		Promise: "With ReclaimOnDemand a name stays its stale holder's until another caller wants it and the grace has passed."},
	{Name: "Reclaim/Refused", Lacks: driver.FeatureReclaim, Uses: HasDriver, Run: run(reclaimRefused),
		Promise: "A driver without reclaim answers errors.ErrUnsupported to a Spec with a policy, for a session or a hold, and the name stays free."},
}

// lapsed is a hold after its TTL: its holder knows that, and so does the
// backend.
func (e *Env) lapsed(ctx context.Context, policy holdfast.LivenessOption) *holdfast.Hold {
	s := e.Client()
	h := must(s.Mutex("m", e.short(), holdfast.ManualRenew(), policy).Acquire(ctx))
	ends(ctx, h.Done(), "a hold that nobody renews")
	refused(h.Err(), holdfast.ErrLost, "Err of a hold that nobody renewed")
	eventually(ctx, "the hold is not shown as stale", func() bool {
		held := must(e.Client().Inspect(ctx, "m")).Holders
		return len(held) == 1 && held[0].Stale && held[0].Token == h.Token()
	})
	return h
}

func reclaimNever(ctx context.Context, e *Env) {
	h := e.lapsed(ctx, holdfast.ReclaimNever())
	s := e.Client()
	refused(second(s.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of a name that is never reclaimed from its stale holder")
	must(s.ForceRelease(ctx, "m", h.Token()))
	next := must(s.Mutex("m").Acquire(ctx))
	want(next.Token() > h.Token(), "the next token is %d, the one before was %d", next.Token(), h.Token())
	ses := must(s.Session(ctx))
	refused(second(s.Mutex("u", holdfast.Under(ses), holdfast.ReclaimNever()).TryAcquire(ctx)), holdfast.ErrInvalid,
		"a policy other than that of the session")
	done(ses.Revoke())
}

func reclaimOnDemand(ctx context.Context, e *Env) {
	h := e.lapsed(ctx, holdfast.ReclaimOnDemand(e.TTL))
	next := must(e.Client().Mutex("m").Acquire(ctx))
	want(next.Token() > h.Token(), "the next token is %d, the one before was %d", next.Token(), h.Token())
}

func reclaimRefused(ctx context.Context, e *Env) {
	d := must(e.Driver(ctx))
	defer d.Close(context.WithoutCancel(ctx))
	for _, policy := range []driver.Policy{driver.OnNextAcquire, driver.Never} {
		spec := driver.Spec{TTL: 30 * time.Second, Policy: policy}
		r := &driver.Request{ID: [16]byte{byte(policy)}, Wants: []driver.Want{{Name: e.Prefix() + "m", Kind: driver.Mutex}}, Spec: spec, Try: true, Lost: func(error) {}}
		refused(second(d.Acquire(ctx, r)), errors.ErrUnsupported, "Acquire with a policy")
		refused(second(d.OpenSession(ctx, spec)), errors.ErrUnsupported, "OpenSession with a policy")
	}
	free(ctx, e.Client().Mutex("m"), "after a refused policy")
}
