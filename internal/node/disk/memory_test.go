package disk_test

import (
	"runtime"
	"testing"
	"weak"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// What is written is the node's to keep or to forget: the disk holds on to none
// of it.
func TestWrittenEntriesAreNotKept(t *testing.T) {
	first := []replica.Endpoint{{ID: 1}}
	d, rec, err := disk.Open(simdisk.New(), "data", storage.Options{ClusterID: 1, NodeID: 1}, replica.Bootstrap(core.Config{}, first))
	must(t, err)
	defer d.Close()
	var written []weak.Pointer[byte]
	for i := range uint64(10) {
		data := make([]byte, 4<<10)
		written = append(written, weak.Make(&data[0]))
		e := &raftpb.Entry{Index: new(rec.Snapshot.Index + 1 + i), Term: new(uint64(1)), Data: data}
		must(t, d.Write([]replica.Write{{ID: i + 1, Entries: []*raftpb.Entry{e}, Sync: true}}))
	}
	runtime.GC()
	for i, w := range written {
		if w.Value() != nil {
			t.Errorf("write %d of %d is still in memory", i+1, len(written))
		}
	}
}
