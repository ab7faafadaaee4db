package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// storiesOf4 are what entries of version 4 did where the rules have changed since, and the
// hash of all that the program of then put out. They never change.
var storiesOf4 = map[string]struct {
	play func(r *rig)
	want string
}{
	"a late session asks": {func(r *rig) {
		late, other := sessionID(1), r.open(2, time.Hour)
		r.do(late, core.Command{Op: core.OpOpen, TTL: int64(time.Second), Policy: core.OnNextAcquire, Grace: int64(time.Second)})
		r.seqs[late] = 1
		read := core.Want{Name: "book", Kind: core.RWMutex, Mode: core.Shared}
		base := r.do(late, core.Command{Op: core.OpAcquire, Wants: []core.Want{read}}).Seq
		r.now = int64(time.Second)
		r.apply(core.Entry{Now: r.now})
		r.release(late, r.acquire(late, "lock"))
		r.now += int64(time.Second)
		r.apply(core.Entry{Now: r.now})
		r.release(late, r.acquire(late, "lock, past its grace"))
		r.acquire(other, "z")
		r.do(r.open(3, time.Hour), core.Command{Op: core.OpAcquire, Wants: []core.Want{read, {Name: "z", Kind: core.Mutex}}})
		r.do(late, core.Command{Op: core.OpUpgrade, Target: base}) // which is taken for the one that had it set aside
	}, "dc1f8f045fff4903 at 12"},
	"an upgrade at the quota": {func(r *rig) {
		a := r.open(1, time.Hour)
		read := core.Want{Name: "book", Kind: core.RWMutex, Mode: core.Shared}
		base := r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{read}}).Seq
		r.acquire(a, "lock")
		r.do(a, core.Command{Op: core.OpUpgrade, Target: base})
		r.do(a, core.Command{Op: core.OpAcquire, Wants: mutexes("one more")})
		r.release(a, 2)
		r.do(a, core.Command{Op: core.OpAcquire, Wants: mutexes("one more")})
	}, "9e1174701cd405f at 5"},
	"a join": {func(r *rig) {
		a := r.open(1, time.Hour)
		read := []core.Want{{Name: "book", Kind: core.RWMutex, Mode: core.Shared}}
		r.marks[a] = 1
		for _, seq := range []uint64{9, 5} {
			r.seqs[a] = seq
			r.do(a, core.Command{Op: core.OpAcquire, Wants: read})
		}
		r.seqs[a] = 10
		for i := range 3 {
			r.do(a, core.Command{Op: core.OpAcquire, Wants: read, Flags: core.Reentrant})
			r.do(r.open(2+i, time.Hour), core.Command{Op: core.OpAcquire, Wants: read})
		}
	}, "b7240e7564157ac at 9"},
	"keys at the quota": {func(r *rig) {
		a := r.open(1, time.Hour)
		put := func(key string) core.KeyOp { return core.KeyOp{Kind: core.KeyPut, Key: key} }
		for _, ops := range [][]core.KeyOp{
			{put("p/a"), put("p/a"), put("p/b")}, {put("p/a"), put("p/a")}, {put("p/b")},
			{{Kind: core.KeyDelete, Key: "p/", Prefix: true}, put("p/c")}, {put("p/c"), {Kind: core.KeyDelete, Key: "p/c"}},
		} {
			r.do(a, core.Command{Op: core.OpTxn, Then: ops})
		}
	}, "4e67c0e2e6439afe at 3"},
}

// TestBefore: entries of version 4 do what they did: what was acknowledged then is still
// so when the log is played again.
func TestBefore(t *testing.T) {
	for name, story := range storiesOf4 {
		t.Run(name, func(t *testing.T) {
			r := newRig(core.Config{Holds: 2, Keys: 2})
			r.version = 4
			story.play(r)
			r.drained()
			if got := fmt.Sprintf("%x at %d", r.m.Hash(), r.m.Revision()); got != story.want {
				t.Errorf("the machine puts out %s, and did %s", got, story.want)
			}
		})
	}
}

// TestLateSessionAsks: a session that only its policy keeps is granted nothing, whatever it
// is that it asks for, until it is renewed.
func TestLateSessionAsks(t *testing.T) {
	for _, policy := range []core.Policy{core.OnNextAcquire, core.Never} {
		r := newRig(core.Config{})
		late := sessionID(1)
		r.do(late, core.Command{Op: core.OpOpen, TTL: int64(time.Second), Policy: policy, Grace: int64(time.Second)})
		r.seqs[late] = 1
		read := core.Want{Name: "book", Kind: core.RWMutex, Mode: core.Shared}
		base := r.do(late, core.Command{Op: core.OpAcquire, Wants: []core.Want{read}}).Seq
		asks := []core.Command{
			{Op: core.OpAcquire, Wants: mutexes("lock")}, {Op: core.OpAcquire, Wants: mutexes("lock"), Flags: core.Try},
			{Op: core.OpAcquire, Wants: []core.Want{read}, Flags: core.Reentrant}, {Op: core.OpUpgrade, Target: base},
		}
		for range 3 { // late, past its grace, and from then on
			r.now += int64(time.Second)
			r.apply(core.Entry{Now: r.now})
			r.m = r.restored(t)
			for _, c := range asks {
				r.must(t, late, c, core.CodeLost)
			}
		}
		r.apply(core.Entry{Now: r.now, Renewals: []core.Renewal{{Session: late, TTL: int64(time.Hour)}}})
		for _, c := range []core.Command{asks[0], asks[3]} {
			r.must(t, late, c, core.CodeOK)
		}
	}
}

// TestUpgradeQuota: an upgrade that waits is one of the claims that a session may have; one
// that is granted is one hold, whatever it was before.
func TestUpgradeQuota(t *testing.T) {
	r := newRig(core.Config{Holds: 2})
	a := r.open(1, time.Hour)
	read := core.Want{Name: "book", Kind: core.RWMutex, Mode: core.Shared}
	base := r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{read}}).Seq
	lock := r.acquire(a, "lock")
	r.must(t, a, core.Command{Op: core.OpUpgrade, Target: base}, core.CodeExhausted)
	r.release(a, lock)
	up := r.must(t, a, core.Command{Op: core.OpUpgrade, Target: base}, core.CodeOK).Seq
	r.m = r.restored(t)
	r.must(t, a, core.Command{Op: core.OpAcquire, Wants: mutexes("lock")}, core.CodeOK)
	r.must(t, a, core.Command{Op: core.OpAcquire, Wants: mutexes("more")}, core.CodeExhausted)
	r.must(t, a, core.Command{Op: core.OpCancel, Target: up}, core.CodeOK) // the shared hold is back
	r.must(t, a, core.Command{Op: core.OpAcquire, Wants: mutexes("more")}, core.CodeExhausted)
	r.must(t, a, core.Command{Op: core.OpRelease, Target: base}, core.CodeOK)
	r.must(t, a, core.Command{Op: core.OpAcquire, Wants: mutexes("more")}, core.CodeOK)
}

// TestKeysQuota: a transaction may do whatever leaves no more keys than there may be, or no
// more than there were.
func TestKeysQuota(t *testing.T) {
	put := func(key string) core.KeyOp { return core.KeyOp{Kind: core.KeyPut, Key: key} }
	del := func(key string, prefix bool, limit uint64) core.KeyOp {
		return core.KeyOp{Kind: core.KeyDelete, Key: key, Prefix: prefix, Limit: limit}
	}
	for _, c := range []struct {
		ops  []core.KeyOp
		want core.Code
	}{
		{[]core.KeyOp{put("c")}, core.CodeExhausted},
		{[]core.KeyOp{put("a"), put("a"), put("b")}, core.CodeOK},
		{[]core.KeyOp{del("a", false, 0), put("c")}, core.CodeOK},
		{[]core.KeyOp{put("c"), del("a", false, 0)}, core.CodeOK},
		{[]core.KeyOp{put("c"), put("c"), put("c"), del("c", false, 0)}, core.CodeOK},
		{[]core.KeyOp{del("", true, 0), del("", true, 0), put("c"), put("d")}, core.CodeOK},
		{[]core.KeyOp{del("", true, 0), put("c"), put("d"), put("e")}, core.CodeExhausted},
		{[]core.KeyOp{del("a", false, 0), put("a"), put("c")}, core.CodeExhausted},
		{[]core.KeyOp{del("", true, 1), put("c")}, core.CodeExhausted}, // what a page deletes is known too late
		{[]core.KeyOp{del("a", true, 1), put("a"), put("b")}, core.CodeOK},
		{[]core.KeyOp{put("c"), del("c", true, 0)}, core.CodeOK},
	} {
		r := newRig(core.Config{Keys: 2})
		a := r.open(1, time.Hour)
		r.put(a, []string{"a", "b"}, core.SessionID{})
		if res := r.do(a, core.Command{Op: core.OpTxn, Then: c.ops}); res.Code != c.want || r.count("") > 2 {
			t.Errorf("%+v: code %d %s, and then there are %d keys", c.ops, res.Code, res.Text, r.count(""))
		}
	}
	r := newRig(core.Config{Keys: 2})
	a := r.open(1, time.Hour)
	if res := r.do(a, core.Command{Op: core.OpTxn, Then: []core.KeyOp{put("a"), put("a"), put("b"), put("b")}}); res.Code != core.CodeOK {
		t.Errorf("keys that are put twice: code %d %s", res.Code, res.Text)
	}
}

// TestJoinsOldest: of several holds a re-entrant request joins the one that was granted
// first, however many others hold the name.
func TestJoinsOldest(t *testing.T) {
	r := newRig(core.Config{})
	a := r.open(1, time.Hour)
	read := []core.Want{{Name: "book", Kind: core.RWMutex, Mode: core.Shared}}
	r.marks[a], r.seqs[a] = 1, 9
	first := r.must(t, a, core.Command{Op: core.OpAcquire, Wants: read}, core.CodeOK).Token
	r.seqs[a] = 5
	r.must(t, a, core.Command{Op: core.OpAcquire, Wants: read}, core.CodeOK)
	r.seqs[a] = 10
	for i := range 3 {
		if got := r.must(t, a, core.Command{Op: core.OpAcquire, Wants: read, Flags: core.Reentrant}, core.CodeOK).Token; got != first {
			t.Errorf("beside %d others the hold with token %d is joined, want %d", i, got, first)
		}
		r.do(r.open(2+i, time.Hour), core.Command{Op: core.OpAcquire, Wants: read})
	}
}
