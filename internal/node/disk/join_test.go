package disk_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// A node that is to join and has no state yet keeps its term and vote over a
// crash: without them it could vote twice, or be led by a leader of the past.
func TestJoiningNodeKeepsItsVote(t *testing.T) {
	files, o := simdisk.New(), storage.Options{ClusterID: 1, NodeID: 4, Salt: 4}
	joining := replica.Joining(core.Config{})
	d, rec, err := disk.Open(files, "data", o, joining)
	if err != nil || rec.HardState != nil {
		t.Fatalf("a new node begins with %v, %v", rec.HardState, err)
	}
	vote := replica.Write{ID: 1, HardState: &raftpb.HardState{Term: new(uint64(4)), Vote: new(uint64(2)), Commit: new(uint64(0))}, Sync: true}
	if err := d.Write([]replica.Write{vote}); err != nil {
		t.Fatal(err)
	}
	d, rec, err = disk.Open(files.Crash(func(int) int { return 0 }), "data", o, joining)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if h := rec.HardState; h.GetTerm() != 4 || h.GetVote() != 2 {
		t.Errorf("after a crash it begins with %v, want term 4 and its vote for 2", h)
	}
}
