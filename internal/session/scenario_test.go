package session_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/deadline"
	"github.com/holdfast-io/holdfast/internal/session"
)

// kinds of what was sent.
func kinds(ms []session.Message) (k []session.MessageKind) {
	for _, m := range ms {
		k = append(k, m.Kind)
	}
	return k
}

func renewal(t *testing.T, r *rig) session.Message {
	t.Helper()
	for _, m := range r.flush() {
		if m.Kind == session.KindRenewal {
			return m
		}
	}
	t.Fatalf("no keepalive at %.1f s; wake is %.1f s", float64(r.now)/1e9, float64(r.s.Wake())/1e9)
	return session.Message{}
}

// Scenario 1: "Keepalive at 10 s (TTL 30) puts the server's deadline at 40; an
// Acquire sent at 19.9 must not make the client believe until 49."
func TestAnswerToACommandDoesNotProlong(t *testing.T) {
	r := opened(t, session.Config{})
	k := renewal(t, r.at(11))
	r.renewed(k.Attempt, sec(11), sec(41))
	c := r.at(19.9).acquire("a")
	r.flush()
	r.at(20).reply(r.last().Attempt, sec(19.95), sec(41), core.Result{Seq: c.Seq(), Code: core.CodeQueued, Number: 1})
	r.wantDeadline(39, 41)
	r.at(20.5).push(core.Push{Seq: c.Seq(), State: core.ClaimGranted, Token: 7})
	if len(r.done) != 1 || c.Result.Token != 7 {
		t.Fatalf("the pushed grant was not told: %+v", c.Result)
	}
	r.wantDeadline(39, 41)
}

// Scenario 1, "same with cached replies of retries": the answer to the second
// attempt carries the time of its own apply, and is mapped from its own send.
func TestRetryIsAnchoredAtItsOwnSend(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.at(1).acquire("a")
	r.flush()
	first := r.last().Attempt
	r.at(5).reconnect()
	r.table(true)
	second := r.last().Attempt
	if first == second {
		t.Fatal("a retry must have a number of its own")
	}
	r.at(6).reply(second, sec(5.5), sec(30), core.Result{Seq: c.Seq(), Code: core.CodeOK, Token: 1})
	r.wantDeadline(28.5, 29.7)
}

// Scenario 3: "A claim is revoked or max-held while the link is down; the client
// reconnects, KeepAlive succeeds, the dead hold is extended."
func TestLossComesBeforeTheKeepalive(t *testing.T) {
	r := opened(t, session.Config{})
	a := r.hold("a", 0, sec(30))
	r.at(11).reconnect()
	k := r.last()
	if k.Kind != session.KindRenewal {
		t.Fatalf("sent %v, want a keepalive last: they are accepted before the table", kinds(r.sends))
	}
	before := r.deadline()
	r.renewed(k.Attempt, sec(11), sec(41))
	if r.deadline() != before {
		t.Fatal("a keepalive was believed before the table")
	}
	r.table(true, core.ClaimRow{Seq: a.Seq(), State: core.ClaimRevoked, Code: core.CodeRevoked, Deadline: sec(30)})
	if len(r.lost) != 1 || r.lost[0] != a || r.codes[0] != core.CodeRevoked {
		t.Fatalf("lost %v %v, want the revoked hold", r.lost, r.codes)
	}
	r.renewed(k.Attempt, sec(11), sec(41))
	r.wantDeadline(39, 41)
}

// A reply that counts a push which has not arrived is not believed: the push
// may be a loss.
func TestMissingPushIsNoticed(t *testing.T) {
	r := opened(t, session.Config{})
	a := r.hold("a", 0, sec(30))
	k := renewal(t, r.at(11))
	before, stream := r.deadline(), r.s.Stream()
	r.receive(session.Message{Kind: session.KindRenewed, Attempt: k.Attempt, Now: sec(11), Deadline: sec(41), Pushes: 1})
	if r.deadline() != before {
		t.Fatal("believed a reply with a push missing before it")
	}
	if r.s.Stream() == stream || r.flush()[0].Kind != session.KindAttach {
		t.Fatal("want a new attach")
	}
	r.table(true, core.ClaimRow{Seq: a.Seq(), State: core.ClaimGone, Code: core.CodeMaxHold})
	if len(r.lost) != 1 || r.codes[0] != core.CodeMaxHold {
		t.Fatal("the loss was not told")
	}
}

// Scenario 5: "A late keepalive reply after D renews a session whose holds are
// lost: locks leak as long as the process lives."
func TestLateKeepaliveDoesNotRevive(t *testing.T) {
	r := opened(t, session.Config{})
	r.hold("a", 0, sec(30))
	k := renewal(t, r.at(11))
	r.at(29.9).renewed(k.Attempt, sec(11), sec(41))
	if len(r.dead) != 1 || r.dead[0] != session.Expired || r.s.Alive() {
		t.Fatalf("dead %v, want expired", r.dead)
	}
	r.flush()
	if cmds := r.commands(); len(cmds) != 1 || cmds[0].Op != core.OpEnd {
		t.Fatalf("sent %v, want a revoke", cmds)
	}
	r.at(30).renewed(k.Attempt, sec(11), sec(60))
	if c := r.acquire("b"); c.Outcome != session.NotDone || r.s.Alive() {
		t.Fatal("a dead session took a command")
	}
	r.reply(r.last().Attempt, sec(30), 0, core.Result{})
	if r.overs != 1 {
		t.Fatal("the answered revoke did not end it")
	}
}

// Scenario 12, the client's side: a withdrawn Acquire is not sent again, its
// cancel is, on whatever stream.
func TestCancelIsCarriedOn(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.acquire("a")
	r.flush()
	out, actions := r.s.Abandon(r.now, c)
	r.take(actions)
	if out != session.Unknown {
		t.Fatalf("outcome %v of a claim that was sent", out)
	}
	for i := range 3 {
		r.at(float64(i)).reconnect()
		if cmds := r.commands(); len(cmds) != 1 || cmds[0].Op != core.OpCancel || cmds[0].Target != c.Seq() {
			t.Fatalf("stream %d: sent %+v, want the cancel alone", i, cmds)
		}
		r.table(true)
	}
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: r.commands()[0].Seq})
	r.at(5).reconnect()
	r.table(true)
	if got := r.last().Kind; got != session.KindAttach || len(r.done) != 0 {
		t.Fatalf("sent %v after the cancel was answered; done %v", got, r.done)
	}
}

func TestAbandonUnsentIsNotDone(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.acquire("a")
	out, actions := r.s.Abandon(r.now, c)
	r.take(actions)
	if out != session.NotDone || len(r.flush()) != 0 {
		t.Fatalf("outcome %v, sent %v; want nothing", out, r.sends)
	}
}

// Scenario 28: only the answer to an attempt anchors.
func TestPushAndTableAnchorNothing(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.acquire("a")
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq(), Code: core.CodeQueued})
	before := r.deadline()
	r.at(9.9).push(core.Push{Seq: c.Seq(), State: core.ClaimGranted, Token: 9, Deadline: sec(60)})
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: c.Seq(), State: core.ClaimGranted, Token: 9, Deadline: sec(60)})
	r.reply(77, sec(0.1), sec(30))
	r.renewed(78, sec(0.1), sec(30))
	if r.deadline() != before {
		t.Fatalf("deadline moved from %d to %d without an answer", before, r.deadline())
	}
}

// Scenario 32: "MaxHold 60 on a grant pushed 300 s after its Acquire was sent:
// dead on arrival if mapped from that send."
func TestPushedMaxHoldIsMappedByTheNewestAnchor(t *testing.T) {
	r := opened(t, session.Config{TTL: time.Hour})
	c := r.submit(core.Command{Op: core.OpAcquire, MaxHold: sec(60), Wants: []core.Want{{Name: "a", Kind: core.Mutex}}})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(3600), core.Result{Seq: c.Seq(), Code: core.CodeQueued})
	r.at(300).push(core.Push{Seq: c.Seq(), State: core.ClaimGranted, Token: 9, Deadline: sec(360)})
	if len(r.done) != 0 {
		t.Fatalf("told with an anchor of 300 s ago: %.1f s are left", float64(c.Deadline-r.now)/1e9)
	}
	r.flush()
	if r.last().Kind != session.KindFrame || len(r.commands()) != 0 {
		t.Fatal("want an empty frame that asks for an anchor")
	}
	r.at(300.1).reply(r.last().Attempt, sec(300.05), sec(3600))
	if len(r.done) != 1 || c.Deadline < sec(357) || c.Deadline > sec(360) {
		t.Fatalf("done %d, deadline %.2f s, want just below 360", len(r.done), float64(c.Deadline)/1e9)
	}
}

// A grant of a minute on a session of a day keeps nearly all of its minute.
func TestMaxHoldMarginIsItsOwn(t *testing.T) {
	r := opened(t, session.Config{TTL: 24 * time.Hour})
	c := r.submit(core.Command{Op: core.OpAcquire, MaxHold: sec(60), Wants: []core.Want{{Name: "a", Kind: core.Mutex}}})
	r.at(1).flush()
	r.reply(r.last().Attempt, sec(1), sec(86400), core.Result{Seq: c.Seq(), Token: 4, Deadline: sec(61)})
	if c.Deadline < sec(59) || c.Deadline >= sec(61) {
		t.Fatalf("deadline %.2f s", float64(c.Deadline)/1e9)
	}
}

// Scenario 33: "Renew(1 h), then Renew(5 s): D would have to move back."
func TestKeepNeverMovesBack(t *testing.T) {
	r := opened(t, session.Config{Manual: true})
	keep := func(ttl float64, e float64) {
		c := &session.Call{Command: core.Command{TTL: sec(ttl)}}
		r.take(r.s.Keep(r.now, c))
		m := renewal(t, r)
		if m.TTL != sec(ttl) {
			t.Fatalf("asked for %d, sent %d", sec(ttl), m.TTL)
		}
		r.renewed(m.Attempt, r.now, sec(e))
		if c.Outcome != session.Answered {
			t.Fatal("the keep was not answered")
		}
	}
	r.at(1)
	keep(3600, 3601)
	r.wantDeadline(3500, 3601)
	high := r.deadline()
	r.at(2)
	keep(5, 3601)
	if r.deadline() < high {
		t.Fatalf("deadline went back from %d to %d", high, r.deadline())
	}
	if r.s.Wake() != r.deadline() {
		t.Fatal("a session kept by hand beats by itself")
	}
}

// Two Keeps under way share an attempt, and the answer to an attempt that was
// sent before a Keep does not end it.
func TestKeepIsAnsweredByItsOwnAttempt(t *testing.T) {
	r := opened(t, session.Config{Manual: true})
	a := &session.Call{Command: core.Command{TTL: sec(40)}}
	r.take(r.s.Keep(r.now, a))
	m1 := renewal(t, r)
	b := &session.Call{Command: core.Command{TTL: sec(50)}}
	r.take(r.s.Keep(r.now, b))
	m2 := renewal(t, r)
	if m2.TTL != sec(50) || m2.Attempt == m1.Attempt {
		t.Fatalf("second keep sent %+v", m2)
	}
	r.renewed(m1.Attempt, 0, sec(40))
	if a.Outcome != session.Answered || b.Outcome == session.Answered {
		t.Fatalf("outcomes %v %v after the first answer", a.Outcome, b.Outcome)
	}
	r.renewed(m2.Attempt, 0, sec(50))
	if b.Outcome != session.Answered {
		t.Fatal("second keep was not answered")
	}
}

// Scenario 35: "Claim table from a leader that is not caught up lacks a claim:
// taken as gone, never released, kept alive. Late frames of an older stream
// resurrect a hold."
func TestAbsentClaimIsLostAndCancelled(t *testing.T) {
	r := opened(t, session.Config{})
	a, b := r.hold("a", 0, sec(30)), r.hold("b", 0, sec(30))
	old := r.s.Stream()
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: b.Seq(), State: core.ClaimGranted, Token: 102})
	if len(r.lost) != 1 || r.lost[0] != a {
		t.Fatalf("lost %v, want the absent hold", r.lost)
	}
	r.flush()
	if cmds := r.commands(); len(cmds) != 1 || cmds[0].Op != core.OpCancel || cmds[0].Target != a.Seq() {
		t.Fatalf("sent %+v, want a cancel of what was taken as gone", cmds)
	}
	r.receive(session.Message{Kind: session.KindPush, Stream: old, Pushes: 1,
		Rows: []core.ClaimRow{{Seq: b.Seq(), State: core.ClaimGone, Code: core.CodeMaxHold}}})
	r.receive(session.Message{Kind: session.KindTable, Stream: old, Last: true})
	if len(r.lost) != 1 || len(r.dead) != 0 {
		t.Fatal("a message of an older stream was believed")
	}
}

// A row of a claim that the client knows nothing of is cancelled.
func TestUnknownRowIsCancelled(t *testing.T) {
	r := opened(t, session.Config{})
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: 999, State: core.ClaimGranted, Token: 5})
	r.flush()
	if cmds := r.commands(); len(cmds) != 1 || cmds[0].Op != core.OpCancel || cmds[0].Target != 999 {
		t.Fatalf("sent %+v, want a cancel", cmds)
	}
}

// A release under way settles its claim: the table's row is no reason for more.
func TestReleasedRowIsLeftAlone(t *testing.T) {
	r := opened(t, session.Config{})
	a := r.hold("a", 0, sec(30))
	rel := r.submit(core.Command{Op: core.OpRelease, Target: a.Seq()})
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: a.Seq(), State: core.ClaimGranted, Token: 101})
	r.flush()
	if cmds := r.commands(); len(cmds) != 1 || cmds[0].Op != core.OpRelease || cmds[0].Seq != rel.Seq() {
		t.Fatalf("sent %+v, want the release alone", cmds)
	}
	if len(r.lost) != 0 {
		t.Fatal("a released hold was told as lost")
	}
}

// Scenario 37: "Two keepalives in flight, the first reply mapped with the
// second's send time."
func TestAnswersAreMatchedToTheirAttempt(t *testing.T) {
	r := opened(t, session.Config{})
	k1 := renewal(t, r.at(11))
	r.at(11 + 2.6).flush()
	k2 := renewal(t, r.at(11+2.6+0.7))
	if k1.Attempt == k2.Attempt {
		t.Fatal("attempts must differ")
	}
	r.at(15).renewed(k1.Attempt, sec(11.1), sec(41.1))
	r.wantDeadline(39, 11+30)
	r.at(15.1).renewed(k2.Attempt, sec(14.4), sec(44.4))
	r.wantDeadline(42, 14.4+30)
}

// Scenario 38: "Cancel of an upgrade that was just granted frees it while the
// caller believes in its shared hold."
func TestWithdrawnUpgradeKeepsTheSharedHold(t *testing.T) {
	r := opened(t, session.Config{})
	read := r.submit(core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "a", Kind: core.RWMutex, Mode: core.Shared}}})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: read.Seq(), Token: 5})
	up := r.submit(core.Command{Op: core.OpUpgrade, Target: read.Seq()})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: up.Seq(), Code: core.CodeQueued})
	_, actions := r.s.Abandon(r.now, up)
	r.take(actions)
	r.push(core.Push{Seq: up.Seq(), State: core.ClaimGranted, Token: 9})
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: up.Seq(), State: core.ClaimGranted, Token: 9},
		core.ClaimRow{Seq: read.Seq(), State: core.ClaimGone, Code: core.CodeLost})
	if len(r.lost) != 0 {
		t.Fatal("the shared hold was told as lost while the upgrade is being cancelled")
	}
	cmds := r.commands()
	if len(cmds) != 1 || cmds[0].Op != core.OpCancel || cmds[0].Target != up.Seq() {
		t.Fatalf("sent %+v, want the cancel of the upgrade", cmds)
	}
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: cmds[0].Seq})
	if r.flush()[0].Kind != session.KindAttach {
		t.Fatal("the shared hold was in doubt: want a new table")
	}
	r.table(true, core.ClaimRow{Seq: read.Seq(), State: core.ClaimGranted, Token: 5})
	if len(r.lost) != 0 {
		t.Fatal("the shared hold was lost")
	}
}

// The same, but the shared hold really is gone: it must be told once the
// upgrade is settled.
func TestLostBaseOfAWithdrawnUpgradeIsTold(t *testing.T) {
	r := opened(t, session.Config{})
	read := r.hold("a", 0, sec(30))
	up := r.submit(core.Command{Op: core.OpUpgrade, Target: read.Seq()})
	r.flush()
	_, actions := r.s.Abandon(r.now, up)
	r.take(actions)
	r.reconnect()
	r.table(true)
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: r.commands()[0].Seq})
	r.flush()
	r.table(true)
	if len(r.lost) != 1 || r.lost[0] != read {
		t.Fatalf("lost %v, want the shared hold", r.lost)
	}
}

func TestGrantedUpgradeReplacesItsBase(t *testing.T) {
	r := opened(t, session.Config{})
	read := r.hold("a", 0, sec(30))
	up := r.submit(core.Command{Op: core.OpUpgrade, Target: read.Seq()})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: up.Seq(), Token: 50})
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: up.Seq(), State: core.ClaimGranted, Token: 50})
	if len(r.lost) != 0 || len(r.done) != 2 {
		t.Fatalf("lost %v done %v", r.lost, r.done)
	}
}

// An upgrade that was granted and revoked before its holder knew has ended the
// shared hold too: it is told as lost before the revocation is confirmed.
func TestRevokedUpgradeEndsItsBase(t *testing.T) {
	for name, tell := range map[string]func(r *rig, up *session.Call){
		"reply": func(r *rig, up *session.Call) {
			r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: up.Seq(), Code: core.CodeRevoked, Token: 9})
		},
		"push": func(r *rig, up *session.Call) {
			r.push(core.Push{Seq: up.Seq(), State: core.ClaimRevoked, Code: core.CodeRevoked, Token: 9})
		},
	} {
		r := opened(t, session.Config{})
		read := r.hold("a", 0, sec(30))
		up := r.submit(core.Command{Op: core.OpUpgrade, Target: read.Seq()})
		r.flush()
		tell(r, up)
		if len(r.lost) != 1 || r.lost[0] != read || up.Result.Code != core.CodeRevoked {
			t.Fatalf("%s: lost %v, want the shared hold; code %v", name, r.lost, up.Result.Code)
		}
		r.flush()
		if cmds := r.commands(); len(cmds) != 1 || cmds[0].Op != core.OpCancel || cmds[0].Target != up.Seq() {
			t.Fatalf("%s: sent %+v, want the confirmation", name, cmds)
		}
	}
}

// A denied upgrade leaves the shared hold alone.
func TestDeniedUpgradeLeavesItsBase(t *testing.T) {
	r := opened(t, session.Config{})
	read := r.hold("a", 0, sec(30))
	up := r.submit(core.Command{Op: core.OpUpgrade, Target: read.Seq()})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: up.Seq(), Code: core.CodeConflict})
	r.reconnect()
	r.table(true, core.ClaimRow{Seq: read.Seq(), State: core.ClaimGranted, Token: 101})
	if sends := r.flush(); len(r.lost) != 0 || len(sends) != 0 {
		t.Fatalf("lost %v, sent %v", r.lost, sends)
	}
}

// Answers may come in any order; the deadline takes the best of them.
func TestOlderAnswerDoesNotMoveBack(t *testing.T) {
	r := opened(t, session.Config{})
	k1 := renewal(t, r.at(11))
	r.at(13.6).flush()
	k2 := renewal(t, r.at(14.3))
	r.at(15).renewed(k2.Attempt, sec(14.4), sec(44.4))
	high := r.deadline()
	r.at(15.1).renewed(k1.Attempt, sec(11.1), sec(41.1))
	if r.deadline() != high {
		t.Fatalf("deadline went from %d to %d", high, r.deadline())
	}
}

// reliability.md: a retried Open must really refresh. Asked of the machine
// itself: the answer to the second attempt is worth a whole TTL.
func TestRetriedOpenRefreshes(t *testing.T) {
	m := core.New(core.Config{})
	var out core.Output
	r := newRig(t, session.Config{})
	apply := func() {
		out.Reset()
		entry := core.AppendEntry(nil, &core.Entry{Now: sec(500) + r.now, Frames: [][]byte{r.last().Body}})
		if err := m.Apply(entry, &out); err != nil {
			t.Fatal(err)
		}
	}
	r.take(r.s.Connect(0))
	r.flush()
	apply()
	r.at(20).reconnect()
	apply()
	r.table(true)
	a := out.Replies[0]
	r.reply(a.Attempt, a.Now, a.Deadline, a.Results...)
	r.wantDeadline(20+28.5, 20+29.7)
}

// A grant that the client knows nothing of is cancelled, from wherever it is told.
func TestUnknownPushIsCancelled(t *testing.T) {
	r := opened(t, session.Config{})
	r.push(core.Push{Seq: 999, State: core.ClaimGranted, Token: 5})
	r.flush()
	if cmds := r.commands(); len(cmds) != 1 || cmds[0].Op != core.OpCancel || cmds[0].Target != 999 {
		t.Fatalf("sent %+v, want a cancel", cmds)
	}
}

// "The client maps any deadline X by the session's newest anchor": the newest
// by its send, not the one that came last.
func TestNewestAnchorIsTheLastSent(t *testing.T) {
	r := opened(t, session.Config{})
	c := r.submit(core.Command{Op: core.OpAcquire, MaxHold: sec(60), Wants: []core.Want{{Name: "a", Kind: core.Mutex}}})
	r.flush()
	r.reply(r.last().Attempt, 0, sec(30), core.Result{Seq: c.Seq(), Code: core.CodeQueued})
	k1 := renewal(t, r.at(11))
	r.at(13.6).flush()
	k2 := renewal(t, r.at(14.3))
	r.at(15).renewed(k2.Attempt, sec(14.4), sec(44.4))
	r.renewed(k1.Attempt, sec(11.1), sec(41.1))
	r.push(core.Push{Seq: c.Seq(), State: core.ClaimGranted, Token: 9, Deadline: sec(75)})
	if want := deadline.Map(sec(14.3), sec(14.4), sec(75), 30*time.Second); c.Deadline != want {
		t.Fatalf("deadline %d, want %d", c.Deadline, want)
	}
}
