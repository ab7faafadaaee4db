package redishold_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestForceNowIsTold: the end of a hold that is not waited for is told with the order, once.
func TestForceNowIsTold(t *testing.T) {
	ctx := t.Context()
	server := services.Redis(t)
	s, other := open(t, server.URL()), open(t, server.URL())
	for name, acquire := range map[string]func() (*holdfast.Hold, error){
		"lock":      func() (*holdfast.Hold, error) { return s.Mutex("lock").Acquire(ctx) },
		"rwlock":    func() (*holdfast.Hold, error) { return s.RWMutex("rwlock").Reader().Acquire(ctx) },
		"semaphore": func() (*holdfast.Hold, error) { return s.Semaphore("semaphore", 3).Acquire(ctx, 2) },
		"election": func() (*holdfast.Hold, error) {
			l, err := s.Election("election").Campaign(ctx, nil)
			if err != nil {
				return nil, err
			}
			return l.Hold, nil
		},
	} {
		all := events(t, other, name)
		h, err := acquire()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.ForceRelease(ctx, name, h.Token(), holdfast.ForceNow()); err != nil {
			t.Fatal(err)
		}
		if err := h.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("%s: Release of a hold that was forced out: %v", name, err)
		}
		again, err := acquire()
		if err != nil {
			t.Fatal(err)
		}
		keep(t, again)
		var at []holdfast.Event
		for _, verb := range []string{"acquired", "revoked", "expired", "acquired"} {
			ev := next(t, all)
			if at = append(at, ev); ev.Verb != verb {
				t.Fatalf("%s: told as %s; want %s", name, ev.String(), verb)
			}
		}
		revoked, expired := at[1], at[2]
		if revoked.Token != h.Token() || expired.Token != h.Token() || revoked.Reason != "revoked" || expired.Reason != "revoked" ||
			expired.Revision != revoked.Revision || expired.Ordinal != revoked.Ordinal+1 {
			t.Errorf("%s: told as %+v and %+v", name, revoked, expired)
		}
	}
}

// TestNumbersTold: a counter is told when its value changes or it is made, also by an addition without
// a script, and the end of a sequence has no number.
func TestNumbersTold(t *testing.T) {
	ctx := t.Context()
	server := services.Redis(t)
	s, other := open(t, server.URL()), open(t, server.URL())
	add(t, s, "c", 1) // from now on without a script
	all := events(t, other, "")
	for _, step := range []struct {
		name  string
		delta int64
	}{{"c", 0}, {"new", 0}, {"new", 0}, {"c", 0}, {"c", 2}} {
		if _, err := s.Counter(step.name).Add(ctx, step.delta); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Sequence("s").Reserve(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Sequence("s").Delete(ctx), s.Counter("c").Delete(ctx)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []struct {
		what   string
		number uint64
	}{{"counter:changed new", 0}, {"counter:changed c", 3}, {"sequence:reserved s", 2}, {"sequence:deleted s", 0}, {"counter:deleted c", 0}} {
		if ev := next(t, all); ev.String()+" "+ev.Name != want.what || ev.Number != want.number {
			t.Errorf("told as %s of %q with %d; want %s with %d", ev.String(), ev.Name, ev.Number, want.what, want.number)
		}
	}
}

// TestOneKindAName: a name that is of one kind is ErrConflict for what reads or deletes another, and no kind
// is fs.ErrNotExist.
func TestOneKindAName(t *testing.T) {
	ctx := t.Context()
	s := open(t, services.Redis(t).URL())
	acquire(t, s, "mutex")
	h, held := s.Semaphore("semaphore", 2).Acquire(ctx, 1)
	keep(t, h)
	_, counted := s.Latch("latch", 2).CountDown(ctx, 1)
	_, taken := s.Sequence("sequence").Next(ctx)
	add(t, s, "counter", 1)
	if err := errors.Join(held, counted, taken, s.Barrier("barrier", 1).Wait(ctx)); err != nil {
		t.Fatal(err)
	}
	load := func(name string) error {
		_, err := s.Counter(name).Load(ctx)
		return err
	}
	left := func(name string) error {
		_, err := s.Latch(name, 0).Left(ctx)
		return err
	}
	asks := map[string]map[string]func(name string) error{
		"counter":   {"Load": load, "Delete": func(name string) error { return s.Counter(name).Delete(ctx) }},
		"sequence":  {"Delete": func(name string) error { return s.Sequence(name).Delete(ctx) }},
		"semaphore": {"Delete": func(name string) error { return s.Semaphore(name, 0).Delete(ctx) }},
		"latch":     {"Left": left, "Delete": func(name string) error { return s.Latch(name, 0).Delete(ctx) }},
		"barrier":   {"Delete": func(name string) error { return s.Barrier(name, 0).Delete(ctx) }},
	}
	for kind, calls := range asks {
		for call, ask := range calls {
			for _, name := range []string{"mutex", "semaphore", "latch", "barrier", "counter", "sequence"} {
				if name == kind {
					continue
				}
				if err := ask(name); !errors.Is(err, holdfast.ErrConflict) {
					t.Errorf("%s of a %s as a %s: %v; want ErrConflict", call, name, kind, err)
				}
			}
			if err := ask("none"); call != "Load" && !errors.Is(err, fs.ErrNotExist) || call == "Load" && err != nil {
				t.Errorf("%s of nothing as a %s: %v", call, kind, err)
			}
		}
	}
}
