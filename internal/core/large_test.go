package core_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Stories with thousands of everything: what is right for three is not yet right
// for three thousand.

// drained applies bare entries while something is due, and returns how many it took.
func (r *rig) drained() (entries int) {
	for {
		if due, ok := r.m.Due(); !ok || due > r.now {
			return entries
		}
		r.apply(core.Entry{Now: r.now})
		entries++
	}
}

// put writes keys, as many to a transaction as there may be.
func (r *rig) put(id core.SessionID, keys []string, session core.SessionID) {
	for len(keys) > 0 {
		n := min(len(keys), 128)
		ops := make([]core.KeyOp, n)
		for i, k := range keys[:n] {
			ops[i] = core.KeyOp{Kind: core.KeyPut, Key: k, Session: session}
		}
		if res := r.do(id, core.Command{Op: core.OpTxn, Then: ops}); res.Code != core.CodeOK {
			panic(res.Text)
		}
		keys = keys[n:]
	}
}

// count is how many keys there are with a prefix, read page by page.
func (r *rig) count(prefix string) (n uint64) {
	op := core.KeyOp{Key: prefix, Prefix: true, KeysOnly: true}
	for {
		res := r.m.Read("", &core.Command{Op: core.OpTxn, Then: []core.KeyOp{op}})
		keys := res.Keys[0].Keys
		if n += uint64(len(keys)); !res.Keys[0].More {
			return n
		}
		op.After = keys[len(keys)-1].Name
	}
}

// TestSessionOfManyKeys: a session with any number of keys, put in either order, ends
// with all of them, however it ends.
func TestSessionOfManyKeys(t *testing.T) {
	ends := map[string]func(r *rig, by, session core.SessionID){
		"end":    func(r *rig, _, session core.SessionID) { r.do(session, core.Command{Op: core.OpEnd}) },
		"revoke": func(r *rig, by, session core.SessionID) { r.do(by, core.Command{Op: core.OpRevoke, Session: session}) },
		"expiry": func(r *rig, _, _ core.SessionID) { r.now = int64(time.Minute) },
	}
	for name, end := range ends {
		for _, n := range []int{93, 1922, 3722, 12_000} {
			for _, down := range []bool{false, true} {
				t.Run(fmt.Sprint(name, n, down), func(t *testing.T) {
					r := newRig(core.Config{})
					by, session := r.open(1, time.Hour), r.open(2, time.Minute)
					keys := make([]string, n)
					for i := range keys {
						at := i
						if down {
							at = n - 1 - i
						}
						keys[i] = fmt.Sprintf("service/%06d", at)
					}
					r.put(session, keys, session)
					r.put(by, []string{"service/mine"}, core.SessionID{})
					end(r, by, session)
					r.drained()
					if left := r.count("service/"); left != 1 {
						t.Errorf("%d keys are left of %d, want the one without a session", left, n)
					}
				})
			}
		}
	}
}

// TestPrefixDelete: no entry deletes more keys by prefix than the budget, whoever
// asks and how often, and what is to be deleted at once is deleted whole or not.
func TestPrefixDelete(t *testing.T) {
	const n, budget = 25_000, 10_000
	r := newRig(core.Config{})
	a := r.open(1, time.Hour)
	r.put(a, keyNames(n), core.SessionID{})
	at := r.m.Revision()
	all := core.KeyOp{Kind: core.KeyDelete, Key: "p/", Prefix: true}
	if res := r.do(a, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k"}, all}}); res.Code != core.CodeExhausted ||
		r.m.Revision() != at || r.count("") != n {
		t.Fatalf("at once: code %d, %d keys are left: %s", res.Code, r.count(""), res.Text)
	}
	page := all
	page.Limit = 1_000
	for left := uint64(n); left > 0; {
		results := r.batch(a, 15, core.Command{Op: core.OpTxn, Then: []core.KeyOp{page}})
		if got, want := len(r.out.Events), min(budget, left); uint64(got) != want {
			t.Fatalf("an entry deletes %d keys of %d, want %d", got, left, want)
		}
		left -= uint64(len(r.out.Events))
		if last := results[len(results)-1].Keys[0]; last.More != (left > 0) || r.count("") != left {
			t.Fatalf("%d keys are left, want %d; more: %v", r.count(""), left, last.More)
		}
	}
}

// TestPrefixDeletesTogether: transactions that each delete as much as one entry may
// do not add up, and those that delete little are let through in any case.
func TestPrefixDeletesTogether(t *testing.T) {
	r := newRig(core.Config{})
	a := r.open(1, time.Hour)
	r.put(a, keyNames(9_500), core.SessionID{})
	for i := range 9_500 {
		r.put(a, []string{fmt.Sprintf("q/%06d", i)}, core.SessionID{})
	}
	r.put(a, []string{"few/1", "few/2"}, core.SessionID{})
	del := func(prefix string) core.Command {
		return core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyDelete, Key: prefix, Prefix: true}}}
	}
	results := r.batch(a, 1, del("p/"), del("q/"), del("few/"))
	for i, want := range []core.Code{core.CodeOK, core.CodeUnavailable, core.CodeOK} {
		if results[i].Code != want {
			t.Errorf("delete %d: code %d, want %d: %s", i, results[i].Code, want, results[i].Text)
		}
	}
	if r.count("") != 9_500 {
		t.Errorf("%d keys are left", r.count(""))
	}
}

// batch applies the commands, times over, as one entry and returns the results.
func (r *rig) batch(id core.SessionID, times int, commands ...core.Command) []core.Result {
	f := core.Frame{Session: id, Attempt: 1, Mark: r.seqs[id]}
	for range times {
		for _, c := range commands {
			c.Seq = r.seqs[id]
			r.seqs[id]++
			f.Commands = append(f.Commands, c)
		}
	}
	r.apply(core.Entry{Now: r.now, Frames: [][]byte{core.AppendFrame(nil, &f)}})
	return r.out.Replies[0].Results
}

// TestOpensInSteps: what wakes very many waiters, an open latch or a writer that goes,
// wakes them in order, so many with each entry and not one twice; a machine that is
// restored in between goes on in the same way.
func TestOpensInSteps(t *testing.T) {
	const n, budget = 25_000, 10_000
	wants := map[string]core.Want{
		"latch":   {Name: "gate", Kind: core.Latch, Mode: core.Shared, Limit: 1},
		"readers": {Name: "gate", Kind: core.RWMutex, Mode: core.Shared},
	}
	for name, w := range wants {
		t.Run(name, func(t *testing.T) {
			r := newRig(core.Config{Waiters: 2 * n})
			a := r.open(1<<20, time.Hour)
			if w.Kind == core.RWMutex {
				r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "gate", Kind: core.RWMutex}}})
			}
			for i := range n {
				r.do(r.open(1+i, time.Hour), core.Command{Op: core.OpAcquire, Wants: []core.Want{w}})
			}
			if w.Kind == core.Latch {
				r.do(a, core.Command{Op: core.OpCountDown, Name: "gate", A: 1})
			} else {
				r.do(a, core.Command{Op: core.OpRelease, Target: 1})
			}
			next := 1
			for next <= n {
				if got, want := len(r.out.Pushes), min(budget, n-next+1); got != want {
					t.Fatalf("an entry grants to %d, want %d", got, want)
				}
				for _, p := range r.out.Pushes {
					if p.Session != sessionID(next) || p.State != core.ClaimGranted {
						t.Fatalf("%v is told %d, want waiter %d to be granted", p.Session, p.State, next)
					}
					next++
				}
				due, ok := r.m.Due()
				if next <= n && (!ok || due > r.now) {
					t.Fatal("nothing is due, though not all are granted")
				}
				r.m = r.restored(t)
				r.apply(core.Entry{Now: r.now})
			}
		})
	}
}

// TestOpenLatchIsPassed: a waiter that comes to an open latch does not wait behind those
// that are still to be told so.
func TestOpenLatchIsPassed(t *testing.T) {
	const n = 12_000
	r := newRig(core.Config{Waiters: 2 * n})
	gate := core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "gate", Kind: core.Latch, Mode: core.Shared, Limit: 1}}}
	for i := range n {
		r.do(r.open(1+i, time.Hour), gate)
	}
	a := r.open(1<<20, time.Hour)
	try := gate
	try.Flags = core.Try
	results := r.batch(a, 1, core.Command{Op: core.OpCountDown, Name: "gate", A: 1}, try, gate)
	for i, res := range results {
		if res.Code != core.CodeOK {
			t.Errorf("command %d: code %d %s", i, res.Code, res.Text)
		}
	}
	if len(r.out.Pushes) != 10_000 {
		t.Errorf("%d were granted", len(r.out.Pushes))
	}
}

// TestTryWhileManyAreServed: a try is answered at once, with yes or no, even when the
// entry has no steps left to serve its waiters.
func TestTryWhileManyAreServed(t *testing.T) {
	const n = 12_000
	r := newRig(core.Config{Waiters: 2 * n})
	for i := range n {
		r.do(r.open(1+i, time.Hour), core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "gate", Kind: core.Latch, Mode: core.Shared, Limit: 1}}})
	}
	a := r.open(1<<20, time.Hour)
	late := r.open(1<<20+1, time.Hour)
	r.do(late, core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "x", Kind: core.Mutex}}})
	try := func(names ...string) core.Command {
		c := core.Command{Op: core.OpAcquire, Flags: core.Try}
		for _, name := range names {
			c.Wants = append(c.Wants, core.Want{Name: name, Kind: core.Mutex})
		}
		return c
	}
	results := r.batch(a, 1, core.Command{Op: core.OpCountDown, Name: "gate", A: 1}, try("y"), try("u", "v", "w"), try("x"), try("v", "z"))
	for i, want := range []core.Code{core.CodeOK, core.CodeOK, core.CodeOK, core.CodeHeld, core.CodeHeld} {
		if results[i].Code != want {
			t.Errorf("command %d: code %d, want %d: %s", i, results[i].Code, want, results[i].Text)
		}
	}
}

// TestAtOnceOrNotAtAll: what cannot be done in steps and is too much for one entry is
// refused before anything changes.
func TestAtOnceOrNotAtAll(t *testing.T) {
	const n = 10_001
	r := newRig(core.Config{Waiters: 2 * n})
	a := r.open(1<<20, time.Hour)
	meet := core.Want{Name: "meet", Kind: core.Barrier, Mode: core.Shared, Limit: n}
	if res := r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{meet}}); res.Code != core.CodeInvalid {
		t.Errorf("a barrier of %d parties: code %d", n, res.Code)
	}
	all := core.Want{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: 9, Limit: 9}
	r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{all}})
	for i := range n {
		r.do(r.open(1+i, time.Hour), core.Command{Op: core.OpAcquire, Wants: []core.Want{all}})
	}
	at := r.m.Revision()
	if res := r.do(a, core.Command{Op: core.OpResize, Name: "pool", Limit: 5}); res.Code != core.CodeExhausted || r.m.Revision() != at {
		t.Errorf("a resize that %d waiters are too heavy for: code %d %s", n, res.Code, res.Text)
	}
	r.do(sessionID(1), core.Command{Op: core.OpCancel, Target: 1})
	res := r.do(a, core.Command{Op: core.OpResize, Name: "pool", Limit: 5})
	if res.Code != core.CodeOK || len(r.out.Pushes) != n-1 {
		t.Errorf("one less: code %d, %d are denied: %s", res.Code, len(r.out.Pushes), res.Text)
	}
}

// restored is the machine made anew from a snapshot.
func (r *rig) restored(t *testing.T) *core.Machine {
	t.Helper()
	m, err := (&subject{Machine: r.m}).restored(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return m.Machine
}

// TestLateSession: the claims of a late session with very many are offered to others
// within a few entries, all of them and each once, on a restored machine too, until
// it is renewed.
func TestLateSession(t *testing.T) {
	const n, grace = 25_000, 2 * time.Second
	r := newRig(core.Config{})
	late := sessionID(1)
	r.do(late, core.Command{Op: core.OpOpen, TTL: int64(time.Second), Policy: core.OnNextAcquire, Grace: int64(grace)})
	r.seqs[late] = 1
	pool := func(weight int64) []core.Want {
		return []core.Want{{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: weight, Limit: n}}
	}
	for range n {
		r.do(late, core.Command{Op: core.OpAcquire, Wants: pool(1)})
	}
	a := r.open(2, time.Hour)
	try := core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: pool(1)}
	if res := r.do(a, try); res.Code != core.CodeHeld {
		t.Fatalf("before the deadline: code %d", res.Code)
	}
	r.now = int64(time.Second + grace)
	r.apply(core.Entry{Now: r.now})
	entries := 1
	for ; len(r.out.Pushes) > 0 || due(r); entries++ {
		r.m = r.restored(t)
		r.apply(core.Entry{Now: r.now})
	}
	if entries < 3 || entries > 9 {
		t.Errorf("it took %d entries to offer %d claims", entries, n)
	}
	if err := core.Invariants(r.m); err != nil {
		t.Fatal(err)
	}
	seq := r.do(a, try).Seq
	if got := reclaims(r); len(got) != 1 || got[0] != 2 {
		t.Fatalf("a try takes the claims with tokens %v, want the oldest, 2", got)
	}
	r.release(a, seq)
	r.apply(core.Entry{Now: r.now, Renewals: []core.Renewal{{Session: late, TTL: int64(time.Hour)}}})
	if res := r.do(a, core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: pool(2)}); res.Code != core.CodeHeld {
		t.Errorf("after a renewal: code %d", res.Code)
	}
	if err := core.Invariants(r.m); err != nil {
		t.Error(err)
	}
}

// TestRevokedWhileLate: a late session with very many claims that is revoked before it
// has offered all of them offers the rest all the same.
func TestRevokedWhileLate(t *testing.T) {
	const n = 25_000
	r := newRig(core.Config{})
	late, a := sessionID(1), r.open(2, time.Hour)
	r.do(late, core.Command{Op: core.OpOpen, TTL: int64(time.Second), Policy: core.OnNextAcquire})
	r.seqs[late] = 1
	for i := range n {
		r.acquire(late, lockName(i))
	}
	r.acquire(a, lockName(15_000))
	r.now = int64(time.Second)
	for stale := 0; stale < n; { // after the last of these it begins to offer
		r.apply(core.Entry{Now: r.now})
		stale += len(r.out.Events)
	}
	r.do(a, core.Command{Op: core.OpRevoke, Session: late})
	for entries := 0; len(reclaims(r)) == 0; entries++ {
		if err := core.Invariants(r.m); err != nil || entries > 9 || !due(r) {
			t.Fatalf("after %d entries nothing is taken: %v", entries, err)
		}
		r.m = r.restored(t)
		r.apply(core.Entry{Now: r.now})
	}
}

// TestTakesFromVeryMany: a claim for which very many late ones have to go gets its room
// in steps.
func TestTakesFromVeryMany(t *testing.T) {
	const n, budget = 25_000, 10_000
	r := newRig(core.Config{})
	late := sessionID(1)
	r.do(late, core.Command{Op: core.OpOpen, TTL: int64(time.Second), Policy: core.OnNextAcquire})
	r.seqs[late] = 1
	want := []core.Want{{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: n}}
	for range n {
		r.do(late, core.Command{Op: core.OpAcquire, Wants: want})
	}
	r.now = int64(time.Second)
	for r.apply(core.Entry{Now: r.now}); due(r); {
		r.apply(core.Entry{Now: r.now})
	}
	want[0].Weight = n
	a := r.open(2, time.Hour)
	res := r.do(a, core.Command{Op: core.OpAcquire, Wants: want})
	total := 0
	for res.Code == core.CodeQueued {
		got := len(reclaims(r))
		if total += got; got == 0 || got > budget {
			t.Fatalf("an entry takes %d claims, %d of %d so far", got, total, n)
		}
		if len(r.out.Pushes) > got {
			break // the grant
		}
		r.m = r.restored(t)
		r.apply(core.Entry{Now: r.now})
	}
	if total != n {
		t.Errorf("%d claims were taken of %d", total, n)
	}
}

func due(r *rig) bool {
	at, ok := r.m.Due()
	return ok && at <= r.now
}

// reclaims are the tokens of the claims that the last entry took from the late.
func reclaims(r *rig) (tokens []uint64) {
	for _, e := range r.out.Events {
		if e.Verb == core.VerbReclaimed {
			tokens = append(tokens, e.Token)
		}
	}
	return tokens
}

// TestManyHolders: of very many holders each is found by its token, until it is gone.
func TestManyHolders(t *testing.T) {
	const n = 5_000
	r := newRig(core.Config{})
	tokens := make([]uint64, n)
	for i := range tokens {
		tokens[i] = r.do(r.open(1+i, time.Hour), core.Command{Op: core.OpAcquire, Wants: manyPool(n)}).Token
	}
	for i, at := range rand.New(rand.NewPCG(1, 0)).Perm(n) {
		release := core.Command{Op: core.OpRelease, Name: "pool", Token: tokens[at]}
		if res := r.do(sessionID(1+at), release); res.Code != core.CodeOK {
			t.Fatalf("release %d: code %d %s", i, res.Code, res.Text)
		}
		if res := r.do(sessionID(1+at), release); res.Code != core.CodeLost {
			t.Fatalf("once more: code %d", res.Code)
		}
		if i%500 == 0 {
			r.m = r.restored(t)
			if err := core.Invariants(r.m); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestKeptResults: a session that takes no answers is asked to before they fill the
// memory, and can go on as soon as it does; nobody else is concerned.
func TestKeptResults(t *testing.T) {
	r := newRig(core.Config{})
	a, b := r.open(1, time.Hour), r.open(2, time.Hour)
	for i := range 16 {
		r.do(a, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: fmt.Sprint("p/", i), Value: make([]byte, 60_000)}}})
	}
	get := core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Key: "p/", Prefix: true}}}
	r.seqs[b], r.marks[b] = 2, 1
	answered := 0
	for range 100 {
		if res := r.do(b, get); res.Code == core.CodeOK {
			answered++
		} else if res.Code != core.CodeWindow {
			t.Fatalf("code %d %s", res.Code, res.Text)
		}
	}
	if answered < 16 || answered > 18 {
		t.Errorf("%d results of about 1 MB are kept", answered)
	}
	if res := r.do(a, get); res.Code != core.CodeOK {
		t.Errorf("another session: code %d %s", res.Code, res.Text)
	}
	if res := r.do(b, core.Command{Op: core.OpCount, Name: "n", Count: core.CountAdd, A: 1}); res.Code != core.CodeOK {
		t.Errorf("a command with a small result: code %d %s", res.Code, res.Text)
	}
	r.m = r.restored(t)
	if err := core.Invariants(r.m); err != nil {
		t.Fatal(err)
	}
	r.seqs[b], r.marks[b] = 50, 1
	if res := r.do(b, get); res.Code != core.CodeWindow {
		t.Errorf("number 50, refused before: code %d", res.Code)
	}
	r.seqs[b] = 1
	if res := r.do(b, get); res.Code != core.CodeOK {
		t.Errorf("the first that it waits for: code %d %s", res.Code, res.Text)
	}
	r.seqs[b], r.marks[b] = 50, 50 // the first that it still waits for
	if res := r.do(b, get); res.Code != core.CodeOK || len(res.Keys[0].Keys) != 16 {
		t.Errorf("number 50 with the mark raised: code %d %s", res.Code, res.Text)
	}
}
