package remote_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/remote"
)

func open(t *testing.T, g *group) *holdfast.Space {
	t.Helper()
	s, err := remote.Open(remote.Config{Endpoints: []string{g.cfgs[0].Founders[0].Client}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t *testing.T, s *holdfast.Space, key, value string) {
	t.Helper()
	if _, err := s.KV().Put(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// few is how often one subscription is begun at most, on a machine so slow that its
// connection is given up.
const few = 10

// reader is one watch.
type reader struct {
	t    *testing.T
	next func() (holdfast.Event, error, bool)
	stop func()
}

// watch begins a watch and waits until it is ready.
func watch(t *testing.T, s *holdfast.Space, ctx context.Context, prefix string, opts ...holdfast.WatchOption) *reader {
	t.Helper()
	r := &reader{t: t}
	r.next, r.stop = iter.Pull2(s.Watch(ctx, prefix, 0, opts...))
	if ev := r.event(); ev.Verb != "ready" {
		t.Fatalf("the first event is %s", ev.String())
	}
	return r
}

func (r *reader) event() holdfast.Event {
	r.t.Helper()
	ev, err, ok := r.next()
	if err != nil || !ok {
		r.t.Fatalf("no event: %v, %v", err, ok)
	}
	return ev
}

// A thousand watchers of one key are one subscription, which ends with the last of
// them, and each sees everything in order.
func TestWatchersShareASubscription(t *testing.T) {
	const watchers, puts = 1000, 20
	g := newGroup(t, 1, fast)
	s := open(t, g)
	put(t, s, "other", "")
	ctx, cancel := context.WithCancel(t.Context())
	var ready, all sync.WaitGroup
	ready.Add(watchers)
	for range watchers {
		all.Go(func() {
			n := -1
			for ev, err := range s.Watch(ctx, "k", 0, holdfast.ExactName()) {
				switch {
				case err != nil:
					t.Error(err)
				case n == -1:
					ready.Done()
				case ev.KV == nil || string(ev.KV.Value) != fmt.Sprint(n):
					t.Errorf("event %d is %s, %v", n, ev.String(), ev.KV)
				}
				if n++; n == puts {
					return
				}
			}
		})
	}
	ready.Wait()
	for i := range puts {
		put(t, s, "k", fmt.Sprint(i))
	}
	all.Wait()
	cancel()
	open, begun := g.watches.seen()
	for late := time.After(time.Minute); open != 0 && late != nil; open, begun = g.watches.seen() {
		select {
		case <-g.watches.ended: // perhaps one of before, on a machine so slow
		case <-late:
			late = nil
		}
	}
	if open != 0 || begun > few {
		t.Errorf("%d subscriptions were begun, %d are left", begun, open)
	}
}

// A watcher that joins later sees nothing of what was answered before, however slow the
// others are, and everything from then on.
func TestLateWatcherBeginsNow(t *testing.T) {
	g := newGroup(t, 1, fast)
	s, other := open(t, g), open(t, g)
	first := watch(t, s, t.Context(), "k")
	defer first.stop()
	for i := range 50 {
		put(t, other, "k", fmt.Sprint("before", i))
		late := watch(t, s, t.Context(), "k")
		put(t, other, "k", fmt.Sprint("after", i))
		if ev := late.event(); string(ev.KV.Value) != fmt.Sprint("after", i) {
			t.Errorf("the late watcher saw %q first", ev.KV.Value)
		}
		late.stop()
	}
	for i := range 100 {
		want := fmt.Sprint([]string{"before", "after"}[i%2], i/2)
		if ev := first.event(); string(ev.KV.Value) != want {
			t.Fatalf("the first watcher saw %q, want %q", ev.KV.Value, want)
		}
	}
	if _, begun := g.watches.seen(); begun > few {
		t.Errorf("%d subscriptions for one prefix", begun)
	}
}

// Watches that ask for different things have subscriptions of their own, and a
// program that changes what it got changes it for itself.
func TestOnlyEqualWatchesShare(t *testing.T) {
	g := newGroup(t, 1, fast)
	s := open(t, g)
	put(t, s, "k", "old")
	plain, same := watch(t, s, t.Context(), "k"), watch(t, s, t.Context(), "k")
	previous := watch(t, s, t.Context(), "k", holdfast.WithPrevious())
	locks := watch(t, s, t.Context(), "k", holdfast.Patterns{"lock:*"})
	for _, r := range []*reader{plain, same, previous, locks} {
		defer r.stop()
	}
	put(t, s, "k", "new")
	h, err := s.Mutex("k").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	ev := plain.event()
	if ev.Prev != nil || string(ev.KV.Value) != "new" {
		t.Errorf("got %v before %v", ev.KV, ev.Prev)
	}
	copy(ev.KV.Value, "xxx")
	if ev := same.event(); string(ev.KV.Value) != "new" {
		t.Errorf("another watcher's change is seen: %q", ev.KV.Value)
	}
	if ev := previous.event(); ev.Prev == nil || string(ev.Prev.Value) != "old" {
		t.Errorf("the previous value is %v", ev.Prev)
	}
	if ev := locks.event(); ev.String() != "lock:acquired" {
		t.Errorf("the watch of locks saw %s", ev.String())
	}
}

// A watcher that does not read holds up nobody.
func TestSlowWatcherDelaysNobody(t *testing.T) {
	g := newGroup(t, 1, fast)
	s := open(t, g)
	slow, quick := watch(t, s, t.Context(), "c"), watch(t, s, t.Context(), "c")
	defer slow.stop()
	defer quick.stop()
	const adds = 6000
	for i := range adds {
		if _, err := s.Counter("c").Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if ev := quick.event(); ev.Number != uint64(i+1) {
			t.Fatalf("the quick watcher saw %s %d as number %d", ev.String(), ev.Number, i+1)
		}
	}
	for last, told := uint64(0), false; last < adds; {
		ev := slow.event()
		if ev.Verb == "resync" {
			told = true
			continue
		}
		if ev.Number != last+1 && !told {
			t.Fatalf("a silent gap: %d after %d", ev.Number, last)
		}
		last, told = ev.Number, false
	}
}
