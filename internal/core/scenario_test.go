package core_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Each test quotes the scenario that it plays; the stories in testdata play
// them with all that is put out.

func mutexes(names ...string) (wants []core.Want) {
	for _, n := range names {
		wants = append(wants, core.Want{Name: n, Kind: core.Mutex})
	}
	return wants
}

func reads(name string) []core.Want {
	return []core.Want{{Name: name, Kind: core.RWMutex, Mode: core.Shared}}
}

// must applies a command that has to end with that code.
func (r *rig) must(t *testing.T, id core.SessionID, c core.Command, code core.Code) core.Result {
	t.Helper()
	res := *r.do(id, c)
	if res.Code != code {
		t.Fatalf("op %d: code %d (%s), want %d", c.Op, res.Code, res.Text, code)
	}
	return res
}

// again sends a number once more, as a late frame of an older stream.
func (r *rig) again(id core.SessionID, seq uint64, c core.Command) core.Result {
	c.Seq = seq
	f := core.AppendFrame(nil, &core.Frame{Session: id, Mark: 1, Commands: []core.Command{c}})
	r.apply(core.Entry{Now: r.now, Frames: [][]byte{f}})
	return r.out.Replies[0].Results[0]
}

// "One session with 1,000,000 holds ends: seconds in one apply", and "Dead
// session with 1,000,000 claims on an idle cluster: 10,000 freed, then nothing."
func TestManyHoldsEndInSteps(t *testing.T) {
	const holds, budget = 1000, 64
	r := newRig(core.Config{Budget: budget})
	id, next := r.open(1, 30e9), r.open(2, 300e9)
	for i := range holds {
		r.must(t, id, core.Command{Op: core.OpAcquire, Wants: mutexes(fmt.Sprintf("lock%04d", i))}, core.CodeOK)
	}
	r.must(t, next, core.Command{Op: core.OpAcquire, Wants: mutexes("lock0999")}, core.CodeQueued)
	r.now = 30e9
	entries, granted := 0, false
	for {
		due, ok := r.m.Due()
		if !ok || due > r.now {
			break
		}
		r.apply(core.Entry{Now: r.now})
		entries++
		if _, there := r.m.Session(id); there {
			t.Fatal("the session is not dead at once")
		}
		if n := countVerb(r.out.Events, core.VerbExpired); n > budget {
			t.Fatalf("one entry ends %d", n)
		}
		granted = granted || len(r.out.Pushes) == 1 && r.out.Pushes[0].State == core.ClaimGranted
	}
	list, _ := r.m.List("", "", "", 10)
	if entries < holds/budget || !granted || len(list) != 1 || list[0].Holders[0].Session != next {
		t.Errorf("after %d entries, granted %v, %d names are left", entries, granted, len(list))
	}
	if res := r.do(id, core.Command{Op: core.OpOpen, TTL: 1e9}); res.Code != core.CodeNoSession {
		t.Errorf("the ended id can be opened again: %+v", res)
	}
}

func countVerb(events []core.Event, v core.Verb) (n int) {
	for _, e := range events {
		if e.Verb == v {
			n++
		}
	}
	return n
}

// "S2 holds X, waits A; M wants {X,B}; S1 holds A, wants free B behind M: stuck,
// although all respect name order." Here with names in that order: 1X, 2A, 3B.
func TestReserveInNameOrder(t *testing.T) {
	r := newRig(core.Config{})
	s1, s2, m := r.open(1, 300e9), r.open(2, 300e9), r.open(3, 300e9)
	x := r.must(t, s2, core.Command{Op: core.OpAcquire, Wants: mutexes("1X")}, core.CodeOK)
	a := r.must(t, s1, core.Command{Op: core.OpAcquire, Wants: mutexes("2A")}, core.CodeOK)
	r.must(t, s2, core.Command{Op: core.OpAcquire, Wants: mutexes("2A")}, core.CodeQueued)
	r.must(t, m, core.Command{Op: core.OpAcquire, Wants: mutexes("3B", "1X")}, core.CodeQueued)
	r.must(t, s1, core.Command{Op: core.OpAcquire, Wants: mutexes("3B")}, core.CodeOK)
	r.must(t, s1, core.Command{Op: core.OpRelease, Target: a.Seq}, core.CodeOK)
	r.must(t, s2, core.Command{Op: core.OpRelease, Target: x.Seq}, core.CodeOK)
	if i, _ := r.m.Inspect("", "1X"); len(i.Holders) != 0 || len(i.Waiters) != 1 || !i.Waiters[0].Reserved {
		t.Errorf("1X is not reserved for M: %+v", i)
	}
	r.must(t, s1, core.Command{Op: core.OpEnd}, core.CodeOK)
	for _, name := range []string{"1X", "3B"} {
		if i, _ := r.m.Inspect("", name); len(i.Holders) != 1 || i.Holders[0].Session != m {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// "a reservation is no hold and yields to an upgrade": M has a and b reserved
// and waits for c. When a reader of a upgrades, M is back at its place for a,
// and b is free for others.
func TestReservationYields(t *testing.T) {
	r := newRig(core.Config{})
	s, m, o := r.open(1, 300e9), r.open(2, 300e9), r.open(3, 300e9)
	c := r.must(t, o, core.Command{Op: core.OpAcquire, Wants: mutexes("c")}, core.CodeOK)
	base := r.must(t, s, core.Command{Op: core.OpAcquire, Wants: reads("a")}, core.CodeOK)
	r.must(t, m, core.Command{Op: core.OpAcquire, Wants: append(mutexes("c", "b"), reads("a")...)}, core.CodeQueued)
	r.must(t, o, core.Command{Op: core.OpAcquire, Wants: mutexes("b"), Flags: core.Try}, core.CodeHeld)
	up := r.must(t, s, core.Command{Op: core.OpUpgrade, Target: base.Seq}, core.CodeOK)
	b := r.must(t, o, core.Command{Op: core.OpAcquire, Wants: mutexes("b"), Flags: core.Try}, core.CodeOK)
	r.must(t, o, core.Command{Op: core.OpRelease, Target: c.Seq}, core.CodeOK)
	r.must(t, o, core.Command{Op: core.OpRelease, Target: b.Seq}, core.CodeOK)
	r.must(t, s, core.Command{Op: core.OpRelease, Target: up.Seq}, core.CodeOK)
	if p := r.out.Pushes; len(p) != 1 || p[0].Session != m || p[0].State != core.ClaimGranted {
		t.Errorf("M is not granted: %+v", p)
	}
}

// "Acquire(5) known from the table, Release(6) applied, the old stream's
// Acquire(5) arrives: granted to nobody. [gone record]"
func TestLateAcquireOfReleased(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, 30e9)
	acquire := core.Command{Op: core.OpAcquire, Wants: mutexes("jobs")}
	got := r.must(t, id, acquire, core.CodeOK)
	release := core.AppendFrame(nil, &core.Frame{Session: id, Mark: 1, Commands: []core.Command{{Op: core.OpRelease, Seq: 2, Target: 1}}})
	r.apply(core.Entry{Frames: [][]byte{release}})
	if late := r.again(id, got.Seq, acquire); late.Code != core.CodeLost {
		t.Errorf("the late Acquire is answered %+v", late)
	}
	if _, held := r.m.Inspect("", "jobs"); held {
		t.Error("the lock is held by nobody")
	}
	if rows, _ := r.m.Table(id); len(rows) != 1 || rows[0].State != core.ClaimGone {
		t.Errorf("table %+v", rows)
	}
	r.apply(core.Entry{Frames: [][]byte{core.AppendFrame(nil, &core.Frame{Session: id, Mark: 3})}})
	if late := r.again(id, got.Seq, acquire); late.Code != core.CodeForgotten {
		t.Errorf("below the mark it is answered %+v", late)
	}
}

// "Cancel of an upgrade that was just granted frees it while the caller believes
// in its shared hold."
func TestCancelOfGrantedUpgrade(t *testing.T) {
	r := newRig(core.Config{})
	a, b := r.open(1, 300e9), r.open(2, 300e9)
	base := r.must(t, a, core.Command{Op: core.OpAcquire, Wants: reads("config"), MaxHold: 60e9}, core.CodeOK)
	other := r.must(t, b, core.Command{Op: core.OpAcquire, Wants: reads("config")}, core.CodeOK)
	up := r.must(t, a, core.Command{Op: core.OpUpgrade, Target: base.Seq}, core.CodeQueued)
	r.must(t, b, core.Command{Op: core.OpRelease, Target: other.Seq}, core.CodeOK)
	if p := r.out.Pushes; len(p) != 1 || p[0].Seq != up.Seq || p[0].Token <= other.Token || p[0].Deadline != base.Deadline {
		t.Fatalf("the upgrade is not pushed with the deadline of what it was: %+v", p)
	}
	r.must(t, b, core.Command{Op: core.OpAcquire, Wants: reads("config"), Flags: core.Try}, core.CodeHeld)
	r.must(t, a, core.Command{Op: core.OpCancel, Target: up.Seq}, core.CodeOK)
	i, _ := r.m.Inspect("", "config")
	if len(i.Holders) != 1 || i.Holders[0].Seq != base.Seq || i.Holders[0].Token != base.Token || i.Holders[0].Mode != core.Shared {
		t.Errorf("the shared hold is not what it was: %+v", i.Holders)
	}
	r.must(t, b, core.Command{Op: core.OpAcquire, Wants: reads("config"), Flags: core.Try}, core.CodeOK)
	r.must(t, a, core.Command{Op: core.OpRelease, Target: base.Seq}, core.CodeOK)
}

// A start that forgets ends all sessions and gives no token twice.
func TestForget(t *testing.T) {
	r := newRig(core.Config{Revision: 5000})
	id := r.open(1, 30e9)
	old := r.must(t, id, core.Command{Op: core.OpAcquire, Wants: mutexes("jobs")}, core.CodeOK)
	r.must(t, id, core.Command{Op: core.OpCount, Name: "orders", Count: core.CountAdd, A: 3}, core.CodeOK)
	const seconds = 1_800_000_000
	r.apply(core.Entry{Kind: core.EntryForget, Seconds: seconds})
	if _, there := r.m.Session(id); there || r.m.Revision() != seconds<<20 || r.m.Revision() >= 1<<53 {
		t.Errorf("session there: %v, revision %d", there, r.m.Revision())
	}
	r.apply(core.Entry{Kind: core.EntryForget, Seconds: 1})
	if want := uint64(seconds<<20 + 1<<40); r.m.Revision() != want {
		t.Errorf("revision %d, want %d", r.m.Revision(), want)
	}
	if got := r.do(id, core.Command{Op: core.OpOpen, TTL: 30e9}); got.Code != core.CodeNoSession {
		t.Errorf("a forgotten session was opened again with code %d: what it sends once more would be done twice", got.Code)
	}
	next := r.open(2, 30e9)
	if got := r.must(t, next, core.Command{Op: core.OpAcquire, Wants: mutexes("jobs")}, core.CodeOK); got.Token <= old.Token {
		t.Errorf("token %d after %d", got.Token, old.Token)
	}
	if got := r.m.Read("", &core.Command{Op: core.OpCount, Name: "orders"}); got.Number != 3 {
		t.Errorf("the counter has %d", got.Number)
	}
}

// Frozen, nothing is granted: a claim that may wait is queued, and a try fails. Then what could
// not be granted is, in order of name.
func TestFreeze(t *testing.T) {
	r := newRig(core.Config{})
	a, b := r.open(1, 300e9), r.open(2, 300e9)
	for _, n := range []string{"x", "y"} {
		r.must(t, a, core.Command{Op: core.OpAcquire, Wants: mutexes(n)}, core.CodeOK)
	}
	for _, n := range []string{"y", "x"} {
		r.must(t, b, core.Command{Op: core.OpAcquire, Wants: mutexes(n)}, core.CodeQueued)
	}
	r.apply(core.Entry{Kind: core.EntryFreeze})
	r.must(t, a, core.Command{Op: core.OpEnd}, core.CodeOK)
	r.must(t, b, core.Command{Op: core.OpAcquire, Wants: mutexes("z"), Flags: core.Try}, core.CodeUnavailable)
	r.must(t, b, core.Command{Op: core.OpAcquire, Wants: mutexes("a")}, core.CodeQueued)
	r.must(t, b, core.Command{Op: core.OpAcquire, Wants: mutexes("b"), Wait: 1e9}, core.CodeQueued)
	if len(r.out.Pushes) != 0 {
		t.Fatal("granted although frozen")
	}
	chunks, _ := chunksOf(r.m, 100)
	m, err := restoreAll(chunks)
	if err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string]*core.Machine{"as it is": r.m, "restored": m} {
		r.m = m
		r.apply(core.Entry{Kind: core.EntryUnfreeze})
		if p := r.out.Pushes; len(p) != 4 || p[0].Seq != 4 || p[1].Seq != 5 || p[2].Seq != 2 || p[3].Seq != 1 {
			t.Errorf("%s: pushes %+v", what, p)
		}
	}
}

// A queue is no longer while frozen than it is otherwise, a wait ends at its own time,
// and an entry of version 3 refuses everybody, as it did when it was written.
func TestFreeze_Bounds(t *testing.T) {
	r := newRig(core.Config{Waiters: 2})
	a := r.open(1, 300e9)
	r.apply(core.Entry{Kind: core.EntryFreeze})
	lock := core.Command{Op: core.OpAcquire, Wants: mutexes("x"), Wait: 1e9}
	r.must(t, a, lock, core.CodeQueued)
	r.must(t, a, lock, core.CodeQueued)
	r.must(t, a, lock, core.CodeExhausted)
	r.apply(core.Entry{Now: r.m.Now() + 2e9})
	if p := r.out.Pushes; len(p) != 2 || p[0].Code != core.CodeTimeout {
		t.Errorf("after their waits: %+v", p)
	}

	m := core.New(core.Config{})
	for _, e := range []core.Entry{{Version: 3, Kind: core.EntryFreeze}, {Version: 3, Frames: [][]byte{core.AppendFrame(nil, &core.Frame{
		Session: sessionID(1), Commands: []core.Command{{Op: core.OpOpen, TTL: 1e9}, {Op: core.OpAcquire, Seq: 1, Wants: mutexes("x")}}})}}} {
		if err := m.Apply(core.AppendEntry(nil, &e), &r.out); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.out.Replies[len(r.out.Replies)-1].Results[1].Code; got != core.CodeUnavailable {
		t.Errorf("in an entry of version 3 the code is %d", got)
	}
}
