package session_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// duo is a rig whose server is the real machine: the test decides which of the
// messages sent arrive, and when.
type duo struct {
	*rig
	m   *core.Machine
	out core.Output
}

func newDuo(t *testing.T) *duo {
	d := &duo{rig: newRig(t, session.Config{}), m: core.New(core.Config{})}
	d.take(d.s.Connect(0))
	d.arrive(d.flush()...)
	if !d.s.Opened() {
		t.Fatal("the session did not open")
	}
	return d
}

// arrive lets messages reach the server in one entry and delivers the answers.
func (d *duo) arrive(ms ...session.Message) {
	d.t.Helper()
	e := core.Entry{Now: sec(500) + d.now}
	for _, m := range ms {
		switch m.Kind {
		case session.KindAttach:
			rows, known := d.m.Table(testID)
			d.receive(session.Message{Kind: session.KindTable, Stream: m.Stream, Known: known, Last: true, Rows: rows})
		case session.KindFrame:
			e.Frames = append(e.Frames, m.Body)
		case session.KindRenewal:
			e.Renewals = append(e.Renewals, core.Renewal{Session: testID, Attempt: m.Attempt, TTL: m.TTL})
		}
	}
	d.apply(e)
}

func (d *duo) apply(e core.Entry) {
	d.t.Helper()
	d.out.Reset()
	if err := d.m.Apply(core.AppendEntry(nil, &e), &d.out); err != nil {
		d.t.Fatal(err)
	}
	for i := range d.out.Replies {
		r := d.out.Replies[i]
		d.reply(r.Attempt, r.Now, r.Deadline, r.Results...)
	}
	for _, r := range d.out.Renewed {
		d.renewed(r.Attempt, r.Now, r.Deadline)
	}
	for _, p := range d.out.Pushes {
		d.push(p)
	}
}

// free reports whether nobody holds or awaits a name.
func (d *duo) free(name string) bool {
	info, ok := d.m.Inspect("default", name)
	return !ok || len(info.Holders)+len(info.Waiters) == 0
}

// Scenario 12: "Cancel overtakes its Acquire on another stream; the Acquire then
// queues and is granted to nobody."
func TestCancelOvertakesItsAcquire(t *testing.T) {
	d := newDuo(t)
	c := d.acquire("a")
	late := d.flush()[0]
	_, actions := d.s.Abandon(d.now, c)
	d.take(actions)
	d.now = sec(1)
	d.arrive(d.reconnect()...)
	d.arrive(late)
	if !d.free("a") {
		t.Fatal("the lock is held by nobody")
	}
}

// Scenario 12: "A buffered Open+Acquire of an old stream re-creates a closed
// session", whether or not the server had seen the session before.
func TestEndOvertakesItsOpen(t *testing.T) {
	for _, seen := range []bool{false, true} {
		d := &duo{rig: newRig(t, session.Config{}), m: core.New(core.Config{})}
		d.take(d.s.Connect(0))
		d.acquire("a")
		late := d.flush()
		if seen {
			d.arrive(late...)
		}
		d.take(d.s.End(d.now))
		d.now = sec(1)
		d.arrive(d.reconnect()...)
		if d.overs != 1 {
			t.Fatalf("seen %v: the end was not answered", seen)
		}
		d.arrive(late...)
		if _, known := d.m.Session(testID); known || !d.free("a") {
			t.Fatalf("seen %v: a closed session lives again", seen)
		}
	}
}

// Scenario 36: "Acquire(5) known from the table, Release(6) applied, the old
// stream's Acquire(5) arrives: granted to nobody."
func TestLateAcquireAfterItsRelease(t *testing.T) {
	d := newDuo(t)
	c := d.acquire("a")
	first := d.flush()[0]
	d.now = sec(1)
	d.arrive(d.reconnect()...)
	if len(d.done) != 1 || c.Result.Token == 0 {
		t.Fatal("the retry was not granted")
	}
	d.submit(core.Command{Op: core.OpRelease, Target: c.Seq()})
	d.arrive(d.flush()...)
	d.arrive(first)
	if !d.free("a") {
		t.Fatal("the lock is held by nobody")
	}
}

// Scenario 38, with the machine: the upgrade is granted while its cancel is on
// the way; the caller keeps its shared hold, with its old token.
func TestCancelOfAGrantedUpgrade(t *testing.T) {
	d := newDuo(t)
	want := []core.Want{{Name: "a", Kind: core.RWMutex, Mode: core.Shared}}
	read := d.submit(core.Command{Op: core.OpAcquire, Wants: want})
	other := d.submit(core.Command{Op: core.OpAcquire, Wants: want})
	d.arrive(d.flush()...)
	up := d.submit(core.Command{Op: core.OpUpgrade, Target: read.Seq()})
	d.arrive(d.flush()...)
	if len(d.queued) != 1 {
		t.Fatal("the upgrade does not wait for the other reader")
	}
	_, actions := d.s.Abandon(d.now, up)
	d.take(actions)
	cancel := d.flush()
	d.submit(core.Command{Op: core.OpRelease, Target: other.Seq()})
	d.arrive(d.flush()...)
	d.arrive(cancel...)
	d.arrive(d.reconnect()...)
	info, _ := d.m.Inspect("default", "a")
	if len(d.lost) != 0 || len(info.Holders) != 1 || info.Holders[0].Token != read.Result.Token || info.Holders[0].Mode != core.Shared {
		t.Fatalf("lost %v, holders %+v; want the shared hold with token %d", d.lost, info.Holders, read.Result.Token)
	}
}

// A cancelled upgrade whose shared hold was released meanwhile leaves nothing
// behind: the release came first and found the hold upgraded, and the cancel then
// brought it back, which nobody holds any more.
func TestCancelledUpgradeLeavesNoReleasedHold(t *testing.T) {
	d := newDuo(t)
	want := []core.Want{{Name: "a", Kind: core.RWMutex, Mode: core.Shared}}
	read := d.submit(core.Command{Op: core.OpAcquire, Wants: want})
	d.arrive(d.flush()...)
	up := d.submit(core.Command{Op: core.OpUpgrade, Target: read.Seq()})
	upgrade := d.flush()
	_, actions := d.s.Abandon(d.now, up)
	d.take(actions)
	cancel := d.flush()
	d.submit(core.Command{Op: core.OpRelease, Target: read.Seq()})
	release := d.flush()
	d.arrive(upgrade...)
	d.arrive(release...)
	d.arrive(cancel...)
	d.arrive(d.flush()...)
	if info, _ := d.m.Inspect("default", "a"); len(info.Holders) != 0 {
		t.Fatalf("held by %+v, but nobody knows it", info.Holders)
	}
}

// Scenario 4: "Force release hands the lock to the next waiter while the cut-off
// holder still believes": it waits for the confirmation.
func TestForcedHoldIsConfirmed(t *testing.T) {
	d := newDuo(t)
	c := d.acquire("a")
	d.arrive(d.flush()...)
	d.submit(core.Command{Op: core.OpForce, Name: "a", Token: c.Result.Token})
	d.arrive(d.flush()...)
	if len(d.lost) != 1 || d.free("a") {
		t.Fatalf("lost %d times; free %v before the holder confirmed", len(d.lost), d.free("a"))
	}
	d.submit(core.Command{Op: core.OpRelease, Target: c.Seq()})
	d.arrive(d.flush()...)
	if !d.free("a") {
		t.Fatal("not free although the holder confirmed")
	}
}
