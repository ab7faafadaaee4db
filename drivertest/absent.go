package drivertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// qualities are features without a call of their own: a program can only ask
// for them when it opens.
var qualities = []driver.Feature{
	driver.FeatureFencing, driver.FeatureFIFO, driver.FeatureLostFirst, driver.FeatureAtomicAll, driver.FeatureDurable, driver.FeatureManyMachines,
	driver.FeatureSweep,
}

// refusals are calls that a backend without the feature refuses, every one of
// them.
var refusals = []struct {
	feature driver.Feature
	needs   []driver.Feature
	calls   func(ctx context.Context, s *holdfast.Space) []error
}{
	{driver.FeatureShared, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.RWMutex("x").Reader().TryAcquire(ctx)), second(s.RWMutex("y").Writer().TryAcquire(ctx))}
	}},
	{driver.FeatureWeighted, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Semaphore("x", 2).TryAcquire(ctx, 1))}
	}},
	{driver.FeatureUpgrade, shared, func(ctx context.Context, s *holdfast.Space) []error {
		h := must(s.RWMutex("x").Reader().Acquire(ctx))
		err := second(s.RWMutex("x").Upgrade(ctx, h))
		done(h.Err())
		return []error{err}
	}},
	{driver.FeatureResize, weighted, func(ctx context.Context, s *holdfast.Space) []error {
		h := must(s.Semaphore("x", 2).Acquire(ctx, 1))
		defer h.Release()
		return []error{s.Semaphore("x", 2).SetLimit(ctx, 3)}
	}},
	{driver.FeatureForce, nil, func(ctx context.Context, s *holdfast.Space) []error {
		h := must(s.Mutex("x").Acquire(ctx))
		err := second(s.ForceRelease(ctx, "x", h.Token()))
		done(h.Err())
		return []error{err}
	}},
	{driver.FeatureMaxHold, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Mutex("x", holdfast.MaxHold(time.Minute)).TryAcquire(ctx))}
	}},
	{driver.FeatureMinHold, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Mutex("x", holdfast.MinHold(time.Minute)).TryAcquire(ctx))}
	}},
	{driver.FeatureDelay, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Mutex("x", holdfast.Delay(time.Minute)).TryAcquire(ctx))}
	}},
	{driver.FeatureAll, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.TryAcquireAll(ctx, wants(s, "x", "y")...))}
	}},
	{driver.FeatureCounter, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Counter("x").Add(ctx, 1))}
	}},
	{driver.FeatureSequence, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Sequence("x").Next(ctx))}
	}},
	{driver.FeatureLimit, nil, func(ctx context.Context, s *holdfast.Space) []error {
		l := s.Limiter("x", limit.Rate{Count: 1, Per: time.Second})
		return []error{second(l.Allow(ctx, "k")), l.Wait(ctx, "k"), l.Reset(ctx, "k"), l.Delete(ctx)}
	}},
	{driver.FeatureKV, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.KV().Put(ctx, "x", nil))}
	}},
	{driver.FeatureTxn, keys, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.KV().Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.PutOp("x", nil), holdfast.PutOp("y", nil)}}))}
	}},
	{driver.FeatureWatch, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{watchError(s.Watch(ctx, "", 0))}
	}},
	{driver.FeatureHistory, watched, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{watchError(s.Watch(ctx, "", 1))}
	}},
	{driver.FeatureElection, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Election("x").TryCampaign(ctx, nil))}
	}},
	{driver.FeatureLatch, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Latch("x", 1).CountDown(ctx, 1)), s.Barrier("y", 1).Wait(ctx)}
	}},
	{driver.FeatureSession, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Session(ctx))}
	}},
	{driver.FeatureReclaim, nil, func(ctx context.Context, s *holdfast.Space) []error {
		return []error{second(s.Mutex("x", holdfast.ReclaimNever()).TryAcquire(ctx)), second(s.Mutex("y", holdfast.ReclaimOnDemand(0)).TryAcquire(ctx))}
	}},
}

// watchError is the first error of a watch; nil: it told an event.
func watchError(events iter.Seq2[holdfast.Event, error]) error {
	for _, err := range events {
		return err
	}
	return nil
}

// absentCases has one case for each feature.
func absentCases() []Case {
	var cases []Case
	for _, f := range qualities {
		cases = append(cases, Case{
			Name: "Absent/" + string(f), Lacks: f, Run: run(absentQuality(f)),
			Promise: fmt.Sprintf("A backend that does not declare %s refuses to open with it required: errors.ErrUnsupported.", f),
		})
	}
	for _, r := range refusals {
		cases = append(cases, Case{
			Name: "Absent/" + string(r.feature), Lacks: r.feature, Needs: r.needs, Run: run(absentCalls(r.feature, r.calls)),
			Promise: fmt.Sprintf("A backend that does not declare %s answers errors.ErrUnsupported to calls that need it, and refuses to open with it required.", r.feature),
		})
	}
	return cases
}

func absentQuality(f driver.Feature) func(context.Context, *Env) {
	return func(ctx context.Context, e *Env) {
		s, err := e.Open(ctx, holdfast.Require(f))
		if err == nil {
			done(s.Close())
		}
		refused(err, errors.ErrUnsupported, "Open with Require")
		want(holdfast.NotDone(err), "NotDone is false for %v", err)
	}
}

func absentCalls(f driver.Feature, calls func(context.Context, *holdfast.Space) []error) func(context.Context, *Env) {
	return func(ctx context.Context, e *Env) {
		for _, err := range calls(ctx, e.Client()) {
			refused(err, errors.ErrUnsupported, "a call that needs the feature")
		}
		absentQuality(f)(ctx, e)
	}
}
