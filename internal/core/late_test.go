package core_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// TestRenewalsMoveDeadlines: deadlines that renewals moved are no work for the entry at which the old ones
// come up, on a restored machine too.
func TestRenewalsMoveDeadlines(t *testing.T) {
	const n = 2_000
	r := newRig(core.Config{})
	for i := range n {
		r.open(1+i, time.Hour)
	}
	r.open(1+n, time.Minute)
	e := core.Entry{Now: r.now}
	for i := range n {
		e.Renewals = append(e.Renewals, core.Renewal{Session: sessionID(1 + i*7%n), TTL: int64(2*time.Hour) + int64(i)})
	}
	r.apply(e)
	for _, due := range []time.Duration{time.Minute, 2 * time.Hour, 2*time.Hour + 1} {
		if err := core.Invariants(r.m); err != nil {
			t.Fatal(err)
		}
		if at, ok := r.m.Due(); !ok || at != int64(due) {
			t.Errorf("the next end is due at %v, %t, want %v", time.Duration(at), ok, due)
		}
		r.now = int64(due)
		if r.apply(core.Entry{Now: r.now}); len(r.out.Events) != 1 {
			t.Errorf("%d sessions end, want one", len(r.out.Events))
		}
		r.m = r.restored(t)
	}
}

// TestTryBesideVeryManyLate: a try for which more late holders would have to go than one entry may end is refused
// without a list of all of them.
func TestTryBesideVeryManyLate(t *testing.T) {
	const n, budget = 50_000, 100
	r := newRig(core.Config{Budget: budget})
	late, pool := sessionID(1), core.Want{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: n}
	r.do(late, core.Command{Op: core.OpOpen, TTL: int64(time.Second), Policy: core.OnNextAcquire, Grace: 1})
	r.seqs[late] = 1
	for range n {
		r.do(late, core.Command{Op: core.OpAcquire, Wants: []core.Want{pool}})
	}
	a := r.open(2, time.Hour)
	r.now = int64(time.Minute)
	r.apply(core.Entry{Now: r.now})
	r.drained()
	const tries = 100
	pool.Weight = n
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range tries {
		if res := r.do(a, core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{pool}}); res.Code != core.CodeHeld {
			t.Fatalf("code %d %s", res.Code, res.Text)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / tries; each > 8*n/2 {
		t.Errorf("a try takes %d bytes beside %d late holders", each, n)
	}
	pool.Weight = budget / 2
	if res := r.do(a, core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{pool}}); res.Code != core.CodeOK || len(reclaims(r)) != budget/2 {
		t.Errorf("code %d %s, %d are taken from", res.Code, res.Text, len(reclaims(r)))
	}
}
