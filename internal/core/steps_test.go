package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

const (
	veryMany   = 100_000
	mostAtOnce = 10_000 // the default budget
)

// reserving lets very many claims of one session have the first name set aside while
// they wait for the second.
func reserving(first core.Want) (r *rig, a core.SessionID) {
	r = newRig(core.Config{Holds: 2 * veryMany, Waiters: 2 * veryMany})
	a, b := r.open(1, time.Hour), r.open(2, time.Hour)
	r.acquire(a, "z")
	for range veryMany {
		r.do(b, core.Command{Op: core.OpAcquire, Wants: []core.Want{first, {Name: "z", Kind: core.Mutex}}})
	}
	return r, a
}

// steps applies bare entries until nobody has the name set aside, and checks that each
// takes it from at most a budget of claims.
func (r *rig) steps(t *testing.T, name string) {
	t.Helper()
	left := veryMany
	for entries := 0; ; entries++ {
		now := core.Reserved(r.m, "", name)
		if left-now > mostAtOnce || left == now && entries > 0 {
			t.Fatalf("entry %d takes %q from %d claims", entries, name, left-now)
		}
		if left = now; left == 0 {
			return
		}
		if !due(r) {
			t.Fatalf("nothing is due, though %d claims still have %q set aside", left, name)
		}
		if entries%3 == 0 {
			r.m = r.restored(t)
		}
		r.apply(core.Entry{Now: r.now})
	}
}

// TestUpgradeBesideVeryMany: an upgrade takes a name from claims that only have it set
// aside, so many with each entry, and is then granted.
func TestUpgradeBesideVeryMany(t *testing.T) {
	read := core.Want{Name: "book", Kind: core.RWMutex, Mode: core.Shared}
	r, _ := reserving(read)
	if n := core.Reserved(r.m, "", "book"); n != veryMany {
		t.Fatalf("%d claims have the name set aside", n)
	}
	base := r.do(r.open(3, time.Hour), core.Command{Op: core.OpAcquire, Wants: []core.Want{read}})
	up := r.do(sessionID(3), core.Command{Op: core.OpUpgrade, Target: base.Seq})
	if up.Code != core.CodeQueued {
		t.Fatalf("the upgrade: code %d %s", up.Code, up.Text)
	}
	granted := up.Seq
	r.steps(t, "book")
	r.drained()
	if res := r.do(sessionID(3), core.Command{Op: core.OpRelease, Target: granted}); res.Code != core.CodeOK {
		t.Errorf("the upgrade is not granted: code %d %s", res.Code, res.Text)
	}
	if err := core.Invariants(r.m); err != nil {
		t.Error(err)
	}
}

// TestResizeBesideVeryMany: a semaphore that becomes smaller is taken from claims that
// only have it set aside, so many with each entry.
func TestResizeBesideVeryMany(t *testing.T) {
	r, a := reserving(core.Want{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: veryMany})
	if res := r.do(a, core.Command{Op: core.OpResize, Name: "pool", Limit: 1}); res.Code != core.CodeOK {
		t.Fatalf("code %d %s", res.Code, res.Text)
	}
	left := veryMany
	for entries := 0; left > 1; entries++ {
		now := core.Reserved(r.m, "", "pool")
		if left-now > mostAtOnce {
			t.Fatalf("entry %d takes the name from %d claims", entries, left-now)
		}
		if left = now; left > 1 && !due(r) {
			t.Fatalf("nothing is due, though %d claims still have it set aside", left)
		}
		r.apply(core.Entry{Now: r.now})
	}
	if err := core.Invariants(r.m); err != nil {
		t.Error(err)
	}
}

// TestResizeAmongVeryMany: a claim that waits for too much is denied if it can be found at once;
// else the resize is refused, and changes nothing. A resize that denies nobody is done.
func TestResizeAmongVeryMany(t *testing.T) {
	r := newRig(core.Config{Holds: 2 * veryMany, Waiters: 2 * veryMany})
	a := r.open(1, time.Hour)
	want := func(weight int64) core.Want {
		return core.Want{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: weight, Limit: 9}
	}
	r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{want(9)}})
	heavy := r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{want(5)}}).Seq
	for range veryMany {
		r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{want(1)}})
	}
	resize := func(limit int64, code core.Code) {
		t.Helper()
		if res := r.do(a, core.Command{Op: core.OpResize, Name: "pool", Limit: limit}); res.Code != code {
			t.Errorf("to %d: code %d %s, want %d", limit, res.Code, res.Text, code)
		}
	}
	resize(5, core.CodeOK)
	resize(4, core.CodeExhausted)
	resize(12, core.CodeOK)
	r.do(a, core.Command{Op: core.OpCancel, Target: heavy})
	resize(1, core.CodeOK)
}

// TestJoinAmongVeryMany: a re-entrant request that would have to look at too many claims
// is refused, for good or for this entry.
func TestJoinAmongVeryMany(t *testing.T) {
	for n, want := range map[int][]core.Code{
		900:      {core.CodeOK, core.CodeOK, core.CodeOK, core.CodeOK},
		5_000:    {core.CodeOK, core.CodeOK, core.CodeUnavailable, core.CodeUnavailable},
		veryMany: {core.CodeExhausted, core.CodeExhausted, core.CodeExhausted, core.CodeExhausted},
	} {
		r := newRig(core.Config{Holds: 2 * veryMany})
		a, b := r.open(1, time.Hour), r.open(2, time.Hour)
		pool := core.Want{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: 2 * veryMany}
		for i := range n {
			r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{pool}})
			r.acquire(b, lockName(i))
		}
		join := core.Command{Op: core.OpAcquire, Flags: core.Reentrant, Wants: []core.Want{pool}}
		for i, res := range r.batch(b, 4, join) {
			if res.Code != want[i] {
				t.Errorf("beside %d claims and holders, wish %d: code %d %s", n, i, res.Code, res.Text)
			}
		}
	}
}

// TestHandOverAmongVeryMany: an election is handed over to a candidate that is found among
// so many of them, else refused.
func TestHandOverAmongVeryMany(t *testing.T) {
	r := newRig(core.Config{Waiters: 2 * veryMany})
	stand := core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "chair", Kind: core.Election}}}
	for i := range veryMany {
		id := r.open(1+i, time.Hour)
		stand.Owner = fmt.Sprint("owner ", i)
		r.do(id, stand)
	}
	for _, c := range []struct {
		from, to int
		code     core.Code
	}{{0, veryMany - 1, core.CodeExhausted}, {0, 900, core.CodeOK}, {900, 9_000, core.CodeOK}, {9_000, 20_000, core.CodeExhausted}} {
		res := r.do(sessionID(1+c.from), core.Command{Op: core.OpHandOver, Target: 1, Owner: fmt.Sprint("owner ", c.to)})
		if res.Code != c.code {
			t.Errorf("from %d to %d: code %d %s", c.from, c.to, res.Code, res.Text)
		}
	}
	miss := core.Command{Op: core.OpHandOver, Target: 1, Owner: "nobody"}
	r.seqs[sessionID(9_001)] = 100
	if res := r.batch(sessionID(9_001), 3, miss); res[0].Code != core.CodeExhausted || res[2].Code != core.CodeExhausted {
		t.Errorf("to nobody: %d, %d, %d", res[0].Code, res[1].Code, res[2].Code)
	}
}

// TestOldIDs: very many ids that are refused no more are forgotten a few at a time.
func TestOldIDs(t *testing.T) {
	r := newRig(core.Config{Sessions: 2 * veryMany, Ended: 2 * veryMany})
	end := func(i int) {
		r.open(i, time.Hour)
		r.do(sessionID(i), core.Command{Op: core.OpEnd})
	}
	for i := range veryMany {
		end(1 + i)
	}
	r.now += int64(time.Hour)
	left := veryMany
	for i := range veryMany / 2 {
		end(1 + veryMany + i)
		now := core.EndedIDs(r.m)
		if left-now > 8 {
			t.Fatalf("the end of one session takes the ids from %d to %d", left, now)
		}
		left = now
	}
	if left != veryMany/2 {
		t.Errorf("%d ids are remembered, want those of %d", left, veryMany/2)
	}
	if res := r.do(sessionID(1), core.Command{Op: core.OpOpen, TTL: int64(time.Hour)}); res.Code != core.CodeOK {
		t.Errorf("an id that was used an hour ago: code %d %s", res.Code, res.Text)
	}
}

// TestNumbersBackwards: very many numbers that come in any order are filed in theirs.
func TestNumbersBackwards(t *testing.T) {
	r := newRig(core.Config{Holds: 2 * veryMany, Window: 2 * veryMany})
	a := r.open(1, time.Hour)
	r.marks[a] = 1
	for seq := uint64(veryMany); seq > 0; seq-- {
		r.seqs[a] = seq
		r.acquire(a, lockName(int(seq)))
	}
	if err := core.Invariants(r.m); err != nil {
		t.Fatal(err)
	}
	var after core.Cursor
	next := uint64(1)
	for {
		info, _ := r.m.SessionPage(a, after, 0)
		for _, c := range info.Claims {
			if c.Seq != next {
				t.Fatalf("number %d comes after %d", c.Seq, next-1)
			}
			next++
		}
		if after = info.Next; after == (core.Cursor{}) {
			break
		}
	}
	if next != veryMany+1 {
		t.Errorf("%d claims are told", next-1)
	}
}
