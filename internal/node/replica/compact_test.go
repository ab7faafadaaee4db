package replica_test

import (
	"math"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// compacted proposes entries of about 1 KiB to a node alone until it compacts its
// log, and returns how many entries it keeps below the snapshot.
func compacted(t *testing.T, cfg replica.Config) uint64 {
	t.Helper()
	cfg.ID = 1
	n, err := replica.New(cfg, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	id := core.SessionID{7}
	put := core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Value: make([]byte, 1000)}}}
	for seq := range uint64(1000) {
		put.Seq = seq + 1
		f := core.Frame{Session: id, Attempt: seq + 1, Mark: seq + 1, Commands: []core.Command{put}}
		if seq == 0 {
			f.Commands = append([]core.Command{open()}, put)
		}
		n.Submit(1, 5, core.AppendFrame(nil, &f))
		for out := n.Output(); ; out = n.Output() {
			if out.Compact > 0 {
				return n.Status().SnapshotIndex - out.Compact
			}
			if out.Snapshot != nil {
				chunksOf(n, out.Snapshot.Index)
				n.SnapshotSaved(1, out.Snapshot.Index, true)
				continue
			}
			if len(out.Writes) == 0 {
				break
			}
			n.Written(1, out.Writes[len(out.Writes)-1].ID)
		}
	}
	t.Fatal("the log is never compacted")
	return 0
}

// chunksOf are all of the snapshot that a node is making.
func chunksOf(n *replica.Node, index uint64) (all [][]byte) {
	for {
		c := n.SnapshotNext(index, nil, 1<<20)
		if all = append(all, c.Data); c.Last {
			return all
		}
	}
}

// Entries can be large, so what is kept of the log is bounded in bytes, too.
func TestTrailingIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		cfg         replica.Config
		least, most uint64
	}{
		"bytes":   {replica.Config{SnapshotBytes: 50 << 10, TrailingBytes: 10 << 10}, 8, 10},
		"entries": {replica.Config{SnapshotBytes: 50 << 10, Trailing: 5}, 5, 5},
		// Most of these are not in memory any more.
		"many bytes":   {replica.Config{SnapshotBytes: 600 << 10, TrailingBytes: 300 << 10}, 280, 300},
		"many entries": {replica.Config{SnapshotBytes: 600 << 10, Trailing: 300}, 300, 300},
		"all entries":  {replica.Config{SnapshotBytes: 600 << 10, TrailingBytes: 300 << 10, Trailing: math.MaxUint64}, 280, 300},
	} {
		if kept := compacted(t, c.cfg); kept < c.least || kept > c.most {
			t.Errorf("%s: %d entries of 1 KiB are kept, want %d to %d", name, kept, c.least, c.most)
		}
	}
}
