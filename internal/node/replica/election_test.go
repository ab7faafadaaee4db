package replica_test

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// TestElectionTimeout: a follower that hears no leader asks for votes after ElectionTicks, by
// default ten, and not before; and before twice as many have passed, at random, so that two
// followers seldom ask at once.
func TestElectionTimeout(t *testing.T) {
	for ticks, cfg := range map[int]replica.Config{10: {}, 4: {ElectionTicks: 4}} {
		x := newTrioOf(t, cfg)
		x.now += tick
		x.nodes[1].Tick(x.now) // all hear the leader for the last time
		x.settle()
		asked := 0
		for n := 1; asked == 0 && n <= 3*ticks; n++ {
			x.now += tick
			x.nodes[2].Tick(x.now)
			if slices.ContainsFunc(x.nodes[2].Output().Messages, asksForVotes) {
				asked = n
			}
		}
		if asked < ticks || asked >= 2*ticks {
			t.Errorf("with %d ElectionTicks a follower asked for votes after %d ticks; 0: not in time", ticks, asked)
		}
	}
}

// asksForVotes reports whether a message begins an election.
func asksForVotes(m replica.Message) bool { return typeOf(m) == raftpb.MsgPreVote }

// A follower is current when it has applied something of the leader's term: what it had applied before
// may not have the leader, or where it is now.
func TestCurrent(t *testing.T) {
	x := newTrio(t)
	st := x.nodes[2].Status()
	if st.Leader != 1 || !st.Current {
		t.Fatalf("beside the leader, which it has heard: %+v", st)
	}
	m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(3)), To: new(uint64(2)), Term: new(st.Term + 1)}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.nodes[2].Step(x.now, b); err != nil {
		t.Fatal(err)
	}
	if st := x.nodes[2].Status(); st.Leader != 3 || st.Current {
		t.Errorf("after the first word of the next leader: %+v", st)
	}
}
