package core

import (
	"fmt"
	"testing"
)

// do applies one command of a session as an entry of its own.
func do(t *testing.T, m *Machine, id SessionID, mark uint64, c Command) {
	t.Helper()
	f := AppendFrame(nil, &Frame{Session: id, Attempt: 1, Mark: mark, Commands: []Command{c}})
	var out Output
	if err := m.Apply(AppendEntry(nil, &Entry{Frames: [][]byte{f}}), &out); err != nil {
		t.Fatal(err)
	}
	if r := &out.Replies[0].Results[0]; r.Code != CodeOK {
		t.Fatalf("op %d: %d %s", c.Op, r.Code, r.Text)
	}
}

func renew(t *testing.T, m *Machine, id SessionID) {
	t.Helper()
	if err := m.Apply(AppendEntry(nil, &Entry{Renewals: []Renewal{{Session: id, Attempt: 1}}}), nil); err != nil {
		t.Fatal(err)
	}
}

// A session has data as long as there is something in it, and one that did
// something once costs no more than one that never did.
func TestStock(t *testing.T) {
	m, id := New(Config{}), SessionID{1}
	do(t, m, id, 1, Command{Op: OpOpen, TTL: 1e9})
	want := func(when string, stock bool) {
		t.Helper()
		renew(t, m, id)
		if s := m.session(id); stock != (s.has != nil) {
			t.Errorf("%s: stock %v, want %v", when, s.has != nil, stock)
		}
	}
	want("opened", false)
	do(t, m, id, 1, Command{Op: OpAcquire, Seq: 1, Wants: []Want{{Name: "a", Kind: Mutex}}})
	want("holding", true)
	do(t, m, id, 2, Command{Op: OpRelease, Seq: 2, Target: 1})
	want("with a result that is not acknowledged", true)
	put := KeyOp{Kind: KeyPut, Key: "k", Session: id}
	do(t, m, id, 3, Command{Op: OpTxn, Seq: 3, Then: []KeyOp{put}})
	do(t, m, id, 4, Command{Op: OpCount, Seq: 4, Name: "n", Count: CountAdd, A: 1})
	m.acknowledge(m.session(id), 5)
	want("with a key", true)
	do(t, m, id, 5, Command{Op: OpTxn, Seq: 5, Then: []KeyOp{{Kind: KeyDelete, Key: "k"}}})
	m.acknowledge(m.session(id), 6)
	want("idle again", false)
	if len(m.spare) != 1 {
		t.Errorf("%d stocks are kept for the next, want 1", len(m.spare))
	}
}

// Sessions share what they were opened with, and only with those that were
// opened with the same, however many there are.
func TestTerms(t *testing.T) {
	const owners, each = 1000, 3
	m := New(Config{})
	for i := range owners * each {
		do(t, m, SessionID{byte(i), byte(i >> 8), 1}, 1, Command{Op: OpOpen, TTL: 1e9, Owner: fmt.Sprint(i / each), Meta: "m"})
	}
	for i := range owners * each {
		s := m.session(SessionID{byte(i), byte(i >> 8), 1})
		if s.owner != fmt.Sprint(i/each) || s.meta != "m" || s.ttl != 1e9 {
			t.Fatalf("session %d has owner %q, meta %q, TTL %d", i, s.owner, s.meta, s.ttl)
		}
		if first := m.session(SessionID{byte(i - i%each), byte((i - i%each) >> 8), 1}); first.terms != s.terms {
			t.Fatalf("session %d does not share terms with %d, which were opened one after the other", i, i-i%each)
		}
	}
}
