package core_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

var numbered = regexp.MustCompile(`(kind|mode|policy|state) [0-9]|, not [0-9]+: use another name`)

// Every refusal comes with a code and a text that a person can read, before
// anything changes.
func TestRefusals(t *testing.T) {
	r := newRig(core.Config{Waiters: 2, Names: 6, Keys: 1, Sessions: 4})
	id, other := r.open(1, 300e9), r.open(2, 300e9)
	r.must(t, id, core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "sem", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: 3}}}, core.CodeOK)
	r.must(t, id, core.Command{Op: core.OpCount, Name: "n", Count: core.CountAdd, A: 1}, core.CodeOK)
	r.must(t, id, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k"}}}, core.CodeOK)
	held := r.must(t, id, core.Command{Op: core.OpAcquire, Wants: mutexes("held", "held2")}, core.CodeOK)
	for range 2 {
		r.must(t, other, core.Command{Op: core.OpAcquire, Wants: mutexes("held")}, core.CodeQueued)
	}
	want := func(w core.Want) core.Command { return core.Command{Op: core.OpAcquire, Wants: []core.Want{w}} }
	long := strings.Repeat("x", 513)
	cases := []struct {
		what string
		c    core.Command
		code core.Code
	}{
		{"nothing wanted", core.Command{Op: core.OpAcquire}, core.CodeInvalid},
		{"empty name", want(core.Want{Kind: core.Mutex}), core.CodeInvalid},
		{"long name", want(core.Want{Name: long, Kind: core.Mutex}), core.CodeInvalid},
		{"control character", want(core.Want{Name: "a\nb", Kind: core.Mutex}), core.CodeInvalid},
		{"no UTF-8", want(core.Want{Name: "a\xff", Kind: core.Mutex}), core.CodeInvalid},
		{"name twice", core.Command{Op: core.OpAcquire, Wants: mutexes("a", "b", "a")}, core.CodeInvalid},
		{"too many names", core.Command{Op: core.OpAcquire, Wants: make([]core.Want, 129)}, core.CodeInvalid},
		{"no kind", want(core.Want{Name: "a"}), core.CodeInvalid},
		{"a counter cannot be held", want(core.Want{Name: "a", Kind: core.Counter}), core.CodeInvalid},
		{"mutex shared", want(core.Want{Name: "a", Kind: core.Mutex, Mode: core.Shared}), core.CodeInvalid},
		{"mutex with limit", want(core.Want{Name: "a", Kind: core.Mutex, Limit: 2}), core.CodeInvalid},
		{"mutex with weight", want(core.Want{Name: "a", Kind: core.Mutex, Weight: 2}), core.CodeInvalid},
		{"weight 0", want(core.Want{Name: "sem", Kind: core.Semaphore, Mode: core.Shared}), core.CodeInvalid},
		{"weight above capacity", want(core.Want{Name: "sem", Kind: core.Semaphore, Mode: core.Shared, Weight: 4}), core.CodeInvalid},
		{"another limit", want(core.Want{Name: "sem", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: 4}), core.CodeConflict},
		{"another kind", want(core.Want{Name: "sem", Kind: core.Mutex}), core.CodeConflict},
		{"no such semaphore", want(core.Want{Name: "none", Kind: core.Semaphore, Mode: core.Shared, Weight: 1}), core.CodeNotExist},
		{"latch among others", core.Command{Op: core.OpAcquire, Wants: append(mutexes("a"), core.Want{Name: "l", Kind: core.Latch, Mode: core.Shared, Limit: 1})}, core.CodeInvalid},
		{"negative wait", core.Command{Op: core.OpAcquire, Wants: mutexes("a"), Wait: -1}, core.CodeInvalid},
		{"endless max-hold", core.Command{Op: core.OpAcquire, Wants: mutexes("a"), MaxHold: 1<<63 - 1}, core.CodeInvalid},
		{"too many names in use", core.Command{Op: core.OpAcquire, Wants: mutexes("q1", "q2", "q3")}, core.CodeExhausted},
		{"too many waiters", core.Command{Op: core.OpAcquire, Wants: mutexes("held")}, core.CodeExhausted},
		{"release of nothing", core.Command{Op: core.OpRelease, Target: 999}, core.CodeNotExist},
		{"release by a wrong token", core.Command{Op: core.OpRelease, Name: "held", Token: 1}, core.CodeLost},
		{"upgrade of a mutex", core.Command{Op: core.OpUpgrade, Target: held.Seq}, core.CodeInvalid},
		{"downgrade of several", core.Command{Op: core.OpDowngrade, Target: held.Seq}, core.CodeInvalid},
		{"extend without max-hold", core.Command{Op: core.OpExtend, Target: held.Seq, MaxHold: 1}, core.CodeInvalid},
		{"proclaim on a lock", core.Command{Op: core.OpProclaim, Target: held.Seq}, core.CodeInvalid},
		{"cancel of nothing", core.Command{Op: core.OpCancel}, core.CodeInvalid},
		{"cancel beyond the window", core.Command{Op: core.OpCancel, Target: 1 << 40}, core.CodeWindow},
		{"force by name alone", core.Command{Op: core.OpForce, Name: "held"}, core.CodeInvalid},
		{"revoke of nobody", core.Command{Op: core.OpRevoke, Session: sessionID(99)}, core.CodeNotExist},
		{"resize to nothing", core.Command{Op: core.OpResize, Name: "sem"}, core.CodeInvalid},
		{"resize of a counter", core.Command{Op: core.OpResize, Name: "n", Limit: 2}, core.CodeConflict},
		{"count of a semaphore", core.Command{Op: core.OpCount, Name: "sem", Count: core.CountAdd, A: 1}, core.CodeConflict},
		{"numbers of a semaphore", core.Command{Op: core.OpReserve, Name: "sem", A: 1}, core.CodeConflict},
		{"countdown of a semaphore", core.Command{Op: core.OpCountDown, Name: "sem", A: 1}, core.CodeConflict},
		{"delete as another kind", core.Command{Op: core.OpDelete, Name: "n", Kind: core.Sequence}, core.CodeConflict},
		{"long owner", core.Command{Op: core.OpAcquire, Wants: mutexes("a"), Owner: long}, core.CodeInvalid},
		{"delete of a lock", core.Command{Op: core.OpDelete, Name: "held", Kind: core.Mutex}, core.CodeInvalid},
		{"delete of what is in use", core.Command{Op: core.OpDelete, Name: "sem", Kind: core.Semaphore}, core.CodeConflict},
		{"the other signedness", core.Command{Op: core.OpCount, Name: "n", Unsigned: true}, core.CodeConflict},
		{"end of a sequence", core.Command{Op: core.OpReserve, Name: "s", A: 1 << 63, B: 1 << 63}, core.CodeExhausted},
		{"no such latch", core.Command{Op: core.OpCountDown, Name: "l", A: 1}, core.CodeNotExist},
		{"put of a prefix", core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Prefix: true}}}, core.CodeInvalid},
		{"session of nobody", core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Session: sessionID(99)}}}, core.CodeNotExist},
		{"too many keys", core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k2"}}}, core.CodeExhausted},
		{"too many operations", core.Command{Op: core.OpTxn, If: make([]core.Compare, 100), Then: make([]core.KeyOp, 29)}, core.CodeInvalid},
	}
	for _, c := range cases {
		rev, before := r.m.Revision(), inUse(r.m)
		got := r.do(id, c.c)
		if got.Code != c.code || got.Text == "" {
			t.Errorf("%s: code %d, %q; want %d", c.what, got.Code, got.Text, c.code)
		}
		if numbered.MatchString(got.Text) {
			t.Errorf("%s: %q names a kind or mode by its number", c.what, got.Text)
		}
		if r.m.Revision() != rev || inUse(r.m) != before || len(r.out.Events) > 0 {
			t.Errorf("%s: something has changed", c.what)
		}
	}
}

func inUse(m *core.Machine) int {
	list, _ := m.List("", "", "", 1000)
	return len(list)
}

func TestRefusedOpen(t *testing.T) {
	r := newRig(core.Config{Sessions: 1})
	first := core.Command{Op: core.OpOpen, TTL: 1e9, Identity: "alice"}
	r.must(t, sessionID(1), first, core.CodeOK)
	for what, c := range map[string]struct {
		id   core.SessionID
		c    core.Command
		code core.Code
	}{
		"no id":             {core.SessionID{}, first, core.CodeInvalid},
		"no TTL":            {sessionID(2), core.Command{Op: core.OpOpen}, core.CodeInvalid},
		"two days":          {sessionID(2), core.Command{Op: core.OpOpen, TTL: 48 * 3600e9}, core.CodeInvalid},
		"negative grace":    {sessionID(2), core.Command{Op: core.OpOpen, TTL: 1, Grace: -1}, core.CodeInvalid},
		"long metadata":     {sessionID(2), core.Command{Op: core.OpOpen, TTL: 1, Meta: strings.Repeat("m", 4097)}, core.CodeInvalid},
		"another identity":  {sessionID(1), core.Command{Op: core.OpOpen, TTL: 1, Identity: "bob"}, core.CodePermission},
		"there already":     {sessionID(1), core.Command{Op: core.OpOpen, Flags: core.Fresh, TTL: 1, Identity: "alice"}, core.CodeExists},
		"another namespace": {sessionID(1), core.Command{Op: core.OpOpen, TTL: 1, Identity: "alice", Namespace: "x"}, core.CodeConflict},
		"one too many":      {sessionID(2), core.Command{Op: core.OpOpen, TTL: 1}, core.CodeExhausted},
	} {
		if got := r.do(c.id, c.c); got.Code != c.code || got.Text == "" {
			t.Errorf("%s: code %d, %q; want %d", what, got.Code, got.Text, c.code)
		}
	}
	if s, _ := r.m.Session(sessionID(1)); s.Deadline != 1e9 || s.Identity != "alice" {
		t.Errorf("the session is now %+v", s)
	}
}

// Reads change nothing and refuse what would.
func TestRead(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, 300e9)
	r.must(t, id, core.Command{Op: core.OpReserve, Name: "ids", A: 10}, core.CodeOK)
	r.must(t, id, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Value: []byte("v")}}}, core.CodeOK)
	hash := r.m.Hash()
	for what, c := range map[string]struct {
		ns   string
		c    core.Command
		code core.Code
		n    uint64
	}{
		"sequence":       {"", core.Command{Op: core.OpReserve, Name: "ids"}, core.CodeOK, 11},
		"elsewhere":      {"else", core.Command{Op: core.OpReserve, Name: "ids"}, core.CodeOK, 1},
		"absent counter": {"", core.Command{Op: core.OpCount, Name: "c"}, core.CodeOK, 0},
		"absent latch":   {"", core.Command{Op: core.OpCountDown, Name: "l"}, core.CodeNotExist, 0},
		"an add":         {"", core.Command{Op: core.OpCount, Name: "c", Count: core.CountAdd}, core.CodeInvalid, 0},
		"a put":          {"", core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k"}}}, core.CodeInvalid, 0},
		"an acquire":     {"", core.Command{Op: core.OpAcquire}, core.CodeInvalid, 0},
	} {
		if got := r.m.Read(c.ns, &c.c); got.Code != c.code || got.Number != c.n || got.Revision != r.m.Revision() {
			t.Errorf("%s: %+v", what, got)
		}
	}
	got := r.m.Read("", &core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Key: "", Prefix: true}}})
	if !got.OK || len(got.Keys) != 1 || string(got.Keys[0].Keys[0].Value) != "v" {
		t.Errorf("get: %+v", got)
	}
	if r.m.Hash() != hash {
		t.Error("a read has changed the machine")
	}
}
