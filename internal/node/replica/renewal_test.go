package replica_test

import (
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
)

// A renewal of a session that is too short to wait for a tick is answered without
// one; of others those of a tick share a write.
func TestShortSessionsNeedNoTick(t *testing.T) {
	for ttl, want := range map[int64]session.MessageKind{1e9: session.KindRenewed, 30e9: session.KindReply} {
		if got := afterRenewal(t, ttl); got != want {
			t.Errorf("TTL %d s: the last answer to a renewal without a tick is %d, want %d", ttl/1e9, got, want)
		}
	}
}

func afterRenewal(t *testing.T, ttl int64) session.MessageKind {
	n, err := replica.New(replica.Config{ID: 1, MinTTL: 1e9}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	x := &trio{t: t, now: 1}
	id := core.SessionID{7}
	renewal := session.AppendMessage(nil, &session.Message{Kind: session.KindRenewal, Session: id, Stream: 1, Attempt: 2})
	var got []session.MessageKind
	for _, m := range [][]byte{nil, attach(id, 1), frame(id, 1, core.Command{Op: core.OpOpen, TTL: ttl}), renewal} {
		if err := n.Receive(x.now, 5, m); err != nil {
			t.Fatal(err)
		}
		got = append(got, kinds(x.alone(n))...)
	}
	return got[len(got)-1]
}

// alone writes until there is nothing left to do.
func (x *trio) alone(n *replica.Node) (frames []session.Message) {
	for {
		out := n.Output()
		for _, f := range out.Frames {
			frames = append(frames, x.decode(f.Data)...)
		}
		if len(out.Writes) == 0 {
			return frames
		}
		n.Written(x.now, out.Writes[len(out.Writes)-1].ID)
	}
}

// Nobody opens a session in the server's own namespaces over a stream.
func TestReservedNamespace(t *testing.T) {
	n, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	x := &trio{t: t, now: 1}
	id := core.SessionID{7}
	var got []session.Message
	for _, m := range [][]byte{nil, attach(id, 1), frame(id, 1, core.Command{Op: core.OpOpen, TTL: 30e9, Namespace: replica.Reserved + "x"})} {
		if err := n.Receive(x.now, 5, m); err != nil {
			t.Fatal(err)
		}
		got = append(got, x.alone(n)...)
	}
	if last := got[len(got)-1]; last.Kind != session.KindRefused || last.Code != core.CodePermission {
		t.Errorf("the answer is %+v", last)
	}
}

// A renewal for less than nothing is refused: an entry with it could be applied by no node.
func TestRenewalForLessThanNothing(t *testing.T) {
	n, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	x := &trio{t: t, now: 1}
	id := core.SessionID{7}
	for _, m := range [][]byte{nil, attach(id, 1), frame(id, 1, core.Command{Op: core.OpOpen, TTL: 30e9})} {
		if err := n.Receive(x.now, 5, m); err != nil {
			t.Fatal(err)
		}
		x.alone(n)
	}
	renewal := session.AppendMessage(nil, &session.Message{Kind: session.KindRenewal, Session: id, Stream: 1, Attempt: 2, TTL: -1})
	if err := n.Receive(x.now, 5, renewal); !errors.Is(err, session.ErrMalformed) {
		t.Errorf("got %v", err)
	}
	n.Renew(x.now, 6, core.Renewal{Session: id, TTL: -1})
	if a := n.Output().Answers; len(a) != 1 || a[0].Code != core.CodeInvalid {
		t.Errorf("without a stream: %+v", a)
	}
	n.Tick(x.now)
	x.alone(n)
	if err := n.Err(); err != nil {
		t.Error("the node has ended:", err)
	}
}
