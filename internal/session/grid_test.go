package session_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// cut is one point of the grid: a holder whose link is cut.
type cut struct {
	ttl            int64
	up, down       int64 // how long messages take
	client, server int64 // rates of the clocks, in hundredths
	beats          int   // keepalives before the cut
	deaf           bool  // the answer to the last one is lost with the link
}

// "On our own server a holder learns of its loss before anyone else can be
// granted": over all extremes of drift and delay, in true time, and not so early
// that the hold would be worth much less than its TTL.
func TestLostBeforeGrantedGrid(t *testing.T) {
	points := 0
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 30 * time.Second, 20 * time.Hour} {
		delays := []int64{0, int64(ttl) / 100, int64(ttl) / 20, int64(ttl) / 14}
		for _, up := range delays {
			for _, down := range delays {
				for _, rates := range [][2]int64{{99, 99}, {99, 100}, {99, 101}, {100, 101}, {100, 100}, {101, 99}, {101, 101}} {
					for beats := range 4 {
						for _, deaf := range []bool{false, true} {
							try(t, cut{int64(ttl), up, down, rates[0], rates[1], beats, deaf})
							points++
						}
					}
				}
			}
		}
	}
	t.Logf("%d points", points)
}

// try runs one point. True time is in r.now; the client's and the server's
// clock are made of it.
func try(t *testing.T, p cut) {
	t.Helper()
	m := core.New(core.Config{})
	var out core.Output
	apply := func(trueTime int64, e core.Entry) {
		out.Reset()
		e.Now = trueTime / 100 * p.server
		if err := m.Apply(core.AppendEntry(nil, &e), &out); err != nil {
			t.Fatal(err)
		}
	}
	s := session.New(session.Config{ID: testID, TTL: time.Duration(p.ttl)})
	now := int64(0)
	local := func() int64 { return now / 100 * p.client }

	s.Connect(local())
	s.Submit(local(), &session.Call{Command: core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "a", Kind: core.Mutex}}}})
	frame := append([]byte(nil), s.Flush(local())[1].Message.Body...)
	now += p.up
	apply(now, core.Entry{Frames: [][]byte{frame, waiter(p.ttl)}})
	now += p.down
	s.Receive(local(), &session.Message{Kind: session.KindTable, Session: testID, Stream: 1, Last: true})
	s.Receive(local(), &session.Message{Kind: session.KindReply, Session: testID, Stream: 1, Body: core.AppendReply(nil, &out.Replies[0])})

	for i := range p.beats {
		now = s.Wake() * 100 / p.client / 100 * 100
		for s.Wake() > local() {
			now += 100
		}
		k := s.Flush(local())[0].Message
		now += p.up
		apply(now, core.Entry{Renewals: []core.Renewal{{Session: testID, Attempt: k.Attempt}, {Session: core.SessionID{9}}}})
		now += p.down
		if i == p.beats-1 && p.deaf {
			break
		}
		r := out.Renewed[0]
		s.Receive(local(), &session.Message{Kind: session.KindRenewed, Session: testID, Stream: 1, Attempt: r.Attempt, Now: r.Now, Deadline: r.Deadline})
	}
	d, ok := s.Deadline()
	due, known := m.Due()
	if !ok || !known || !s.Alive() {
		t.Fatalf("%+v: no deadline to compare", p)
	}
	lost, granted := d*100/p.client, due*100/p.server
	apply(granted+100, core.Entry{})
	if len(out.Pushes) != 1 || out.Pushes[0].State != core.ClaimGranted {
		t.Fatalf("%+v: the waiter was not granted at %d: %+v", p, granted, out.Pushes)
	}
	if lost >= granted {
		t.Fatalf("%+v: lost at %s, granted to the next at %s", p, time.Duration(lost), time.Duration(granted))
	}
	late := p.ttl/20 + p.up + 100*ms
	if p.beats > 0 && p.deaf {
		late += p.ttl * 37 / 100
	}
	if granted-lost > late {
		t.Fatalf("%+v: lost %s before it had to be", p, time.Duration(granted-lost))
	}
}

// waiter is a frame of another session that waits for the lock and lives longer.
func waiter(ttl int64) []byte {
	return core.AppendFrame(nil, &core.Frame{Session: core.SessionID{9}, Attempt: 1, Mark: 1, Commands: []core.Command{
		{Op: core.OpOpen, TTL: min(4*ttl, int64(24*time.Hour))},
		{Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "a", Kind: core.Mutex}}},
	}})
}
