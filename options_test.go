package holdfast_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// A wrong option does not compile: no type is an option of a family where it
// would mean nothing.
func TestOptions_Families(t *testing.T) {
	families := []struct {
		name string
		of   reflect.Type
		has  string
	}{
		{"Option", reflect.TypeFor[holdfast.Option](), "TTL Owner Meta Require Hooks"},
		{"HoldOption", reflect.TypeFor[holdfast.HoldOption](), "TTL Owner Meta MaxHold MinHold Delay ManualRenew ReclaimNever ReclaimOnDemand Reentrant OnWait Under"},
		{"SessionOption", reflect.TypeFor[holdfast.SessionOption](), "TTL Owner Meta ManualRenew ReclaimNever ReclaimOnDemand"},
		{"PutOption", reflect.TypeFor[holdfast.PutOption](), "Expire Under"},
		{"SequenceOption", reflect.TypeFor[holdfast.SequenceOption](), "BlockSize StartAt"},
		{"RangeOption", reflect.TypeFor[holdfast.RangeOption](), "Order MaxKeys Descending AfterKey Counted KeysOnly"},
		{"WatchOption", reflect.TypeFor[holdfast.WatchOption](), "Patterns Glob ExactName WithPrevious"},
		{"ForceOption", reflect.TypeFor[holdfast.ForceOption](), "ForceNow"},
	}
	options := map[string]any{
		"TTL": holdfast.TTL(0), "Owner": holdfast.Owner(""), "Meta": holdfast.Meta(""), "Require": holdfast.Require(),
		"Hooks": holdfast.Hooks{}, "MaxHold": holdfast.MaxHold(0), "MinHold": holdfast.MinHold(0), "Delay": holdfast.Delay(0),
		"ManualRenew": holdfast.ManualRenew(), "ReclaimNever": holdfast.ReclaimNever(), "ReclaimOnDemand": holdfast.ReclaimOnDemand(0), "Reentrant": holdfast.Reentrant(), "OnWait": holdfast.OnWait(nil),
		"Under": holdfast.Under(nil), "Expire": holdfast.Expire(0), "BlockSize": holdfast.BlockSize(0),
		"StartAt": holdfast.StartAt(0), "Order": holdfast.ByKey, "MaxKeys": holdfast.MaxKeys(0), "Descending": holdfast.Descending(),
		"AfterKey": holdfast.AfterKey(""), "Counted": holdfast.Counted(),
		"KeysOnly": holdfast.KeysOnly(), "Patterns": holdfast.Patterns{}, "Glob": holdfast.Glob(""), "ExactName": holdfast.ExactName(),
		"WithPrevious": holdfast.WithPrevious(), "ForceNow": holdfast.ForceNow(),
	}
	for _, f := range families {
		for name, option := range options {
			has := strings.Contains(" "+f.has+" ", " "+name+" ")
			if is := reflect.TypeOf(option).Implements(f.of); is != has {
				t.Errorf("%s is a %s: %t, want %t", name, f.name, is, has)
			}
		}
	}
}

// Every mistake is a clear error before the backend hears of it.
func TestOptions_Mistakes(t *testing.T) {
	tests := []struct {
		option holdfast.HoldOption
		part   string
	}{
		{holdfast.TTL(5), "TTL(5ns) is out of range: 1s to 24h0m0s; 5 seconds are TTL(5*time.Second)"},
		{holdfast.TTL(0), "out of range"},
		{holdfast.TTL(time.Second - 1), "TTL(999.999999ms) is out of range: 1s to 24h0m0s"},
		{holdfast.TTL(24*time.Hour + 1), "out of range"},
		{holdfast.TTL(-time.Second), "out of range"},
		{holdfast.MaxHold(-1), "MaxHold(-1ns) is out of range"},
		{holdfast.MaxHold(100*time.Millisecond - 1), "MaxHold(99.999999ms) is out of range: 100ms to "},
		{holdfast.MaxHold(30), "30 seconds are MaxHold(30*time.Second)"},
		{holdfast.MinHold(-time.Second), "MinHold(-1s) is out of range"},
		{holdfast.Delay(-time.Second), "Delay(-1s) is out of range"},
		{holdfast.Delay(70*365*24*time.Hour + 1), "out of range"},
		{holdfast.Owner("a\nb"), "control character U+000A at byte 1"},
		{holdfast.Owner(strings.Repeat("x", 513)), "513 bytes"},
		{holdfast.Meta(strings.Repeat("x", 4097)), "4097 bytes"},
		{holdfast.Meta("a\xff"), "not UTF-8"},
	}
	s, toy := open(t)
	for _, tt := range tests {
		_, err := s.Mutex("a", tt.option).Acquire(t.Context())
		wantInvalid(t, err, tt.part)
		if !holdfast.NotDone(err) {
			t.Errorf("%v: the outcome is not NotDone", err)
		}
		_, err = s.With(tt.option).RWMutex("a").Reader().TryAcquire(t.Context())
		wantInvalid(t, err, tt.part)
		_, err = s.With(tt.option).Counter("a").Load(t.Context())
		wantInvalid(t, err, tt.part)
		if o, ok := tt.option.(holdfast.Option); ok {
			_, err := holdfast.New(newToy(), o)
			wantInvalid(t, err, tt.part)
		}
	}
	if len(toy.requests) != 0 || toy.called("count") != 0 {
		t.Errorf("the backend heard of it: %v", toy.requests)
	}
}

func TestOptions_Reach(t *testing.T) {
	s, toy := open(t, holdfast.TTL(10*time.Second), holdfast.Owner("node-7"), holdfast.Meta("m"))
	_ = acquire(t, s.Mutex("a")).Release()
	if got, want := toy.lastRequest().Spec, (driver.Spec{TTL: 10 * time.Second, Owner: "node-7", Meta: "m"}); got != want {
		t.Errorf("Spec is %+v, want %+v", got, want)
	}
	m := s.With(holdfast.TTL(time.Minute), holdfast.MaxHold(time.Hour)).
		Mutex("a", holdfast.MinHold(time.Second), holdfast.Delay(2*time.Second), holdfast.Owner("me"))
	_ = acquire(t, m).Release()
	r := toy.lastRequest()
	if r.Spec.TTL != time.Minute || r.Spec.Owner != "me" || r.MaxHold != time.Hour || r.MinHold != time.Second || r.Delay != 2*time.Second {
		t.Errorf("request is %+v", r)
	}
	if r.ID == [16]byte{} || r.Lost == nil {
		t.Error("the request has no id or no Lost")
	}
}

// A grace is at most the greatest TTL of the backend.
func TestOptions_Grace(t *testing.T) {
	toy := newToy(driver.FeatureReclaim)
	toy.info.MaxTTL = time.Hour
	s := openOn(t, toy)
	for _, grace := range []time.Duration{-1, 1, time.Hour + 1} {
		_, err := s.Mutex("refused", holdfast.ReclaimOnDemand(grace)).TryAcquire(t.Context())
		wantInvalid(t, err, fmt.Sprintf("ReclaimOnDemand(%s) is out of range: 0, or 1ms to 1h0m0s", grace))
	}
	if len(toy.requests) != 0 {
		t.Errorf("the backend heard of it: %v", toy.requests)
	}
	for _, grace := range []time.Duration{0, time.Millisecond, time.Hour} {
		h := taken(t)(s.Mutex("a", holdfast.ReclaimOnDemand(grace)).Acquire(t.Context()))
		if got := toy.lastRequest().Spec.Grace; got != grace {
			t.Errorf("a grace of %s reached the backend as %s", grace, got)
		}
		_ = h.Release()
	}
}

func TestOptions_DefaultOwnerAndTTL(t *testing.T) {
	s, toy := open(t)
	_ = acquire(t, s.Mutex("a")).Release()
	spec := toy.lastRequest().Spec
	if strings.Count(spec.Owner, "/") != 2 || spec.TTL != 30*time.Second {
		t.Errorf("Spec is %+v", spec)
	}
	far := newToy()
	far.info.MinTTL = time.Minute
	_ = acquire(t, openOn(t, far).Mutex("a")).Release()
	if ttl := far.lastRequest().Spec.TTL; ttl != time.Minute {
		t.Errorf("the default TTL is %s where the least is 1m", ttl)
	}
	_, err := holdfast.New(far, holdfast.TTL(59*time.Second))
	wantInvalid(t, err, "TTL(59s) is out of range: 1m0s to 24h0m0s")
}

func TestOnWait(t *testing.T) {
	s, _ := open(t)
	h := acquire(t, s.Mutex("a"))
	places := make(chan int, 1)
	go func() {
		next, err := s.Mutex("a", holdfast.OnWait(func(p int) { places <- p })).Acquire(t.Context())
		if err == nil {
			_ = next.Release()
		}
	}()
	if p := <-places; p != 1 {
		t.Errorf("place %d, want 1", p)
	}
	_ = h.Release()
}

func TestNames(t *testing.T) {
	good := []string{"a", "/a", "jobs/nightly", "ümläut", "with space", strings.Repeat("x", 512), "\uFFFD"}
	bad := map[string]string{
		"":                       "empty",
		strings.Repeat("x", 513): "513 bytes; at most 512",
		"a\x00b":                 "control character U+0000 at byte 1",
		"a\x7f":                  "control character U+007F",
		"a\u0085":                "control character U+0085",
		"\xff":                   "not UTF-8 at byte 0",
		"ok\xc3":                 "not UTF-8 at byte 2",
	}
	s, toy := open(t)
	for _, name := range good {
		if err := acquire(t, s.Mutex(name)).Release(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	heard := len(toy.requests)
	for name, part := range bad {
		for what, call := range callsWith(t, s, name) {
			err := call()
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s(%.20q): %v", what, name, err)
			}
			wantInvalid(t, err, "")
		}
	}
	if len(toy.requests) != heard || toy.called("count")+toy.called("reserve")+toy.called("txn")+toy.called("inspect") != 0 {
		t.Error("the backend heard of a bad name")
	}
}

// callsWith is a call of every kind with a name.
func callsWith(t *testing.T, s *holdfast.Space, name string) map[string]func() error {
	ctx := t.Context()
	hold := func(_ *holdfast.Hold, err error) error { return err }
	return map[string]func() error{
		"Mutex":      func() error { return hold(s.Mutex(name).Acquire(ctx)) },
		"RWMutex":    func() error { return hold(s.RWMutex(name).Reader().Acquire(ctx)) },
		"Upgrade":    func() error { return hold(s.RWMutex(name).Upgrade(ctx, nil)) },
		"Semaphore":  func() error { return hold(s.Semaphore(name, 2).TryAcquire(ctx, 1)) },
		"SetLimit":   func() error { return s.Semaphore(name, 2).SetLimit(ctx, 3) },
		"Delete":     func() error { return s.Semaphore(name, 2).Delete(ctx) },
		"AcquireAll": func() error { return hold(s.AcquireAll(ctx, s.Mutex("ok").Want(), s.Mutex(name).Want())) },
		"Campaign":   func() error { _, err := s.Election(name).Campaign(ctx, nil); return err },
		"Leader":     func() error { _, err := s.Election(name).Leader(ctx); return err },
		"Observe":    func() error { return lastError(s.Election(name).Observe(ctx)) },
		"Latch":      func() error { return s.Latch(name, 1).Wait(ctx) },
		"CountDown":  func() error { _, err := s.Latch(name, 1).CountDown(ctx, 1); return err },
		"Barrier":    func() error { return s.Barrier(name, 2).Wait(ctx) },
		"Counter":    func() error { _, err := s.Counter(name).Add(ctx, 1); return err },
		"Unsigned":   func() error { _, err := s.Counter(name).Unsigned().Add(ctx, 1); return err },
		"Buffered":   func() error { return s.Counter(name).Buffered(1, time.Second).Add(1) },
		"Sequence":   func() error { _, err := s.Sequence(name).Next(ctx); return err },
		"Current":    func() error { _, err := s.Sequence(name).Current(ctx); return err },
		"Get":        func() error { _, err := s.KV().Get(ctx, name); return err },
		"Put":        func() error { _, err := s.KV().Put(ctx, name, nil); return err },
		"Txn": func() error {
			_, err := s.KV().Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.DeleteOp(name)}})
			return err
		},
		"Compare": func() error {
			_, err := s.KV().Txn(ctx, holdfast.Txn{If: []holdfast.Compare{holdfast.Absent(name)}})
			return err
		},
		"Inspect":      func() error { _, err := s.Inspect(ctx, name); return err },
		"ForceRelease": func() error { _, err := s.ForceRelease(ctx, name, 1); return err },
	}
}

func lastError[T any](seq func(func(T, error) bool)) (last error) {
	for _, err := range seq {
		last = err
	}
	return last
}

// A backend may allow less; the whole name counts, with its prefix.
func TestNames_WholeName(t *testing.T) {
	short := newToy()
	short.info.MaxName = 10
	s := openOn(t, short)
	if _, err := s.Mutex("0123456789").Acquire(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := s.Sub("01234/").Mutex("56789").Acquire(t.Context())
	wantInvalid(t, err, "11 bytes; at most 10")
	_, err = s.Sub("a\n").Mutex("b").Acquire(t.Context())
	wantInvalid(t, err, "control character")
	if e, ok := errors.AsType[*holdfast.Error](err); !ok || e.Name != "a\nb" {
		t.Errorf("the error names %q", e.Name)
	}
	if _, err := s.Sub("a/").Mutex("").Acquire(t.Context()); err != nil {
		t.Errorf("a prefix alone is a name: %v", err)
	}
}

// TestResourcesTellTheirNames: whole, with the prefix of a Sub.
func TestResourcesTellTheirNames(t *testing.T) {
	s, _ := open(t)
	sub := s.Sub("tenant/")
	pool := sub.Semaphore("pool", 3)
	for want, got := range map[string]string{"tenant/m": sub.Mutex("m").Name(), "tenant/rw": sub.RWMutex("rw").Name(), "tenant/pool": pool.Name()} {
		if got != want {
			t.Errorf("%q is called %q", want, got)
		}
	}
	if pool.Limit() != 3 {
		t.Errorf("a limit of %d", pool.Limit())
	}
}
