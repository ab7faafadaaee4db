package replica_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
)

// acquire asks for a lock, in a queue if it is held.
func acquire(seq uint64, name string) core.Command {
	return core.Command{Op: core.OpAcquire, Seq: seq, Wants: []core.Want{{Name: name, Kind: core.Mutex}}}
}

// receive gives messages to the leader, and returns what it sends.
func (x *trio) receive(stream replica.Caller, messages ...[]byte) []session.Message {
	x.t.Helper()
	for _, m := range messages {
		if err := x.nodes[1].Receive(x.now, stream, m); err != nil {
			x.t.Fatal(err)
		}
	}
	return x.settle()
}

// next takes the pages that streams have waiting.
func (x *trio) next() []session.Message {
	x.t.Helper()
	if len(x.more) != 1 {
		x.t.Fatalf("streams %v have more, want one", x.more)
	}
	stream := x.more[0]
	x.more = nil
	x.nodes[1].More(x.now, stream)
	return x.settle()
}

// A claim table goes to the client a page at a time. What happens meanwhile, and
// what the client asks for, follows it.
func TestTableInPages(t *testing.T) {
	x := newTrioOf(t, replica.Config{TableRows: 10})
	id, other := core.SessionID{7}, core.SessionID{8}
	x.receive(4, attach(other, 1), frame(other, 1, open(), acquire(1, "first")))
	cmds := []core.Command{open(), acquire(1, "first")}
	for seq := uint64(2); seq <= 25; seq++ {
		cmds = append(cmds, acquire(seq, fmt.Sprint("x", seq)))
	}
	x.receive(5, attach(id, 1), frame(id, 1, cmds...))
	got := x.receive(6, attach(id, 2))
	renewal := session.AppendMessage(nil, &session.Message{Kind: session.KindRenewal, Session: id, Stream: 2, Attempt: 3})
	release := core.Command{Op: core.OpRelease, Seq: 2, Target: 1}
	between := x.receive(6, renewal, frame(id, 2, core.Command{Op: core.OpCount, Seq: 26, Name: "n", Count: core.CountAdd, A: 1}))
	between = append(between, x.receive(4, frame(other, 1, release))...)
	if slices.ContainsFunc(between, func(m session.Message) bool { return m.Session == id }) || len(x.more) != 1 {
		t.Errorf("before the first page is taken the client gets %v", kinds(between))
	}
	second := x.next()
	for _, page := range [][]session.Message{got, second} {
		if len(page) != 1 || page[0].Kind != session.KindTable || len(page[0].Rows) != 10 || page[0].Last {
			t.Fatalf("a page is %+v", page)
		}
	}
	if got[0].Rows[0].State != core.ClaimWaiting {
		t.Errorf("the first row is %+v", got[0].Rows[0])
	}
	got = x.next()
	want := []session.MessageKind{session.KindTable, session.KindRenewed, session.KindPush, session.KindReply}
	if !slices.Equal(kinds(got), want) {
		t.Fatalf("the client gets %v, want %v", kinds(got), want)
	}
	if len(got[0].Rows) != 5 || !got[0].Last || got[0].Piece != 2 {
		t.Errorf("the last page is %+v", got[0])
	}
	if row := got[2].Rows[0]; row.Seq != 1 || row.State != core.ClaimGranted || got[2].Pushes != 1 {
		t.Errorf("the push is %+v", got[2])
	}
	if len(x.more) > 0 {
		t.Errorf("%v have more", x.more)
	}
}

// Many sessions that attach at once over one stream share its pages.
func TestTablesOfManySessionsInPages(t *testing.T) {
	x := newTrioOf(t, replica.Config{TableRows: 10})
	var attaches [][]byte
	for i := range byte(35) {
		attaches = append(attaches, attach(core.SessionID{i, 1}, 1))
	}
	got := len(x.receive(5, attaches...))
	if got != 11 { // the first is confirmed alone
		t.Errorf("at first the client gets %d tables", got)
	}
	for len(x.more) > 0 {
		page := len(x.next())
		if page > 10 {
			t.Errorf("a page of %d tables", page)
		}
		got += page
	}
	if got != 35 {
		t.Errorf("%d tables, want 35", got)
	}
}

// A session that has ended is told so, and is not attached any more.
func TestEndedSessionsAreNotAttached(t *testing.T) {
	x := newTrio(t)
	const many = 1000
	id := func(i int) core.SessionID { return core.SessionID{byte(i), byte(i >> 8), 1} }
	for i := range many {
		x.receive(5, attach(id(i), 1), frame(id(i), 1, open()))
	}
	attached := func() uint64 { return x.nodes[1].Status().Streams }
	if attached() != many {
		t.Fatalf("%d sessions are attached", attached())
	}
	for i := range many / 2 {
		x.receive(5, frame(id(i), 1, core.Command{Op: core.OpEnd}))
	}
	if attached() != many/2 {
		t.Errorf("%d sessions are attached, and %d live", attached(), many/2)
	}
	told := 0
	for range 600 { // until the rest have expired
		x.now += tick
		x.nodes[1].Tick(x.now)
		for _, m := range x.settle() {
			if m.Kind == session.KindRefused && m.Refusal == session.RefusedNoSession {
				told++
			}
		}
	}
	if attached() != 0 || told != many/2 {
		t.Errorf("%d sessions are attached, none live, and %d were told", attached(), told)
	}
}

// The end of a stream costs what its own sessions cost, not those of others: a
// thousand empty ones end in less time than one with 100,000 sessions.
func TestStreamsEndAlone(t *testing.T) {
	x := newTrio(t)
	lead := x.nodes[1]
	for i := range 100_000 {
		lead.Attach(x.now, 5, core.SessionID{byte(i), byte(i >> 8), byte(i >> 16), 1}, 1, 1)
	}
	took := func(first, last replica.Caller) time.Duration {
		began := time.Now()
		for c := first; c <= last; c++ {
			lead.StreamClosed(c)
		}
		return time.Since(began)
	}
	few := time.Hour
	for round := range uint64(5) { // a busy machine interrupts some of them
		for c := replica.Caller(10); c < 1010; c++ {
			lead.Attach(x.now, c, core.SessionID{byte(c), byte(c >> 8), 2}, 1+round, 1)
		}
		few = min(few, took(10, 1009))
	}
	many := took(5, 5)
	if lead.Status().Streams != 0 {
		t.Errorf("%d sessions are attached to streams that have ended", lead.Status().Streams)
	}
	if few > many {
		t.Errorf("1,000 streams with a session each end in %s, one with 100,000 in %s", few, many)
	}
}

// An attach of this process has one claim told, whatever else its session has, and keeps the
// binding that is there: pushes go on.
func TestOwnAttachTellsOneClaim(t *testing.T) {
	x := newTrioOf(t, replica.Config{TableRows: 10})
	id, other := core.SessionID{7}, core.SessionID{8}
	x.receive(4, attach(other, 1), frame(other, 1, open(), acquire(1, "first"), acquire(2, "second")))
	cmds := []core.Command{open(), acquire(1, "first"), acquire(2, "second")}
	for seq := uint64(3); seq <= 50; seq++ {
		cmds = append(cmds, acquire(seq, fmt.Sprint("x", seq)))
	}
	x.nodes[1].Submit(x.now, 9, core.AppendFrame(nil, &core.Frame{Session: id, Mark: 1, Commands: cmds}))
	x.settle()
	for seq, want := range map[uint64]core.ClaimState{1: core.ClaimWaiting, 2: core.ClaimWaiting, 50: core.ClaimGranted, 51: core.ClaimGone} {
		x.nodes[1].Attach(x.now, 6, id, 10+seq, seq)
		got := x.settle()
		if len(got) != 1 || len(got[0].Rows) != 1 || got[0].Rows[0].Seq != seq || got[0].Rows[0].State != want {
			t.Errorf("claim %d: %+v, want one row in state %d", seq, got, want)
		}
	}
	if n := x.nodes[1].Status().Streams; n != 2 {
		t.Errorf("%d sessions are attached", n)
	}
	for seq := uint64(1); seq <= 2; seq++ {
		granted := 0
		for _, m := range x.receive(4, frame(other, 1, core.Command{Op: core.OpRelease, Seq: 2 + seq, Target: seq})) {
			if m.Session == id && m.Kind == session.KindPush && m.Rows[0].Seq == seq && m.Rows[0].State == core.ClaimGranted {
				granted++
			}
		}
		if granted != 1 {
			t.Errorf("the grant of claim %d is told %d times", seq, granted)
		}
	}
	x.nodes[1].Attach(x.now, 6, core.SessionID{99}, 20, 1)
	if got := x.settle(); len(got) != 1 || got[0].Rows[0].Code != core.CodeNoSession {
		t.Errorf("of a session that is not there is told %+v", got)
	}
}
