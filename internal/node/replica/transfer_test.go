package replica_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// A leader that was to hand over to a node that does not answer goes on when an
// election timeout has passed.
func TestTransferToASilentNodeIsGivenUp(t *testing.T) {
	c := grown(t)
	c.put(1)
	before := c.nodes[1].Status().Revision
	c.silent = 2
	c.nodes[1].Transfer(c.now, 2)
	c.put(1)
	if s := c.nodes[1].Status(); s.Revision != before || s.Waiting == 0 {
		t.Fatalf("during the hand-over something was proposed: %+v", s)
	}
	c.ticks(12)
	if s := c.nodes[1].Status(); s.Revision == before || !s.Serving {
		t.Errorf("node 1 does not go on: %+v", s)
	}
}

// A lone founder needs no agreement, so its group has no founding.
func TestLoneFounderHasNoFounding(t *testing.T) {
	if got := replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1, Dir: 11}}).Snapshot.Conf.Founding; got != 0 {
		t.Errorf("founding %x, want 0", got)
	}
}

// A membership that is cut off anywhere is refused.
func TestMembershipCutOff(t *testing.T) {
	m := replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1, Peer: "a:1", Client: "b:2", Dir: 11}, {ID: 2, Dir: 22}}).Snapshot.Conf
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if _, err := replica.DecodeMembership(b[:i]); err == nil {
			t.Errorf("the first %d bytes of %d are taken for a membership", i, len(b))
		}
	}
	if _, err := replica.DecodeMembership(b); err != nil {
		t.Error(err)
	}
	if _, err := replica.DecodeMembership(append(b, 0)); err == nil {
		t.Error("a used number of 0 was taken")
	}
	old := append([]byte{1}, b[1:9]...) // version 1, without voters, with an endpoint of three bytes
	if _, err := replica.DecodeMembership(append(old, 0, 1, 2, 3)); err == nil {
		t.Error("an endpoint of version 1 that is cut off was taken")
	}
}
