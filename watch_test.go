package holdfast_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// watching collects events beside the test.
func watching(t *testing.T, events iter.Seq2[holdfast.Event, error]) func() []string {
	var seen []string
	go func() {
		for ev, err := range events {
			if err != nil {
				t.Error(err)
			}
			if ev.KV != nil && ev.KV.Key != ev.Name {
				t.Errorf("the key %q of the event %q", ev.KV.Key, ev.Name)
			}
			seen = append(seen, ev.String()+" "+ev.Name)
		}
	}()
	synctest.Wait()
	return func() []string { synctest.Wait(); return seen }
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sub := s.Sub("jobs/")
		all, below := watching(t, s.Watch(ctx, "", 0)), watching(t, sub.Watch(ctx, "n", 0))
		_ = acquire(t, sub.Mutex("nightly")).Release()
		put(t, sub.KV(), "next", "")
		put(t, s.KV(), "other", "")
		if got, want := all(), []string{"watch:ready ", "lock:acquired jobs/nightly", "lock:released jobs/nightly", "kv:put jobs/next", "kv:put other"}; !slices.Equal(got, want) {
			t.Errorf("saw %q, want %q", got, want)
		}
		if got, want := below(), []string{"watch:ready ", "lock:acquired nightly", "lock:released nightly", "kv:put next"}; !slices.Equal(got, want) {
			t.Errorf("saw %q, want %q", got, want)
		}
		if key := toy.log[2].KV.Key; key != "jobs/next" {
			t.Errorf("the backend's own event was changed to %q", key)
		}
		past := watching(t, s.Watch(ctx, "", holdfast.Revision(toy.log[2].Revision)))
		if got, want := past(), []string{"watch:ready ", "kv:put jobs/next", "kv:put other"}; !slices.Equal(got, want) {
			t.Errorf("saw %q, want %q", got, want)
		}
	})
}

// Leaving the loop leaves the watch; synctest fails if anything goes on.
func TestWatch_Break(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		for ev, err := range s.Sub("a/").Watch(t.Context(), "", 0) {
			if err != nil || ev.Verb != driver.VerbReady {
				t.Errorf("first event %v, %v", ev, err)
			}
			break
		}
	})
}

func TestWatch_Request(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		for range s.Sub("a*[/").Watch(t.Context(), "", 0, holdfast.Glob("x*"), holdfast.Patterns{"lock:*"}, holdfast.ExactName(), holdfast.WithPrevious()) {
			break
		}
		if toy.called(`watch a\*\[/x*`) != 1 {
			t.Errorf("the glob did not keep the prefix literal: %v", toy.calls)
		}
	})
}

func TestWatch_Errors(t *testing.T) {
	s, _ := open(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// The end of its context is no error, also before it begins; a watch that is refused is refused all the same.
	if err := lastError(s.Watch(ended, "", 0)); err != nil {
		t.Errorf("a watch with a context that has ended: %v", err)
	}
	wantInvalid(t, lastError(s.Watch(ended, "a\n", 0)), "control character")
	wantInvalid(t, lastError(s.Watch(ended, "", 0, holdfast.Glob("[x"))), "Glob(")
	wantInvalid(t, lastError(s.Watch(ended, "", 0, holdfast.Patterns{"lock"})), "not kind:verb")
	for _, p := range []string{"nosuch:thing", "nosuch:*", "lock:nosuch", "watch:ready", "Lock:acquired"} {
		wantInvalid(t, lastError(s.Watch(ended, "", 0, holdfast.Patterns{"kv:*", p})), "names no event")
	}
	wantInvalid(t, lastError(s.Watch(t.Context(), "a\n", 0)), "control character")
	past := newToy(driver.FeatureWatch)
	err := lastError(openOn(t, past).Watch(t.Context(), "", 7))
	if err == nil || !strings.Contains(err.Error(), "watch-history") {
		t.Errorf("a watch of the past: %v", err)
	}
	compacted := openOn(t, failing{newToy()})
	err = lastError(compacted.Watch(t.Context(), "a", 7))
	wantErr(t, err, holdfast.ErrCompacted)
	if got, want := err.Error(), `holdfast: watch "a": compacted`; got != want {
		t.Errorf("error is %q, want %q", got, want)
	}
}

// failing has no history left.
type failing struct{ driver.Driver }

func (failing) Watch(context.Context, *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) { yield(driver.Event{}, driver.ErrCompacted) }
}

func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, holdfast.Owner("node-7"))
		sub := s.Sub("jobs/")
		if res, err := sub.Inspect(t.Context(), "free"); res.Name != "free" || res.Kind != 0 || err != nil {
			t.Errorf("a free name: %+v, %v", res, err)
		}
		h := acquire(t, sub.Mutex("a"))
		w := later(func() (*holdfast.Hold, error) { return sub.Mutex("a").Acquire(t.Context()) })
		res, err := sub.Inspect(t.Context(), "a")
		if err != nil || res.Name != "a" || len(res.Holders) != 1 || len(res.Waiters) != 1 {
			t.Fatalf("%+v, %v", res, err)
		}
		if c := res.Holders[0]; c.Name != "a" || c.Owner != "node-7" || c.Token != h.Token() {
			t.Errorf("holder %+v", c)
		}
		if c := res.Waiters[0]; c.Name != "a" || c.Position != 1 || c.Token != 0 {
			t.Errorf("waiter %+v", c)
		}
		_ = h.Release()
		_ = (<-w).h.Release()
	})
}

func TestList_ByPages(t *testing.T) {
	s, toy := open(t)
	sub := s.Sub("jobs/")
	var want []string
	var holds []*holdfast.Hold
	for i := range 250 {
		name := string(rune('a'+i/26)) + string(rune('a'+i%26))
		want = append(want, name)
		holds = append(holds, acquire(t, sub.Mutex(name)))
	}
	holds = append(holds, acquire(t, s.Mutex("zzz")))
	var got []string
	for res, err := range sub.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, res.Name)
	}
	if !slices.Equal(got, want) || toy.called("inspect") != 3 {
		t.Errorf("%d names in %d calls", len(got), toy.called("inspect"))
	}
	for range sub.List(t.Context(), "") {
		break
	}
	if toy.called("inspect") != 4 {
		t.Error("a list that was left asked on")
	}
	wantInvalid(t, lastError(s.List(t.Context(), "\n")), "control character")
	releaseAll(holds)
}

// Scenario 27: List, then force release by name alone, frees the next holder.
func TestForceRelease_NeverTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		old := acquire(t, s.Mutex("a"))
		seen, err := s.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		_ = old.Release()
		next := acquire(t, s.Mutex("a"))
		_, err = s.ForceRelease(t.Context(), "a", holdfast.Token(seen.Holders[0].Token))
		wantErr(t, err, holdfast.ErrStale)
		if next.Err() != nil {
			t.Errorf("the next holder was hit: %v", next.Err())
		}
		_, err = s.ForceRelease(t.Context(), "a", 0)
		wantInvalid(t, err, "token 0 is none")
		until, err := s.ForceRelease(t.Context(), "a", next.Token())
		if err != nil || until == 0 {
			t.Errorf("until %s, %v", until, err)
		}
		wantErr(t, next.Err(), holdfast.ErrLost)
		if toy.holders("a") != 1 {
			t.Error("freed before its holder confirmed")
		}
		wantErr(t, next.Release(), holdfast.ErrLost)
		if toy.holders("a") != 0 {
			t.Error("not freed when its holder confirmed")
		}
		third := acquire(t, s.Mutex("a"))
		if _, err := s.ForceRelease(t.Context(), "a", third.Token(), holdfast.ForceNow()); err != nil || toy.holders("a") != 0 {
			t.Errorf("Now: %v, %d holders", err, toy.holders("a"))
		}
	})
}
