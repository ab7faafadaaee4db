package core_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A quota holds from its entry on, also in what is restored from a snapshot; a
// namespace that has more than it allows keeps that; and it says how it is raised.
func TestQuota(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, 300e9)
	for _, name := range []string{"a", "b", "c"} {
		r.must(t, id, core.Command{Op: core.OpAcquire, Wants: mutexes(name)}, core.CodeOK)
	}
	r.apply(core.Entry{Kind: core.EntryQuota, Quota: core.Quota{Sessions: 1, Keys: 1, Names: 4, Holds: 4}})
	if want := (core.Quota{Sessions: 1, Names: 4, Keys: 1, Holds: 4, Waiters: 10_000, LimitKeys: math.MaxInt}); r.m.Quota() != want {
		t.Errorf("the quota is %+v, want %+v", r.m.Quota(), want)
	}
	chunks, _ := chunksOf(r.m, 1<<20)
	restored, err := restoreAll(chunks)
	if err != nil {
		t.Fatal(err)
	}
	r.m = restored
	r.must(t, id, core.Command{Op: core.OpAcquire, Wants: mutexes("d")}, core.CodeOK)
	put := func(key string) core.Command {
		return core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: key}}}
	}
	r.must(t, id, put("k"), core.CodeOK)
	r.must(t, id, put("k"), core.CodeOK)
	open := core.Command{Op: core.OpOpen, TTL: 1e9}
	for _, c := range []struct {
		id    core.SessionID
		c     core.Command
		raise string
	}{
		{sessionID(2), open, "--max-sessions"},
		{id, put("l"), "--max-keys"},
		{id, core.Command{Op: core.OpAcquire, Wants: mutexes("a")}, "--max-holds"},
		{id, core.Command{Op: core.OpCount, Name: "n", Count: core.CountAdd, A: 1}, "--max-names"},
	} {
		if got := r.do(c.id, c.c); got.Code != core.CodeExhausted || !strings.Contains(got.Text, c.raise) {
			t.Errorf("op %d: code %d, %q, want one that says %s", c.c.Op, got.Code, got.Text, c.raise)
		}
	}
	r.apply(core.Entry{Kind: core.EntryQuota, Quota: core.Quota{Holds: 2, Names: math.MaxInt, Waiters: 1}})
	if s, _ := r.m.SessionPage(id, core.Cursor{}, 0); len(s.Claims) != 4 {
		t.Errorf("a smaller quota has left %d of 4 holds", len(s.Claims))
	}
	r.must(t, id, core.Command{Op: core.OpCount, Name: "n", Count: core.CountAdd, A: 1}, core.CodeOK)
}

// Refusals speak of what a kind has: only semaphores have a limit, and can be resized.
func TestWordsOfKinds(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, time.Hour)
	want := func(k core.Kind, weight, limit int64) core.Command {
		return core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: k.String(), Kind: k, Mode: core.Shared, Weight: weight, Limit: limit}}}
	}
	for _, c := range []struct {
		kind                  core.Kind
		weight                int64
		missing, other, never string
	}{
		{core.Semaphore, 1, "its limit", "resize it", "parties"},
		{core.Latch, 0, "its count", "", "limit"},
		{core.Barrier, 0, "its number of parties", "has 2 parties, not 3", "resize"},
	} {
		if text := r.must(t, id, want(c.kind, c.weight, 0), core.CodeNotExist).Text; !strings.Contains(text, c.missing) {
			t.Errorf("a %s that is not there: %q", c.kind, text)
		}
		r.do(id, want(c.kind, c.weight, 2))
		got := r.do(id, want(c.kind, c.weight, 3))
		if got.Code == core.CodeConflict != (c.other != "") || !strings.Contains(got.Text, c.other) || strings.Contains(got.Text, c.never) {
			t.Errorf("a %s of another size: code %d, %q", c.kind, got.Code, got.Text)
		}
	}
}
