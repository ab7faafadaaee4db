package session_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

const ms = int64(time.Millisecond)

// sec is a time of the scripts, in seconds.
func sec(s float64) int64 { return int64(s * 1e9) }

var testID = core.SessionID{1, 2, 3}

// rig is a session whose server is the test itself. The client's clock and
// cluster time both start at 0 unless a script says otherwise.
type rig struct {
	t     *testing.T
	s     *session.Session
	ttl   time.Duration
	now   int64
	sends []session.Message // with Bodies of their own
	frame []core.Frame      // decoded, beside sends

	queued, done, lost []*session.Call
	codes              []core.Code // of lost
	dead               []session.Cause
	redials, overs     int
	pushes             uint64
}

func newRig(t *testing.T, cfg session.Config) *rig {
	t.Helper()
	cfg.ID = testID
	if cfg.TTL == 0 {
		cfg.TTL = 30 * time.Second
	}
	return &rig{t: t, s: session.New(cfg), ttl: cfg.TTL}
}

// opened brings a session to life at time 0, with cluster time 0.
func opened(t *testing.T, cfg session.Config) *rig {
	t.Helper()
	r := newRig(t, cfg)
	r.take(r.s.Connect(r.now))
	r.flush()
	r.table(false)
	r.reply(r.last().Attempt, 0, int64(r.ttl), core.Result{Window: 1024})
	if !r.s.Opened() {
		t.Fatal("the session did not open")
	}
	return r
}

func (r *rig) take(actions []session.Action) {
	r.t.Helper()
	for _, a := range actions {
		switch a.Kind {
		case session.Send:
			r.send(a.Message)
		case session.Queued:
			r.queued = append(r.queued, a.Call)
		case session.Done:
			r.done = append(r.done, a.Call)
		case session.Lost:
			r.lost, r.codes = append(r.lost, a.Call), append(r.codes, a.Code)
		case session.SessionOver:
			r.dead = append(r.dead, a.Cause)
		case session.Redial, session.Silent:
			r.redials++
		case session.Over:
			r.overs++
		}
	}
}

func (r *rig) send(m session.Message) {
	r.t.Helper()
	m.Body = slices.Clone(m.Body)
	var f core.Frame
	if m.Kind == session.KindFrame {
		if err := core.DecodeNew(m.Body, &f); err != nil {
			r.t.Fatalf("frame: %v", err)
		}
		m.Attempt = f.Attempt
	}
	r.sends, r.frame = append(r.sends, m), append(r.frame, f)
}

func (r *rig) at(s float64) *rig { r.now = sec(s); return r }

// flush returns what was sent by it.
func (r *rig) flush() []session.Message {
	r.t.Helper()
	n := len(r.sends)
	r.take(r.s.Flush(r.now))
	return r.sends[n:]
}

func (r *rig) last() session.Message { return r.sends[len(r.sends)-1] }

// commands are those of the last frame sent.
func (r *rig) commands() []core.Command { return r.frame[len(r.frame)-1].Commands }

func (r *rig) submit(c core.Command) *session.Call {
	r.t.Helper()
	call := &session.Call{Command: c}
	r.take(r.s.Submit(r.now, call))
	return call
}

func (r *rig) acquire(name string) *session.Call {
	r.t.Helper()
	return r.submit(core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: name, Kind: core.Mutex}}})
}

func (r *rig) receive(m session.Message) {
	r.t.Helper()
	m.Session = testID
	if m.Stream == 0 {
		m.Stream = r.s.Stream()
	}
	if m.Pushes == 0 {
		m.Pushes = r.pushes
	}
	r.take(r.s.Receive(r.now, &m))
}

func (r *rig) reply(attempt uint64, n, e int64, results ...core.Result) {
	r.t.Helper()
	r.receive(session.Message{Kind: session.KindReply, Body: core.AppendReply(nil, &core.Reply{
		Session: testID, Attempt: attempt, Now: n, Deadline: e, Results: results,
	})})
}

func (r *rig) renewed(attempt uint64, n, e int64) {
	r.t.Helper()
	r.receive(session.Message{Kind: session.KindRenewed, Attempt: attempt, Now: n, Deadline: e})
}

func (r *rig) push(row core.Push) {
	r.t.Helper()
	r.pushes++
	r.receive(session.Message{Kind: session.KindPush, Rows: []core.ClaimRow{row}})
}

func (r *rig) table(known bool, rows ...core.ClaimRow) {
	r.t.Helper()
	r.receive(session.Message{Kind: session.KindTable, Known: known, Last: true, Rows: rows})
}

// reconnect moves the session to a new stream, without a table yet.
func (r *rig) reconnect() []session.Message {
	r.t.Helper()
	r.take(r.s.Disconnect(r.now))
	r.take(r.s.Connect(r.now))
	r.pushes = 0
	return r.flush()
}

// hold gets a lock granted at once, at cluster time n with session deadline e.
func (r *rig) hold(name string, n, e int64) *session.Call {
	r.t.Helper()
	c := r.acquire(name)
	r.flush()
	r.reply(r.last().Attempt, n, e, core.Result{Seq: c.Seq(), Code: core.CodeOK, Token: 100 + c.Seq()})
	if !slices.Contains(r.done, c) || c.Outcome != session.Answered {
		r.t.Fatalf("%s was not granted", name)
	}
	return c
}

func (r *rig) deadline() int64 {
	d, _ := r.s.Deadline()
	return d
}

func (r *rig) wantDeadline(low, high float64) {
	r.t.Helper()
	if d := r.deadline(); d < sec(low) || d > sec(high) {
		r.t.Fatalf("deadline %.3f s, want %.3f to %.3f", float64(d)/1e9, low, high)
	}
}
