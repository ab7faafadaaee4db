package pghold_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// TestWatchTellsWhatOthersDecide: a release by force, the removal of a semaphore, latch or barrier, a barrier that
// tripped and the end of a Space are told as docs/events.md says, and keys with their session.
func TestWatchTellsWhatOthersDecide(t *testing.T) {
	url := database(t)
	s, other := open(t, url), must(holdfast.Open(t.Context(), url))(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	steps := []struct {
		do   func()
		want []string
	}{
		{func() {
			h := must(other.Mutex("m").Acquire(ctx))(t)
			must(s.ForceRelease(ctx, "m", h.Token()))(t)
		}, []string{"lock:acquired m", "lock:revoked m revoked", "lock:released m"}},
		{func() {
			h := must(other.Semaphore("s", 2).Acquire(ctx, 1))(t)
			must(s.ForceRelease(ctx, "s", h.Token(), holdfast.ForceNow()))(t)
			check(t, s.Semaphore("s", 0).Delete(ctx))
		}, []string{"semaphore:acquired s", "semaphore:revoked s revoked", "semaphore:released s", "semaphore:deleted s"}},
		{func() {
			must(s.Latch("l", 1).CountDown(ctx, 1))(t)
			check(t, s.Latch("l", 1).Delete(ctx))
		}, []string{"latch:counted l", "latch:opened l", "latch:deleted l"}},
		{func() {
			check(t, s.Barrier("b", 1).Wait(ctx))
			check(t, s.Barrier("b", 1).Delete(ctx))
		}, []string{"barrier:acquired b", "barrier:tripped b", "barrier:released b", "barrier:deleted b"}},
		{func() {
			ses := must(other.Session(ctx))(t)
			must(other.KV().Put(ctx, "k", nil, holdfast.Under(ses)))(t)
			check(t, ses.Revoke())
		}, []string{"kv:put k of its session", "kv:delete k of its session session"}},
		{func() {
			must(other.Mutex("c").Acquire(ctx))(t)
			check(t, other.Close())
		}, []string{"lock:acquired c", "lock:released c"}},
	}
	var told, all []string
	for _, step := range steps {
		all = append(all, step.want...)
	}
	due := 0
	for ev, err := range s.Watch(ctx, "", 0) {
		check(t, err)
		if ev.Kind != "watch" {
			told = append(told, tellTale(ev))
		}
		if len(told) == len(all) {
			break
		}
		if len(told) == due {
			due += len(steps[0].want)
			steps[0].do()
			steps = steps[1:]
		}
	}
	if !slices.Equal(told, all) {
		t.Errorf("the watch tells\n%q; want\n%q", told, all)
	}
}

// tellTale is an event in words.
func tellTale(ev holdfast.Event) string {
	text := ev.String() + " " + ev.Name
	if ev.KV != nil && ev.Session != (holdfast.Event{}).Session && ev.Session == ev.KV.Session {
		text += " of its session"
	}
	if ev.Reason != "" {
		text += " " + ev.Reason
	}
	return text
}
