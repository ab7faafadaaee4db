package replica_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/server/replica"
	"github.com/holdfast-io/holdfast/session"
)

// A node alone answers a renewal without waiting for a tick, which may be longer
// than its shortest session can wait.
func TestRenewalAloneNeedsNoTick(t *testing.T) {
	n, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	x := &trio{t: t, now: 1}
	id := core.SessionID{7}
	renewal := session.AppendMessage(nil, &session.Message{Kind: session.KindRenewal, Session: id, Stream: 1, Attempt: 2})
	var got []session.MessageKind
	for _, m := range [][]byte{nil, attach(id, 1), frame(id, 1, open()), renewal} {
		if err := n.Receive(x.now, 5, m); err != nil {
			t.Fatal(err)
		}
		got = append(got, kinds(x.alone(n))...)
	}
	if want := session.KindRenewed; got[len(got)-1] != want {
		t.Errorf("a renewal made the answers end in %d, want %d", got, want)
	}
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
