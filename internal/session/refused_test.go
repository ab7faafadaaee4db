package session_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

func refuse(r *rig, attempt uint64, why session.Refusal) {
	r.t.Helper()
	r.receive(session.Message{Kind: session.KindRefused, Attempt: attempt, Refusal: why,
		Code: core.CodePermission, Text: "why", RetryAfter: sec(1)})
}

func TestBusyServerIsAskedAgainLater(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.add("n")
	r.flush()
	refuse(r, r.last().Attempt, session.RefusedBusy)
	if sends := r.flush(); len(sends) != 0 || r.s.Wake() < sec(1) {
		t.Fatalf("sent %v at once; wake %d", sends, r.s.Wake())
	}
	r.now = r.s.Wake()
	if r.flush(); r.commands()[0].Seq != c.Seq() || len(r.done) != 0 {
		t.Fatal("not asked again")
	}
}

func TestServerWithoutLeaderIsLeft(t *testing.T) {
	r := opened(t, session.Config{})
	r.add("n")
	r.flush()
	refuse(r, r.last().Attempt, session.RefusedNoLeader)
	if r.redials != 1 {
		t.Fatal("another stream was not asked for")
	}
}

func TestRefusedKeepaliveIsAMiss(t *testing.T) {
	r := opened(t, session.Config{})
	k := renewal(t, r.at(11))
	before := r.deadline()
	refuse(r, k.Attempt, session.RefusedBusy)
	if r.deadline() != before {
		t.Fatal("a refusal anchors nothing")
	}
	r.now = r.s.Wake()
	if r.now > sec(14) {
		t.Fatalf("next try at %.1f s", float64(r.now)/1e9)
	}
	renewal(t, r)
}

func TestUnknownSessionIsDead(t *testing.T) {
	r := opened(t, session.Config{})
	r.hold("a", 0, sec(30))
	refuse(r, 0, session.RefusedNoSession)
	if len(r.dead) != 1 || r.dead[0] != session.Ended {
		t.Fatalf("dead %v", r.dead)
	}
	if r.flush(); r.commands()[0].Op != core.OpEnd {
		t.Fatal("should the server be wrong, a revoke has to free what is held")
	}
}

func TestTableOfAnUnknownSessionEndsIt(t *testing.T) {
	r := opened(t, session.Config{})
	r.reconnect()
	r.table(false)
	if len(r.dead) != 1 || r.dead[0] != session.Ended {
		t.Fatalf("dead %v", r.dead)
	}
}

// "A refusal tells nothing about earlier attempts."
func TestDeniedCommands(t *testing.T) {
	r := opened(t, session.Config{})
	again := r.add("n")
	r.flush()
	r.reconnect()
	r.table(true)
	once := r.add("n")
	r.flush()
	refuse(r, r.last().Attempt, session.RefusedDenied)
	if once.Outcome != session.NotDone || once.Result.Code != core.CodePermission || len(r.done) != 1 {
		t.Fatalf("outcome %v, code %v of a command refused at its only attempt", once.Outcome, once.Result.Code)
	}
	refuse(r, r.last().Attempt-1, session.RefusedDenied)
	if len(r.done) != 2 || again.Outcome != session.Unknown {
		t.Fatalf("outcome %v of a command that an earlier attempt may have done", again.Outcome)
	}
	if r.flush(); r.commands()[0].Op != core.OpCancel || r.commands()[0].Target != again.Seq() {
		t.Fatal("its number is not settled")
	}
}

func TestDeniedAttachEndsTheSession(t *testing.T) {
	r := opened(t, session.Config{})
	r.reconnect()
	refuse(r, 0, session.RefusedDenied)
	if len(r.dead) != 1 || r.dead[0] != session.Refused {
		t.Fatalf("dead %v", r.dead)
	}
}

// Each of many denied calls gets its one answer and its one cancel.
func TestManyDeniedCommands(t *testing.T) {
	r := opened(t, session.Config{})
	for range 100 {
		r.add("n")
	}
	r.flush()
	r.reconnect()
	r.table(true)
	refuse(r, r.last().Attempt, session.RefusedDenied)
	for _, c := range r.done {
		if c.Outcome != session.Unknown {
			t.Fatalf("number %d: outcome %v", c.Seq(), c.Outcome)
		}
	}
	r.flush()
	targets := map[uint64]bool{}
	for _, c := range r.commands() {
		targets[c.Target] = c.Op == core.OpCancel
	}
	if len(r.done) != 100 || len(targets) != 100 {
		t.Fatalf("%d answers, %d cancels", len(r.done), len(targets))
	}
}

// The keeper of a stream learns whether a caller waits for it: for a beat, a
// command or the table, not for a grant or for the end of a pause.
func TestUnanswered(t *testing.T) {
	r := opened(t, session.Config{})
	want := func(what string, unanswered bool) {
		t.Helper()
		if r.s.Unanswered() != unanswered {
			t.Errorf("%s: unanswered is %v", what, !unanswered)
		}
	}
	want("an idle session", false)
	c := r.acquire("x")
	r.flush()
	want("a command", true)
	r.reply(r.last().Attempt, 0, int64(r.ttl), core.Result{Seq: c.Seq(), Code: core.CodeQueued})
	want("a wait", false)
	r.now = r.s.Wake()
	r.flush()
	want("a beat", true)
	r.renewed(r.last().Attempt, r.now, r.now+int64(r.ttl))
	want("an answered beat", false)
	r.add("n")
	r.flush()
	refuse(r, r.last().Attempt, session.RefusedBusy)
	want("a pause that the server asked for", false)
	r.reconnect()
	want("an attach", true)
	r.take(r.s.Disconnect(r.now))
	want("no stream", false)
}

// A frame that a full server refuses for one of its commands is sent again command by
// command: what frees something is taken, and what is refused was certainly not done.
func TestFullServerTakesWhatFrees(t *testing.T) {
	r := opened(t, session.Config{})
	h := r.hold("a", 0, sec(30))
	grows, frees, more := r.acquire("b"), r.submit(core.Command{Op: core.OpRelease, Target: h.Seq()}), r.acquire("c")
	r.flush()
	full := func(attempt uint64) {
		r.receive(session.Message{Kind: session.KindRefused, Attempt: attempt, Refusal: session.RefusedDenied, Code: core.CodeFull, Text: "full"})
	}
	if len(r.commands()) != 3 {
		t.Fatalf("%d commands in the frame", len(r.commands()))
	}
	full(r.last().Attempt)
	if sends := r.flush(); len(sends) != 3 || len(r.done) != 1 {
		t.Fatalf("%d frames, %d answers", len(sends), len(r.done))
	}
	last := r.last().Attempt
	full(last - 2)
	full(last)
	r.reply(last-1, 0, sec(30), core.Result{Seq: frees.Seq()})
	for c, want := range map[*session.Call]session.Outcome{grows: session.NotDone, more: session.NotDone, frees: session.Answered} {
		if c.Outcome != want {
			t.Errorf("number %d: outcome %v, want %v", c.Seq(), c.Outcome, want)
		}
	}
	if r.flush(); len(r.done) != 4 || len(r.dead) != 0 {
		t.Errorf("%d answers, dead %v", len(r.done), r.dead)
	}
}
