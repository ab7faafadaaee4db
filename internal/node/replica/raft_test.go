package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A node encodes every entry in the same room, since raft keeps a copy.
func TestRaftCopiesWhatIsProposed(t *testing.T) {
	log := raft.NewMemoryStorage()
	meta := &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1}}}
	if err := log.ApplySnapshot(&raftpb.Snapshot{Metadata: meta}); err != nil {
		t.Fatal(err)
	}
	n, err := raft.NewRawNode(&raft.Config{ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: log, Applied: 1, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 1, AsyncStorageWrites: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Campaign(); err != nil {
		t.Fatal(err)
	}
	for {
		data := []byte("first")
		if n.Propose(data) == nil {
			copy(data, "SECOND")
		}
		for _, m := range n.Ready().Messages {
			for _, e := range m.GetEntries() {
				if d := string(e.GetData()); d == "first" {
					return
				} else if d != "" {
					t.Fatalf("an entry changed to %q after it was proposed", d)
				}
			}
			for _, r := range m.GetResponses() {
				if err := n.Step(r); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
