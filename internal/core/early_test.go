package core_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// crowdSize is more than one entry does of anything today.
const crowdSize = 12_000

// stories are what entries of version 1 could do at once, and the digest of the
// events that the program of then told. They never change.
var stories = map[string]struct {
	play func(r *rig)
	want string
}{
	"a prefix is deleted": {func(r *rig) {
		a := r.open(1, time.Hour)
		r.put(a, keyNames(crowdSize), core.SessionID{})
		r.do(a, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyDelete, Key: "p/", Prefix: true}, {Kind: core.KeyPut, Key: "after"}}})
		r.acquire(a, "lock")
	}, "d5197cfad46538cb at 97"},
	"a put beside a long range": {func(r *rig) {
		a := r.open(1, time.Hour)
		r.put(a, keyNames(crowdSize), core.SessionID{})
		r.do(a, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Key: "p/", Prefix: true, Sort: core.ByMod}, {Kind: core.KeyPut, Key: "after"}}})
		r.acquire(a, "lock")
	}, "dd40c3f9c3976cd4 at 97"},
	"a put under a long condition": {func(r *rig) {
		a := r.open(1, time.Hour)
		r.put(a, keyNames(crowdSize), core.SessionID{})
		r.do(a, core.Command{Op: core.OpTxn,
			If:   []core.Compare{{Key: "p/", Prefix: true, Target: core.CompareVersion, Is: core.Equal, Num: 1}},
			Then: []core.KeyOp{{Kind: core.KeyPut, Key: "after"}}})
		r.acquire(a, "lock")
	}, "dd40c3f9c3976cd4 at 97"},
	"what puts replace is told": {func(r *rig) {
		a := r.open(1, time.Hour)
		value := make([]byte, 40_000)
		for range 30 {
			r.do(a, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: fmt.Sprint("p/", r.seqs[a]), Value: value}}})
		}
		r.do(a, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyDelete, Key: "p/", Prefix: true, Previous: true}, {Kind: core.KeyPut, Key: "after"}}})
		r.acquire(a, "lock")
	}, "c0f41d14352bdde1 at 33"},
	"results are kept": {func(r *rig) {
		a, b := r.open(1, time.Hour), r.open(2, time.Hour)
		value := make([]byte, 60_000)
		for i := range 16 {
			r.do(a, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: fmt.Sprint("p/", i), Value: value}}})
		}
		for range 24 { // of b, whose mark stays at 1
			r.do(b, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Key: "p/", Prefix: true}, {Kind: core.KeyPut, Key: "after"}}})
			r.marks[b] = 1
		}
		r.acquire(a, "lock")
	}, "3633237407902840 at 43"},
	"a latch opens": {func(r *rig) {
		r.crowd(core.Want{Name: "gate", Kind: core.Latch, Mode: core.Shared, Limit: 1})
		r.do(sessionID(1), core.Command{Op: core.OpCountDown, Name: "gate", A: 1})
		r.acquire(sessionID(2), "lock")
	}, "4e88cd467bb51bbb at 36002"},
	"a barrier trips": {func(r *rig) {
		r.crowd(core.Want{Name: "meet", Kind: core.Barrier, Mode: core.Shared, Limit: crowdSize})
		r.acquire(sessionID(2), "lock")
	}, "26d4d66ec10ee465 at 36001"},
	"readers follow a writer": {func(r *rig) {
		a := r.open(1<<20, time.Hour)
		write := core.Want{Name: "book", Kind: core.RWMutex}
		res := r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{write}})
		r.crowd(core.Want{Name: "book", Kind: core.RWMutex, Mode: core.Shared})
		r.release(a, res.Seq)
		r.acquire(sessionID(2), "lock")
	}, "da3f6efa32ddf5d0 at 36004"},
	"waiters are too heavy": {func(r *rig) {
		a := r.open(1<<20, time.Hour)
		all := core.Want{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: 9, Limit: 9}
		r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{all}})
		r.crowd(all)
		r.do(a, core.Command{Op: core.OpResize, Name: "pool", Limit: 5})
		r.acquire(sessionID(2), "lock")
	}, "9103ab7be41a81de at 24004"},
	"the dead wait in front": {func(r *rig) {
		a := r.open(1<<20, time.Hour)
		held := r.acquire(a, "hot")
		b := r.open(2, time.Hour)
		for range crowdSize {
			r.acquire(b, "hot")
		}
		c := r.open(3, time.Hour)
		r.acquire(c, "hot")
		r.do(b, core.Command{Op: core.OpEnd})
		r.release(a, held)
		r.acquire(a, "lock")
	}, "cb13e06387439bcc at 12009"},
}

func keyNames(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("p/%06d", i)
	}
	return keys
}

// crowd has sessions 1 to crowdSize want the same.
func (r *rig) crowd(w core.Want) {
	for i := range crowdSize {
		r.do(r.open(1+i, time.Hour), core.Command{Op: core.OpAcquire, Wants: []core.Want{w}})
	}
}

// TestEarly: entries that were written before there were bounds do what they did:
// what was acknowledged then is still so when the log is played again.
func TestEarly(t *testing.T) {
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			r := newRig(core.Config{Waiters: 2 * crowdSize})
			r.version = 1
			h := fnv.New64a()
			r.told = func(e *core.Event) {
				fmt.Fprintln(h, e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name, e.Session[8:], e.Token, e.Reason, e.Number)
			}
			story.play(r)
			r.drained()
			if got := fmt.Sprintf("%x at %d", h.Sum64(), r.m.Revision()); got != story.want {
				t.Errorf("the events have digest %s, and had %s", got, story.want)
			}
		})
	}
}

// written is the machine of a snapshot in testdata: parts with their lengths.
func written(t *testing.T, name string) *core.Machine {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".snapshot")
	if err != nil {
		t.Fatal(err)
	}
	x := core.NewRestorer()
	for len(b) > 0 {
		n, k := binary.Uvarint(b)
		if err := x.Write(b[k : k+int(n)]); err != nil {
			t.Fatal(err)
		}
		b = b[k+int(n):]
	}
	m, err := x.Machine()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSnapshotBeforeLimiters: one that the program before limiters wrote, in version 3 as
// today, is restored as it was, and has limiters from then on, on a machine that is restored
// from its own snapshot too.
func TestSnapshotBeforeLimiters(t *testing.T) {
	a, b := sessionID(1), sessionID(2)
	r := &rig{m: written(t, "before-limiters"), seqs: map[core.SessionID]uint64{a: 4, b: 2}, marks: map[core.SessionID]uint64{}}
	if r.m.Version() != 3 || r.m.Revision() != 6 || r.count("p/") != 2 {
		t.Fatalf("version %d, revision %d, %d keys", r.m.Version(), r.m.Revision(), r.count("p/"))
	}
	ask := core.LimitAsk{Key: "k", Cost: 1, Rate: perSecond(2)}
	if l := r.limit(t, a, "l", ask); !l.Decision.Allowed || l.Decision.Remaining != 1 {
		t.Errorf("the first limiter: %+v", l)
	}
	r.m = r.restored(t)
	if l := r.limit(t, b, "l", ask); !l.Decision.Allowed || l.Decision.Remaining != 0 {
		t.Errorf("after its own snapshot: %+v", l)
	}
	if n := r.must(t, a, core.Command{Op: core.OpCount, Name: "c", Count: core.CountAdd, A: 1}, core.CodeOK).Number; n != 8 {
		t.Errorf("a counter of 7 and 1 more is %d", n)
	}
	r.release(a, 1)
	if len(r.out.Pushes) != 1 || r.out.Pushes[0].Session != b || r.out.Pushes[0].State != core.ClaimGranted {
		t.Errorf("the waiter is told %+v, want its grant", r.out.Pushes)
	}
}

// TestEarlySnapshot: snapshots that programs of before wrote are restored as they
// were: the first while a lock is held and awaited, the second frozen, when the lock
// was given back and could not be granted.
func TestEarlySnapshot(t *testing.T) {
	for _, name := range []string{"early", "early-frozen"} {
		t.Run(name, func(t *testing.T) {
			r := &rig{m: written(t, name), seqs: map[core.SessionID]uint64{sessionID(1): 3, sessionID(2): 3, sessionID(3): 3}}
			if name == "early" {
				r.release(sessionID(1), 1)
			} else {
				r.apply(core.Entry{Kind: core.EntryUnfreeze})
			}
			if len(r.out.Pushes) != 1 || r.out.Pushes[0].Session != sessionID(2) || r.out.Pushes[0].State != core.ClaimGranted {
				t.Errorf("the waiter is told %+v, want its grant", r.out.Pushes)
			}
			r.now = int64(2 * time.Minute)
			r.drained()
			if n, other := r.count(""), r.do(sessionID(1), core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "other", Kind: core.Mutex}}}); n != 3 || other.Code != core.CodeOK {
				t.Errorf("after the end of a session there are %d keys, and its lock gives code %d", n, other.Code)
			}
		})
	}
}

// TestLapsedHoldsAgain: before version 5 a session past its deadline and its grace could be granted something new. It lives
// as long as it holds that, also if it held nothing in between.
func TestLapsedHoldsAgain(t *testing.T) {
	r := newRig(core.Config{})
	r.version = 4
	late := sessionID(1)
	r.do(late, core.Command{Op: core.OpOpen, TTL: int64(time.Second), Policy: core.OnNextAcquire})
	r.seqs[late] = 1
	first := r.acquire(late, "a")
	r.now = int64(time.Hour)
	r.apply(core.Entry{Now: r.now})
	r.release(late, first)
	second := r.acquire(late, "b")
	r.now += int64(time.Hour)
	r.apply(core.Entry{Now: r.now})
	r.release(late, second)
	r.now += int64(time.Hour)
	r.apply(core.Entry{Now: r.now})
	if res := r.do(late, core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "c", Kind: core.Mutex}}}); res.Code != core.CodeNoSession {
		t.Errorf("without a hold it lives on: %v", res)
	}
}
