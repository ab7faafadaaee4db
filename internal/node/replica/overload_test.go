package replica_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
)

// busy is a node alone whose disk is slow: sessions 1 and 2 are open, they and 3
// are attached to stream 5, and what comes from now on waits.
func busy(t *testing.T, cfg replica.Config) (*trio, *replica.Node) {
	t.Helper()
	cfg.ID, cfg.MinTTL = 1, 1e9
	n, err := replica.New(cfg, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	x := &trio{t: t, now: 1}
	x.alone(n)
	for i := range byte(3) {
		x.send(n, attach(core.SessionID{i + 1}, 1))
		x.alone(n)
		if i < 2 {
			x.send(n, frame(core.SessionID{i + 1}, 1, open()))
			x.alone(n)
		}
	}
	for n.Status().Flying < 2 {
		x.send(n, frame(core.SessionID{1}, 1, core.Command{Op: core.OpCount, Seq: 1, Name: "n"}))
		x.answers(n)
	}
	return x, n
}

func (x *trio) send(n *replica.Node, m []byte) {
	x.t.Helper()
	if err := n.Receive(x.now, 5, m); err != nil {
		x.t.Fatal(err)
	}
}

// answers are what the node says without its disk.
func (x *trio) answers(n *replica.Node) (frames []session.Message) {
	for _, f := range n.Output().Frames {
		frames = append(frames, x.decode(f.Data)...)
	}
	return frames
}

// fill lets that many commands wait.
func (x *trio) fill(n *replica.Node, commands int) {
	for range commands {
		x.send(n, frame(core.SessionID{1}, 1, core.Command{Op: core.OpRelease, Seq: 1, Target: 9}))
	}
	x.answers(n)
}

// As the queue fills, new sessions are refused first, then grants, and
// keepalives and releases last; everybody is told when to come back.
func TestOverloadOrder(t *testing.T) {
	two, three := core.SessionID{2}, core.SessionID{3}
	acquire, release := core.Command{Op: core.OpAcquire, Seq: 1}, core.Command{Op: core.OpRelease, Seq: 2, Target: 9}
	for what, c := range map[string]struct {
		m    []byte
		most int // so many may wait before it
	}{
		"a renewal":                 {session.AppendMessage(nil, &session.Message{Kind: session.KindRenewal, Session: two, Stream: 1, Attempt: 2}), 80},
		"a release":                 {frame(two, 1, release), 80},
		"an acquire with a release": {frame(two, 1, acquire, release), 80},
		"an open of what is open":   {frame(two, 1, open()), 80},
		"an acquire":                {frame(two, 1, acquire), 60},
		"a plain call's acquire":    {frame(two, 1, open(), acquire), 60},
		"a new session":             {frame(three, 1, open(), release), 50},
	} {
		for waits := 40; waits <= 80; waits++ {
			x, n := busy(t, replica.Config{MaxCommands: 80})
			x.fill(n, waits)
			if got := n.Status().Waiting; got != waits {
				t.Fatalf("%d wait, not %d", got, waits)
			}
			x.send(n, c.m)
			said := x.answers(n)
			refused := len(said) == 1 && said[0].Refusal == session.RefusedBusy && said[0].RetryAfter > 0
			if taken := len(said) == 0; taken != (waits < c.most) || refused == taken {
				t.Errorf("%s while %d wait: %+v", what, waits, said)
			}
		}
	}
}

// What is too long for the queue is refused by its bytes.
func TestOverloadByBytes(t *testing.T) {
	x, n := busy(t, replica.Config{MaxQueue: 8 << 10})
	refused := 0
	for range 100 {
		x.send(n, frame(core.SessionID{2}, 1, core.Command{Op: core.OpCount, Seq: 1, Name: strings.Repeat("x", 400)}))
		refused += len(x.answers(n))
	}
	if refused < 80 || refused > 90 {
		t.Errorf("%d of 100 were refused, where 15 fit", refused)
	}
}

// However much waits, keepalives are in the next entry.
func TestRenewalsOvertake(t *testing.T) {
	x, n := busy(t, replica.Config{MaxEntry: 1 << 10})
	for i := range 100 {
		x.send(n, frame(core.SessionID{1}, 1, core.Command{Op: core.OpCount, Seq: uint64(i + 2), Name: strings.Repeat("x", 100)}))
	}
	n.Renew(x.now, 9, core.Renewal{Session: core.SessionID{2}})
	if got := n.Status().Waiting; got != 101 {
		t.Fatalf("%d wait", got)
	}
	out := n.Output()
	for len(out.Answers) == 0 && n.Status().Waiting > 80 {
		n.Written(x.now, math.MaxUint64)
		out = n.Output()
	}
	if len(out.Answers) != 1 || out.Answers[0].Caller != 9 {
		t.Errorf("%d wait, and the answers are %+v", n.Status().Waiting, out.Answers)
	}
}

// A leader puts its quotas into the log, once.
func TestLeaderSetsQuota(t *testing.T) {
	x, n := busy(t, replica.Config{Quota: core.Quota{Sessions: 2, Keys: 7}, Namespaces: 1})
	n.Written(x.now, math.MaxUint64)
	x.alone(n)
	if q := n.Machine().Quota(); q.Sessions != 2 || q.Keys != 7 || q.Waiters != 10_000 {
		t.Errorf("the quota is %+v", q)
	}
	for id, text := range map[byte]string{3: "--max-sessions", 4: "--max-namespaces"} {
		c := open()
		if id == 4 {
			c.Namespace = "another"
		}
		n.Submit(x.now, 9, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{id}, Mark: 1, Commands: []core.Command{c}}))
		if said := refusalOf(t, n, x.now); !strings.Contains(said, text) {
			t.Errorf("session %d: %q does not say %s", id, said, text)
		}
	}
}

// The End of a session that is not there makes no namespace that Open could not make: what it
// leaves would stay for ever. One that is there ends, whatever its End says.
func TestEndMakesNoNamespace(t *testing.T) {
	x, n := busy(t, replica.Config{Namespaces: 1})
	n.Written(x.now, math.MaxUint64)
	x.alone(n)
	for ns, text := range map[string]string{"another": "--max-namespaces", strings.Repeat("x", 513): "513 bytes", "\xff": "UTF-8"} {
		n.Submit(x.now, 9, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{7}, Mark: 1, Commands: []core.Command{{Op: core.OpEnd, Namespace: ns}}}))
		if said := refusalOf(t, n, x.now); !strings.Contains(said, text) {
			t.Errorf("an End in %.20q: %q does not say %q", ns, said, text)
		}
	}
	x.send(n, frame(core.SessionID{2}, 1, core.Command{Op: core.OpEnd, Namespace: replica.Reserved + "x"}))
	if said := x.answers(n); len(said) != 1 || said[0].Code != core.CodePermission {
		t.Errorf("an End in a namespace of the server's own, over a stream: %+v", said)
	}
	n.Submit(x.now, 9, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{1}, Mark: 1, Commands: []core.Command{{Op: core.OpEnd, Namespace: "another"}}}))
	refusalOf(t, n, x.now)
	if m := n.Machine(); m.Namespaces() != 1 || m.Sessions() != 1 {
		t.Errorf("%d namespaces, %d sessions", m.Namespaces(), m.Sessions())
	}
}

// refusalOf is what the caller is told.
func refusalOf(t *testing.T, n *replica.Node, now int64) string {
	t.Helper()
	for {
		out := n.Output()
		for _, a := range out.Answers {
			var r core.Reply
			if a.Outcome != replica.Done {
				return fmt.Sprint(a.Code, a.Text)
			}
			if err := core.DecodeReply(a.Data, &r); err != nil {
				t.Fatal(err)
			}
			return r.Results[0].Text
		}
		if len(out.Writes) == 0 && n.Status().Flying == 0 {
			t.Fatal("no answer")
		}
		n.Written(now, math.MaxUint64)
	}
}
