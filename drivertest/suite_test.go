package drivertest_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
)

// allFeatures are those that have a case for their absence.
var allFeatures = func() (fs []driver.Feature) {
	for _, c := range drivertest.Cases() {
		if c.Lacks != "" {
			fs = append(fs, c.Lacks)
		}
	}
	return fs
}()

// toys is the harness of one engine with a fault; "" is none.
func toys(fault string) drivertest.Harness {
	var (
		e       = newEngine(fault)
		opened  atomic.Int32
		clients sync.Map
	)
	client := func() *toy {
		first := opened.Add(1) == 1
		if fault == "clients are islands" {
			return newToy(newEngine(""))
		}
		t := newToy(e)
		hidden, hides := strings.CutPrefix(fault, "hides ")
		if hides && first || !first && fault == "clients differ" {
			delete(t.info.Features, driver.Feature(hidden))
			delete(t.info.Features, driver.FeatureCounter)
		}
		return t
	}
	of := func(s *holdfast.Space) *toy {
		t, _ := clients.Load(s)
		return t.(*toy)
	}
	return drivertest.Harness{
		Open: func(_ context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
			if fault == "options ignored" {
				opts = nil
			}
			t := client()
			s, err := holdfast.New(t, opts...)
			clients.Store(s, t)
			return s, err
		},
		Driver: func(context.Context) (driver.Driver, error) {
			if fault == "wrapping hides" {
				return narrow{t: client()}, nil
			}
			return client(), nil
		},
		Stall: func(s *holdfast.Space) func() { return of(s).stall() },
		Cut:   func(s *holdfast.Space) func() { return of(s).cutOff() },
		Flood: true,
	}
}

// narrow is a wrapper that forwards only what it knows.
type narrow struct {
	driver.Base
	t *toy
}

func (n narrow) Info() driver.Info { return n.t.Info() }
func (n narrow) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	return n.t.Acquire(ctx, r)
}

func TestToyKeepsEveryPromise(t *testing.T) { drivertest.Run(t, toys("")) }

// Check tells each case once and returns every failure.
func TestCheckReports(t *testing.T) {
	told := map[string]error{}
	h := toys("ping fails")
	h.Select = func(c drivertest.Case) bool {
		return strings.HasPrefix(c.Name, "Space/") || strings.HasPrefix(c.Name, "Mutex/")
	}
	err := drivertest.Check(t.Context(), h, func(c drivertest.Case, err error, took time.Duration) {
		if _, twice := told[c.Name]; twice || took <= 0 {
			t.Errorf("%s told twice, or in no time", c.Name)
		}
		told[c.Name] = err
	})
	f, ok := errors.AsType[*drivertest.Failure](err)
	if !ok || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Fatalf("Check returned %v", err)
	}
	crowd, ran := told["Mutex/Crowd"]
	if told[f.Case] == nil || told["Space/Ping"] == nil || !ran || crowd != nil {
		t.Errorf("Check told %v", told)
	}
	if _, ran := told["Counter/Store"]; ran {
		t.Error("Check ran a case that was not selected")
	}
}

// A backend that does not open fails the suite instead of passing no case.
func TestCheckOfNothing(t *testing.T) {
	gone := errors.New("gone")
	h := drivertest.Harness{Open: func(context.Context, ...holdfast.Option) (*holdfast.Space, error) { return nil, gone }}
	if err := drivertest.Check(t.Context(), h, nil); !errors.Is(err, gone) {
		t.Errorf("Check returned %v", err)
	}
}

// patientToy takes no TTL below three seconds, of which its Info knows nothing.
type patientToy struct{ *toy }

func (p patientToy) OpenSession(ctx context.Context, s driver.Spec) (*driver.Session, error) {
	if s.TTL < 3*time.Second {
		return nil, driver.Errorf("", "", driver.ErrInvalid, "ask for at least 3s")
	}
	return p.toy.OpenSession(ctx, s)
}

// The cases ask for the shortest TTL that the backend takes, also if that is above its MinTTL.
func TestTTLThatTheBackendTakes(t *testing.T) {
	e, ran := newEngine(""), 0
	h := drivertest.Harness{Open: func(_ context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
		return holdfast.New(patientToy{newToy(e)}, opts...)
	}}
	h.Select = func(c drivertest.Case) bool { return c.Name == "Session/TimeToLive" }
	if err := drivertest.Check(t.Context(), h, func(drivertest.Case, error, time.Duration) { ran++ }); err != nil || ran != 1 {
		t.Errorf("%d cases, %v", ran, err)
	}
}

// A backend without any feature is checked for their absence.
func TestBareBackend(t *testing.T) {
	absent := 0
	h := toys("declares nothing")
	h.Select = func(c drivertest.Case) bool { return c.Lacks != "" || c.Name == "Features/Matrix" }
	err := drivertest.Check(t.Context(), h, func(c drivertest.Case, err error, _ time.Duration) {
		if c.Lacks == "" {
			return
		}
		absent++
		if err != nil {
			t.Error(err)
		}
	})
	if err == nil {
		t.Error("the table of backends demands nothing")
	}
	// Upgrades, resizing, transactions and history need another feature.
	if want := len(allFeatures) - 4; absent != want {
		t.Errorf("%d absences were checked; want %d", absent, want)
	}
}

func TestEveryFeatureHasAnAbsence(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../driver/driver.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Feature") {
			return true
		}
		text, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if declared++; !slices.Contains(allFeatures, driver.Feature(text)) {
			t.Errorf("the feature %q has no case for its absence", text)
		}
		return true
	})
	if declared < 20 {
		t.Errorf("%d features found", declared)
	}
}

func TestCasesReadWell(t *testing.T) {
	names, promises := map[string]bool{}, map[string]bool{}
	for _, c := range drivertest.Cases() {
		if names[c.Name] || promises[c.Promise] {
			t.Errorf("%s: its name or its promise is there twice", c.Name)
		}
		names[c.Name], promises[c.Promise] = true, true
		if !strings.HasSuffix(c.Promise, ".") || strings.Count(c.Promise, ". ") > 0 {
			t.Errorf("%s: the promise is not one sentence: %q", c.Name, c.Promise)
		}
	}
	if len(names) < 150 {
		t.Errorf("there are %d cases", len(names))
	}
}

func TestRequired(t *testing.T) {
	for scheme, f := range map[string]driver.Feature{
		"mem": driver.FeatureHistory, "holdfast": driver.FeatureAtomicAll, "embed": driver.FeatureUpgrade, "file": driver.FeatureLostFirst,
		"postgres": driver.FeatureFIFO, "redis": driver.FeatureForce, "nats": driver.FeatureKV, "another": driver.FeatureFencing,
	} {
		if !slices.Contains(drivertest.Required(scheme), f) {
			t.Errorf("%s need not have %q", scheme, f)
		}
	}
	for scheme, f := range map[string]driver.Feature{
		"file": driver.FeatureForce, "postgres": driver.FeatureLostFirst, "redis": driver.FeatureLostFirst, "nats": driver.FeatureShared, "another": driver.FeatureKV,
	} {
		if slices.Contains(drivertest.Required(scheme), f) {
			t.Errorf("%s has to have %q", scheme, f)
		}
	}
}
