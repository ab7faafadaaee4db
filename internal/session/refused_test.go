package session_test

import (
	"fmt"
	"testing"
	"time"

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

// Each of many denied calls is sent once more, by itself, and gets its one answer and its one cancel.
func TestManyDeniedCommands(t *testing.T) {
	r := opened(t, session.Config{})
	for range 100 {
		r.add("n")
	}
	r.flush()
	r.reconnect()
	r.table(true)
	refuse(r, r.last().Attempt, session.RefusedDenied)
	singly := len(r.flush())
	for i := range uint64(singly) {
		refuse(r, r.last().Attempt-i, session.RefusedDenied)
	}
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
	if singly != 100 || len(r.done) != 100 || len(targets) != 100 {
		t.Fatalf("%d sent singly, %d answers, %d cancels", singly, len(r.done), len(targets))
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

// A frame that is refused for one of its commands is sent again command by command, as one that a full server refuses, or
// a group that is too old for one: what frees something is taken, and what is refused was certainly not done.
func TestRefusedFrameGoesSingly(t *testing.T) {
	for _, code := range []core.Code{core.CodeFull, core.CodeUnsupported, core.CodeInvalid, core.CodePermission} {
		t.Run(fmt.Sprint(code), func(t *testing.T) { refusedFrameGoesSingly(t, code) })
	}
}

func refusedFrameGoesSingly(t *testing.T, code core.Code) {
	r := opened(t, session.Config{})
	h := r.hold("a", 0, sec(30))
	grows, frees, more := r.acquire("b"), r.submit(core.Command{Op: core.OpRelease, Target: h.Seq()}), r.acquire("c")
	r.flush()
	if len(r.commands()) != 3 {
		t.Fatalf("%d commands in the frame", len(r.commands()))
	}
	deny(r, r.last().Attempt, code)
	if sends := r.flush(); len(sends) != 3 || len(r.done) != 1 {
		t.Fatalf("%d frames, %d answers", len(sends), len(r.done))
	}
	last := r.last().Attempt
	deny(r, last-2, code)
	deny(r, last, code)
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

// full refuses an attempt since the server's disk is full.
func full(r *rig, attempt uint64) {
	r.t.Helper()
	deny(r, attempt, core.CodeFull)
}

func deny(r *rig, attempt uint64, code core.Code) {
	r.t.Helper()
	r.receive(session.Message{Kind: session.KindRefused, Attempt: attempt, Refusal: session.RefusedDenied, Code: code, Text: "why"})
}

// A refused Open tells nothing of what went out with an earlier one: that may have been
// done.
func TestRefusedOpenLeavesEarlierSendingsUnknown(t *testing.T) {
	r := newRig(t, session.Config{})
	r.take(r.s.Connect(r.now))
	before := r.add("n")
	r.flush()
	now := r.add("n")
	r.reconnect()
	r.table(true)
	never := r.add("n")
	if len(r.commands()) != 3 {
		t.Fatalf("%d commands, want the Open and two", len(r.commands()))
	}
	refuse(r, r.last().Attempt, session.RefusedDenied)
	if len(r.dead) != 1 || r.dead[0] != session.Refused {
		t.Fatalf("dead %v", r.dead)
	}
	for name, c := range map[string]struct {
		call *session.Call
		want session.Outcome
	}{"sent before": {before, session.Unknown}, "refused": {now, session.NotDone}, "never sent": {never, session.NotDone}} {
		if c.call.Outcome != c.want {
			t.Errorf("%s: outcome %v, want %v", name, c.call.Outcome, c.want)
		}
	}
}

// A full server, or a group that is too old for one of the calls, opens a session for what it takes alone: each of the calls
// goes with an Open of its own, and is judged by itself.
func TestRefusedCallDoesNotEndASession(t *testing.T) {
	for _, code := range []core.Code{core.CodeFull, core.CodeUnsupported} {
		t.Run(fmt.Sprint(code), func(t *testing.T) { refusedCallDoesNotEndASession(t, code) })
	}
}

func refusedCallDoesNotEndASession(t *testing.T, code core.Code) {
	r := newRig(t, session.Config{})
	r.take(r.s.Connect(r.now))
	grows, reads := r.acquire("b"), r.submit(core.Command{Op: core.OpCount, Name: "n", Count: core.CountLoad})
	r.flush()
	r.table(false)
	deny(r, r.last().Attempt, code)
	if sends := r.flush(); len(sends) != 2 || len(r.commands()) != 2 || r.commands()[0].Op != core.OpOpen {
		t.Fatalf("%d frames, the last with %d commands: want one for each call, behind an Open", len(sends), len(r.commands()))
	}
	last := r.last().Attempt
	deny(r, last-1, code)
	if grows.Outcome != session.NotDone || !grows.Denied || len(r.dead) != 0 {
		t.Errorf("outcome %v, dead %v", grows.Outcome, r.dead)
	}
	r.reply(last, 0, int64(r.ttl), core.Result{Window: 1024}, core.Result{Seq: reads.Seq(), Number: 7})
	if reads.Outcome != session.Answered || len(r.done) != 2 || len(r.dead) != 0 {
		t.Errorf("outcome %v, %d answers, dead %v", reads.Outcome, len(r.done), r.dead)
	}
	if sends := r.flush(); len(sends) != 0 {
		t.Errorf("%d frames more", len(sends))
	}
}

// A session that a full server opens for nothing is refused with the last of its calls, which
// were not done.
func TestFullServerRefusesASession(t *testing.T) {
	for _, n := range []int{0, 1, 2} {
		r := newRig(t, session.Config{})
		r.take(r.s.Connect(r.now))
		var calls []*session.Call
		for range n {
			calls = append(calls, r.acquire("b"))
		}
		r.flush()
		r.table(false)
		full(r, r.last().Attempt)
		if n > 1 {
			r.flush()
			full(r, r.last().Attempt-1)
			full(r, r.last().Attempt)
		}
		if len(r.dead) != 1 || r.dead[0] != session.Refused {
			t.Errorf("%d calls: dead %v", n, r.dead)
		}
		if sent := r.flush(); len(sent) > 0 || r.overs != 1 { // an Open and its End would be taken, and written
			t.Errorf("%d calls: of a session that was never opened %v is sent", n, sent)
		}
		for _, c := range calls {
			if c.Outcome != session.NotDone || c.Result.Code != core.CodeFull {
				t.Errorf("%d calls: outcome %v, code %d", n, c.Outcome, c.Result.Code)
			}
		}
	}
}

// Of two frames that were to open the session the first may do it, and the second be
// refused: that one alone is.
func TestSecondOpenIsRefused(t *testing.T) {
	for name, refuse := range map[string]func(r *rig, attempt uint64){
		"full":   full,
		"denied": func(r *rig, attempt uint64) { refuse(r, attempt, session.RefusedDenied) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, session.Config{})
			r.take(r.s.Connect(r.now))
			reads := r.submit(core.Command{Op: core.OpCount, Name: "n", Count: core.CountLoad})
			r.flush()
			r.table(false)
			grows := r.acquire("b")
			r.flush()
			second := r.last().Attempt
			r.reply(second-1, 0, int64(r.ttl), core.Result{Window: 1024}, core.Result{Seq: reads.Seq(), Number: 7})
			refuse(r, second)
			if grows.Outcome != session.NotDone || reads.Outcome != session.Answered || len(r.dead) != 0 {
				t.Errorf("outcomes %v and %v, dead %v", grows.Outcome, reads.Outcome, r.dead)
			}
		})
	}
}

// An Open without an answer is given up before the server forgets the session that it may
// have opened: with the next one its commands would be done again.
func TestUnansweredOpenIsGivenUp(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, time.Hour} {
		limit := 300.0
		r := newRig(t, session.Config{TTL: ttl}).at(1)
		r.take(r.s.Connect(r.now))
		sent := r.add("n")
		r.flush()
		r.take(r.s.Disconnect(r.now))
		unsent := r.add("n")
		if r.s.Wake() != sec(1+limit) {
			t.Errorf("TTL %s: it wakes after %d s", ttl, (r.s.Wake()-sec(1))/sec(1))
		}
		if r.take(r.s.Tick(sec(limit))); len(r.done) > 0 {
			t.Errorf("TTL %s: given up too early", ttl)
		}
		r.take(r.s.Tick(sec(1 + limit)))
		if len(r.dead) != 1 || r.dead[0] != session.Expired || sent.Outcome != session.Unknown || unsent.Outcome != session.NotDone || len(r.done) != 2 {
			t.Errorf("TTL %s: dead %v, outcomes %v and %v", ttl, r.dead, sent.Outcome, unsent.Outcome)
		}
	}
}

// A server that is busy for long has not taken the Open, and is asked again.
func TestBusyServerOpensLate(t *testing.T) {
	r := newRig(t, session.Config{}).at(1)
	r.take(r.s.Connect(r.now))
	r.add("n")
	r.flush()
	r.table(false)
	for r.now < sec(1000) {
		refuse(r, r.last().Attempt, session.RefusedBusy)
		r.now = r.s.Wake()
		r.flush()
	}
	if len(r.dead)+len(r.done) != 0 {
		t.Errorf("dead %v, %d answers", r.dead, len(r.done))
	}
}
