package session_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

func (r *rig) add(name string) *session.Call {
	return r.submit(core.Command{Op: core.OpCount, Name: name, Count: core.CountAdd, A: 1})
}

func seqs(cmds []core.Command) (s []uint64) {
	for _, c := range cmds {
		s = append(s, c.Seq)
	}
	return s
}

func TestWhatIsSubmittedTogetherTravelsTogether(t *testing.T) {
	r := opened(t, session.Config{})
	for range 3 {
		r.add("n")
	}
	if got := r.flush(); len(got) != 1 || !slices.Equal(seqs(r.commands()), []uint64{1, 2, 3}) {
		t.Fatalf("sent %d messages, the last with %v", len(got), seqs(r.commands()))
	}
	if got := r.flush(); len(got) != 0 {
		t.Fatalf("sent again: %v", got)
	}
}

func TestLongFramesAreCut(t *testing.T) {
	r := opened(t, session.Config{})
	for range 100 {
		r.submit(core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Value: make([]byte, 2000)}}})
	}
	total := 0
	for i, m := range r.flush() {
		if len(m.Body) > 64<<10 {
			t.Fatalf("frame %d has %d bytes", i, len(m.Body))
		}
		total += len(r.frame[len(r.frame)-1-i].Commands)
	}
	if total != 100 {
		t.Fatalf("sent %d commands", total)
	}
}

// No frame has more parts than a server takes, however small they are: it would refuse all of them.
func TestFramesOfManyParts(t *testing.T) {
	for _, c := range []core.Command{
		{Op: core.OpAcquire, Wants: make([]core.Want, 128)}, {Op: core.OpAcquire, Wants: make([]core.Want, 10)}, {Op: core.OpTxn, If: make([]core.Compare, 128)},
		{Op: core.OpTxn, Then: make([]core.KeyOp, 64), Else: make([]core.KeyOp, 64)}, {Op: core.OpTxn, Then: make([]core.KeyOp, 1)},
	} {
		r := opened(t, session.Config{})
		for range 500 {
			r.submit(c)
		}
		total := 0
		for i := range r.flush() { // each is decoded as a server does it
			total += len(r.frame[len(r.frame)-1-i].Commands)
		}
		if total != 500 {
			t.Errorf("sent %d commands", total)
		}
	}
}

// The mark is the lowest number whose result is wanted, and the window counts
// from it.
func TestWindowAndMark(t *testing.T) {
	r := newRig(t, session.Config{})
	r.take(r.s.Connect(0))
	r.flush()
	r.table(false)
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Window: 4})
	var calls []*session.Call
	for range 10 {
		calls = append(calls, r.add("n"))
	}
	r.flush()
	if got := seqs(r.commands()); !slices.Equal(got, []uint64{1, 2, 3, 4}) {
		t.Fatalf("sent %v with a window of 4", got)
	}
	a := r.last().Attempt
	r.reply(a, 0, sec(30), core.Result{Seq: 2, Number: 2}, core.Result{Seq: 3, Number: 3})
	if got := r.flush(); len(got) != 0 {
		t.Fatalf("sent %v while number 1 is unanswered", seqs(r.commands()))
	}
	r.reply(a, 0, sec(30), core.Result{Seq: 1, Number: 1})
	r.flush()
	if f := r.frame[len(r.frame)-1]; f.Mark != 4 || !slices.Equal(seqs(f.Commands), []uint64{5, 6, 7}) {
		t.Fatalf("mark %d, sent %v; want 4 and 5 to 7", f.Mark, seqs(f.Commands))
	}
	if calls[0].Result.Number != 1 || calls[2].Result.Number != 3 {
		t.Fatal("answers went to the wrong calls")
	}
}

// A server may grant fewer numbers than were asked for: what it had no room for
// is sent again under the same number.
func TestBeyondTheWindowIsSentAgain(t *testing.T) {
	r := newRig(t, session.Config{})
	a, b := r.add("n"), r.add("n")
	r.take(r.s.Connect(0))
	r.flush()
	r.table(false)
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Window: 1},
		core.Result{Seq: a.Seq(), Number: 1}, core.Result{Seq: b.Seq(), Code: core.CodeWindow})
	r.flush()
	if got := seqs(r.commands()); !slices.Equal(got, []uint64{b.Seq()}) || len(r.done) != 1 {
		t.Fatalf("sent %v, %d done", got, len(r.done))
	}
}

// Everything unanswered is sent again on a new stream under its old number, and
// an answer counts once.
func TestRetryKeepsTheNumber(t *testing.T) {
	r := opened(t, session.Config{})
	a, b := r.add("n"), r.add("n")
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: a.Seq(), Number: 1})
	for range 3 {
		r.reconnect()
		r.table(true)
		if got := seqs(r.commands()); !slices.Equal(got, []uint64{b.Seq()}) {
			t.Fatalf("sent %v, want number %d again", got, b.Seq())
		}
	}
	for range 2 {
		r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: b.Seq(), Number: 2})
	}
	if len(r.done) != 2 {
		t.Fatalf("%d answers for two calls", len(r.done))
	}
}

// A frame without an answer is sent again on the same stream; the second time
// another stream is asked for.
func TestUnansweredFrameIsSentAgain(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.add("n")
	r.flush()
	first := r.last().Attempt
	for i := range 3 {
		n := len(r.sends)
		for len(r.sends) == n || r.last().Kind != session.KindFrame {
			r.now = r.s.Wake()
			r.flush()
		}
		if got := seqs(r.commands()); !slices.Equal(got, []uint64{c.Seq()}) || r.last().Attempt <= first {
			t.Fatalf("retry %d: sent %v as attempt %d", i, got, r.last().Attempt)
		}
	}
	if r.redials < 2 {
		t.Fatalf("another stream was asked for %d times, want 2 at least", r.redials)
	}
	r.reply(first, 0, sec(30), core.Result{Seq: c.Seq(), Number: 1})
	if len(r.done) != 1 {
		t.Fatal("the answer to the first attempt was not taken")
	}
}

// An attach without a complete table begins anew under a greater number.
func TestUnansweredAttachBeginsAnew(t *testing.T) {
	r := opened(t, session.Config{})
	r.reconnect()
	r.receive(session.Message{Kind: session.KindTable, Known: true})
	stream := r.s.Stream()
	for r.s.Stream() == stream {
		r.now = r.s.Wake()
		r.flush()
	}
	r.receive(session.Message{Kind: session.KindTable, Stream: stream, Known: true, Piece: 1, Last: true})
	c := r.add("n")
	r.now = r.s.Wake()
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq()})
	if len(r.done) != 0 {
		t.Fatal("a reply was taken before the table")
	}
}

// Until an Open is answered every frame begins with one: it is idempotent, and
// really refreshes.
func TestOpenIsRepeatedUntilAnswered(t *testing.T) {
	r := newRig(t, session.Config{})
	r.take(r.s.Connect(0))
	for i := range 3 {
		c := r.add("n")
		r.flush()
		if cmds := r.commands(); cmds[0].Op != core.OpOpen || cmds[1].Seq != c.Seq() {
			t.Fatalf("frame %d: %+v", i, cmds)
		}
	}
	r.at(5).table(false)
	r.reply(r.last().Attempt, sec(100), sec(130), core.Result{Window: 1024})
	r.wantDeadline(28, 29.7)
	r.add("n")
	r.flush()
	if cmds := r.commands(); cmds[0].Op == core.OpOpen {
		t.Fatal("an answered Open was sent again")
	}
}

func TestRefusedOpenEndsTheSession(t *testing.T) {
	r := newRig(t, session.Config{})
	c := r.add("n")
	r.take(r.s.Connect(0))
	r.flush()
	r.table(false)
	r.reply(r.last().Attempt, 0, 0, core.Result{Code: core.CodeExhausted, Text: "too many sessions"},
		core.Result{Seq: c.Seq(), Code: core.CodeNoSession})
	if len(r.dead) != 1 || r.dead[0] != session.Refused || c.Outcome != session.NotDone || r.overs != 1 {
		t.Fatalf("dead %v, outcome %v", r.dead, c.Outcome)
	}
}

// "Unknown only when the session is gone": what was sent may have been done
// before, what was never sent was not.
func TestOutcomesOfADeadSession(t *testing.T) {
	r := opened(t, session.Config{})
	sent := r.add("n")
	r.flush()
	never := r.add("n")
	r.reply(r.last().Attempt, sec(40), 0, core.Result{Seq: sent.Seq(), Code: core.CodeNoSession})
	if sent.Outcome != session.Unknown || never.Outcome != session.NotDone || len(r.done) != 2 {
		t.Fatalf("outcomes %v and %v, want unknown and not done", sent.Outcome, never.Outcome)
	}
	if len(r.dead) != 1 || r.dead[0] != session.Ended || r.overs != 1 {
		t.Fatalf("dead %v, over %d", r.dead, r.overs)
	}
}

func TestExpiryLeavesSentCallsUnknown(t *testing.T) {
	r := opened(t, session.Config{})
	sent := r.add("n")
	r.flush()
	unsent := r.add("n")
	r.now = r.deadline()
	r.take(r.s.Tick(r.now))
	if sent.Outcome != session.Unknown || unsent.Outcome != session.NotDone || len(r.done) != 2 {
		t.Fatalf("outcomes %v and %v", sent.Outcome, unsent.Outcome)
	}
}

// A dead session tells the server until it is answered, and gives up when the
// server has ended it by itself.
func TestRevokeIsRetriedAndEnds(t *testing.T) {
	r := opened(t, session.Config{})
	r.take(r.s.End(r.now))
	ends := 0
	for r.overs == 0 && ends < 1000 {
		for _, m := range r.flush() {
			if m.Kind == session.KindFrame {
				ends++
			}
		}
		if r.overs == 0 {
			r.now = max(r.now, r.s.Wake())
		}
	}
	if ends < 3 || r.now > sec(61) {
		t.Fatalf("%d revokes, over at %.1f s", ends, float64(r.now)/1e9)
	}
	if r.s.Wake() != session.Never {
		t.Fatal("a session that is over wants to be woken")
	}
}

// An unanswered Open may still be on its way when the session ends: an Open
// before the End makes the server refuse it afterwards.
func TestEndOfAnUnansweredOpenBringsItsOwn(t *testing.T) {
	r := newRig(t, session.Config{})
	r.take(r.s.Connect(0))
	r.flush()
	r.take(r.s.End(r.now))
	r.flush()
	if cmds := r.commands(); len(cmds) != 2 || cmds[0].Op != core.OpOpen || cmds[1].Op != core.OpEnd {
		t.Fatalf("sent %+v", cmds)
	}
	r.table(false)
	r.reply(r.last().Attempt, 0, 0, core.Result{}, core.Result{})
	if r.overs != 1 {
		t.Fatal("not over")
	}
}

func TestSilentSessionEndsAtOnce(t *testing.T) {
	r := newRig(t, session.Config{})
	c := r.add("n")
	r.take(r.s.End(0))
	if r.overs != 1 || c.Outcome != session.NotDone {
		t.Fatalf("overs %d, outcome %v", r.overs, c.Outcome)
	}
}

// A release lets go at once, and is carried on although nobody waits for it.
func TestAbandonedReleaseIsCarriedOn(t *testing.T) {
	r := opened(t, session.Config{})
	a := r.hold("a", 0, sec(30))
	rel := r.submit(core.Command{Op: core.OpRelease, Target: a.Seq()})
	r.flush()
	out, actions := r.s.Abandon(r.now, rel)
	r.take(actions)
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: a.Seq(), State: core.ClaimGranted, Token: 101})
	if cmds := r.commands(); out != session.Unknown || len(cmds) != 1 || cmds[0].Seq != rel.Seq() {
		t.Fatalf("outcome %v, sent %+v", out, cmds)
	}
	n := len(r.done)
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: rel.Seq()})
	if len(r.done) != n {
		t.Fatal("told an answer that nobody waits for")
	}
}

// A push may overtake the answer to its own Acquire.
func TestPushServesAsAnswer(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.acquire("a")
	r.flush()
	r.push(core.Push{Seq: c.Seq(), State: core.ClaimGranted, Token: 8})
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq(), Code: core.CodeQueued})
	if len(r.done) != 1 || c.Result.Token != 8 || len(r.queued) != 0 {
		t.Fatalf("done %d, queued %d, token %d", len(r.done), len(r.queued), c.Result.Token)
	}
	r.push(core.Push{Seq: c.Seq(), State: core.ClaimGone, Code: core.CodeMaxHold})
	if len(r.lost) != 1 {
		t.Fatal("the loss was not told")
	}
}

// A claim that was revoked before its grant was known is confirmed at once.
func TestRevokedBeforeKnownIsConfirmed(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.acquire("a")
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq(), Code: core.CodeRevoked, Token: 8})
	r.flush()
	if cmds := r.commands(); c.Result.Code != core.CodeRevoked || len(cmds) != 1 || cmds[0].Op != core.OpCancel {
		t.Fatalf("code %v, sent %+v", c.Result.Code, cmds)
	}
}

// A revoked hold stays unconfirmed until it is released, over any stream.
func TestRevokedHoldIsConfirmedByItsRelease(t *testing.T) {
	r := opened(t, session.Config{})
	a := r.hold("a", 0, sec(30))
	r.push(core.Push{Seq: a.Seq(), State: core.ClaimRevoked, Code: core.CodeRevoked, Token: 101})
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: a.Seq(), State: core.ClaimRevoked, Code: core.CodeRevoked, Token: 101})
	if sends := r.flush(); len(r.lost) != 1 || len(sends) != 0 {
		t.Fatalf("lost %d times, sent %v", len(r.lost), sends)
	}
	r.submit(core.Command{Op: core.OpRelease, Target: a.Seq()})
	r.flush()
	if cmds := r.commands(); len(cmds) != 1 || cmds[0].Op != core.OpRelease {
		t.Fatalf("sent %+v", cmds)
	}
}

func TestExtendMovesTheHoldsOwnDeadline(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.submit(core.Command{Op: core.OpAcquire, MaxHold: sec(10), Wants: []core.Want{{Name: "a", Kind: core.Mutex}}})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq(), Token: 1, Deadline: sec(10)})
	before := c.Deadline
	e := r.at(5).submit(core.Command{Op: core.OpExtend, Target: c.Seq(), MaxHold: sec(10)})
	r.flush()
	r.reply(r.last().Attempt, sec(5), sec(30), core.Result{Seq: e.Seq(), Deadline: sec(15)})
	if before > sec(10) || e.Deadline <= before || e.Deadline > sec(15) || c.Deadline != e.Deadline {
		t.Fatalf("deadlines %d, then %d", before, e.Deadline)
	}
}

func TestHandedOverIsNotHeld(t *testing.T) {
	r := opened(t, session.Config{})
	a := r.hold("a", 0, sec(30))
	h := r.submit(core.Command{Op: core.OpHandOver, Target: a.Seq(), Owner: "next"})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: h.Seq()})
	r.reconnect()
	r.table(true)
	if sends := r.flush(); len(r.lost) != 0 || len(sends) != 0 {
		t.Fatalf("lost %v, sent %v", r.lost, sends)
	}
}

// A link whose round trip is longer than the patience still gets its session
// attached, although the session may ask for other streams meanwhile.
func TestSlowLinkIsAttached(t *testing.T) {
	r := opened(t, session.Config{TTL: 12 * time.Second, Manual: true})
	type answer struct {
		at     int64
		stream uint64
	}
	var due []answer
	c := r.add("n")
	r.take(r.s.Disconnect(r.now))
	r.take(r.s.Connect(r.now))
	for r.now < sec(11) {
		n := r.redials
		for _, m := range r.flush() {
			if m.Kind == session.KindAttach {
				due = append(due, answer{r.now + sec(3), m.Stream})
			}
		}
		if r.redials > n {
			r.take(r.s.Disconnect(r.now))
			r.take(r.s.Connect(r.now))
			continue
		}
		if len(due) > 0 && due[0].at <= r.now {
			r.receive(session.Message{Kind: session.KindTable, Stream: due[0].stream, Known: true, Last: true})
			due = due[1:]
		}
		r.reply(r.last().Attempt, r.now, sec(12), core.Result{Seq: c.Seq()})
		if len(r.done) == 1 {
			return
		}
		r.now += 50 * ms
	}
	t.Fatalf("not attached in 11 s over a link of 3 s; %d streams", r.s.Stream())
}

// After an outage of any length the next try comes within the TTL, on another
// stream: what was missed meanwhile does not count for ever.
func TestOutageDoesNotHoldUpTheTimeAfterIt(t *testing.T) {
	r := newRig(t, session.Config{TTL: 8 * time.Second})
	r.take(r.s.Connect(0))
	attached, streams := int64(0), 0
	for r.now < sec(300) {
		n := r.redials
		for _, m := range r.flush() {
			if m.Kind == session.KindAttach {
				if gap := r.now - attached; gap > sec(9) {
					t.Fatalf("at %d ms nothing was tried for %d ms", r.now/ms, gap/ms)
				}
				attached = r.now
			}
		}
		if r.redials > n {
			streams++
			r.take(r.s.Disconnect(r.now))
			r.take(r.s.Connect(r.now))
		}
		r.now = max(r.now+ms, r.s.Wake())
	}
	if streams < 300/9 {
		t.Fatalf("only %d streams were tried in 300 s", streams)
	}
}

// A program that stood still takes its link for slow, since an answer waited for
// it. It leaves a stream that is silent afterwards all the same.
func TestPauseDoesNotHoldUpTheTimeAfterIt(t *testing.T) {
	r := opened(t, session.Config{TTL: 8 * time.Second, Manual: true})
	c := r.at(1).add("n")
	r.flush()
	r.at(7).reply(r.last().Attempt, sec(1), sec(9), core.Result{Seq: c.Seq()})
	r.add("n")
	for before := r.redials; r.redials == before; r.now = max(r.now+ms, r.s.Wake()) {
		if r.flush(); r.now > sec(20) {
			t.Fatal("the stream has been silent for 13 s, and no other was asked for")
		}
	}
}

// An answer may come in several replies to one attempt.
func TestReplyInPieces(t *testing.T) {
	r := opened(t, session.Config{})
	a, b := r.add("n"), r.add("m")
	r.flush()
	attempt := r.last().Attempt
	r.reply(attempt, 0, sec(30), core.Result{Seq: a.Seq(), Number: 1})
	if len(r.done) != 1 || !r.s.Unanswered() {
		t.Fatalf("%d answers after the first reply; unanswered is %v", len(r.done), r.s.Unanswered())
	}
	r.reply(attempt, 0, sec(30), core.Result{Seq: b.Seq(), Number: 2})
	if len(r.done) != 2 || b.Result.Number != 2 || r.s.Unanswered() {
		t.Errorf("%d answers, %d is the second; unanswered is %v", len(r.done), b.Result.Number, r.s.Unanswered())
	}
	if sends := r.flush(); len(sends) != 0 {
		t.Errorf("sent again: %v", sends)
	}
}
