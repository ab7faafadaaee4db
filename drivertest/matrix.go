package drivertest

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// What the rows of the table in docs/backends.md ask for.
var (
	everyone  = []driver.Feature{driver.FeatureFencing, driver.FeatureAll, driver.FeatureCounter, driver.FeatureSequence, driver.FeatureKV, driver.FeatureWatch}
	sharing   = []driver.Feature{driver.FeatureShared, driver.FeatureWeighted}
	mastery   = []driver.Feature{driver.FeatureUpgrade, driver.FeatureResize, driver.FeatureForce, driver.FeatureMaxHold, driver.FeatureMinHold, driver.FeatureDelay}
	gathering = []driver.Feature{driver.FeatureElection, driver.FeatureLatch, driver.FeatureSession}
	ownEngine = slices.Concat(everyone, sharing, mastery, gathering, []driver.Feature{
		driver.FeatureFIFO, driver.FeatureLostFirst, driver.FeatureAtomicAll, driver.FeatureTxn, driver.FeatureHistory, driver.FeatureSweep, driver.FeatureReclaim, driver.FeatureLimit})
)

// matrix is that table by URL scheme: what a backend may not lack, and has nothing
// beyond, but for what [Harness.Require] asks of it.
var matrix = map[string][]driver.Feature{
	"mem":      ownEngine,
	"embed":    append(slices.Clone(ownEngine), driver.FeatureDurable),
	"holdfast": append(slices.Clone(ownEngine), driver.FeatureDurable, driver.FeatureManyMachines),
	"file": slices.Concat(everyone, sharing, gathering, []driver.Feature{
		driver.FeatureResize, driver.FeatureLostFirst, driver.FeatureTxn, driver.FeatureDurable, driver.FeatureSweep, driver.FeatureLimit}),
	"postgres": slices.Concat(everyone, sharing, gathering, []driver.Feature{
		driver.FeatureForce, driver.FeatureFIFO, driver.FeatureTxn, driver.FeatureManyMachines, driver.FeatureSweep, driver.FeatureLimit}),
	"redis": slices.Concat(everyone, sharing, gathering, []driver.Feature{
		driver.FeatureForce, driver.FeatureFIFO, driver.FeatureTxn, driver.FeatureManyMachines, driver.FeatureSweep, driver.FeatureLimit}),
	"nats": slices.Concat(everyone, []driver.Feature{driver.FeatureManyMachines, driver.FeatureSweep, driver.FeatureLimit}),
}

// depends is what a backend has in some of its setups only: Redis tells losses first
// on a single server. [Harness.Require] asks for it there.
var depends = map[string][]driver.Feature{"redis": {driver.FeatureLostFirst}}

// Required lists the features that a backend with this URL scheme has to
// declare. Of a scheme that is not one of ours only tokens are asked for.
func Required(scheme string) []driver.Feature {
	if fs, ok := matrix[scheme]; ok {
		return slices.Clone(fs)
	}
	return []driver.Feature{driver.FeatureFencing}
}

var featureCases = []Case{
	{Name: "Features/Matrix", Run: run(featuresMatrix),
		Promise: "A backend declares every feature that the table of backends demands of its URL scheme, and none that it denies."},
	{Name: "Features/Require", Run: run(featuresRequire),
		Promise: "Open with Require succeeds for everything that the backend declares."},
	{Name: "Features/SameForAll", Run: run(featuresSameForAll),
		Promise: "All clients of a store declare the same scheme, features and bounds."},
	{Name: "Features/Wrapper", Run: run(featuresWrapper), Uses: HasDriver,
		Promise: "A wrapper around a driver keeps every ability of what it wraps."},
}

func featuresMatrix(_ context.Context, e *Env) {
	want(e.Info().Scheme != "", "Info.Scheme is empty")
	demanded := slices.Concat(Required(e.Info().Scheme), e.Require)
	for _, f := range demanded {
		want(e.Has(f), "the %s backend does not declare %q", e.Info().Scheme, f)
	}
	if _, ours := matrix[e.Info().Scheme]; !ours {
		return
	}
	allowed := slices.Concat(demanded, depends[e.Info().Scheme])
	for f := range e.Info().Features {
		want(!e.Has(f) || slices.Contains(allowed, f), "the %s backend declares %q, which the table of backends denies", e.Info().Scheme, f)
	}
}

func featuresRequire(_ context.Context, e *Env) {
	var declared []driver.Feature
	for f, has := range e.Info().Features {
		if has {
			declared = append(declared, f)
		}
	}
	e.Root(holdfast.Require(declared...))
}

func featuresSameForAll(_ context.Context, e *Env) {
	first := e.Info()
	want(first.MaxName > 0, "MaxName is %d", first.MaxName)
	for range 2 {
		next := e.Root().Info()
		want(next.Scheme == first.Scheme, "one client is of the scheme %q, another of %q", first.Scheme, next.Scheme)
		want(next.MinTTL == first.MinTTL && next.MaxTTL == first.MaxTTL && next.MaxName == first.MaxName, "two clients have other bounds: %+v and %+v", first, next)
		for f := range first.Features {
			want(next.Features[f] == first.Features[f], "one client declares %q, another does not", f)
		}
	}
}

// wrapped is a wrapper as a tracing library would write it.
type wrapped struct{ driver.Driver }

func featuresWrapper(ctx context.Context, e *Env) {
	s := must(holdfast.New(wrapped{must(e.Driver(ctx))}))
	defer s.Close()
	s = s.Sub(e.Prefix())
	done(s.Ping(ctx))
	done(must(s.Mutex("m").Acquire(ctx)).Release())
	must(s.Inspect(ctx, "m"))
	for f, use := range uses {
		if e.Has(f) {
			if err := use(ctx, s); err != nil {
				fail("%q through a wrapper: %w", f, err)
			}
		}
	}
}

// uses has one call for each feature that has a call of its own.
var uses = map[driver.Feature]func(ctx context.Context, s *holdfast.Space) error{
	driver.FeatureShared: func(ctx context.Context, s *holdfast.Space) error {
		return second(s.RWMutex("rw").Reader().Acquire(ctx))
	},
	driver.FeatureWeighted: func(ctx context.Context, s *holdfast.Space) error { return second(s.Semaphore("s", 2).Acquire(ctx, 1)) },
	driver.FeatureCounter:  func(ctx context.Context, s *holdfast.Space) error { return second(s.Counter("c").Add(ctx, 1)) },
	driver.FeatureSequence: func(ctx context.Context, s *holdfast.Space) error { return second(s.Sequence("q").Next(ctx)) },
	driver.FeatureLimit: func(ctx context.Context, s *holdfast.Space) error {
		return second(s.Limiter("rate", limit.Rate{Count: 1, Per: time.Second}).Allow(ctx, "k"))
	},
	driver.FeatureKV:       func(ctx context.Context, s *holdfast.Space) error { return second(s.KV().Put(ctx, "k", nil)) },
	driver.FeatureElection: func(ctx context.Context, s *holdfast.Space) error { return second(s.Election("e").Campaign(ctx, nil)) },
	driver.FeatureLatch:    func(ctx context.Context, s *holdfast.Space) error { return second(s.Latch("l", 1).CountDown(ctx, 1)) },
	driver.FeatureSession:  func(ctx context.Context, s *holdfast.Space) error { return second(s.Session(ctx)) },
	driver.FeatureAll: func(ctx context.Context, s *holdfast.Space) error {
		return second(s.AcquireAll(ctx, s.Mutex("a").Want(), s.Mutex("b").Want()))
	},
	driver.FeatureResize: func(ctx context.Context, s *holdfast.Space) error {
		must(s.Semaphore("r", 2).Acquire(ctx, 1))
		return s.Semaphore("r", 0).SetLimit(ctx, 3)
	},
	driver.FeatureWatch: func(ctx context.Context, s *holdfast.Space) error {
		for _, err := range s.Watch(ctx, "", 0) {
			return err
		}
		return nil
	},
}
