package disk_test

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/server/disk"
	"github.com/holdfast-io/holdfast/server/replica"
	"github.com/holdfast-io/holdfast/server/storage"
	"github.com/holdfast-io/holdfast/server/storage/simdisk"
)

// A snapshot that has come whole can be installed also if another has begun to
// come meanwhile: raft wanted the first before it heard of the second.
func TestInstall_WhileAnotherComes(t *testing.T) {
	sender, o := simdisk.New(), storage.Options{ClusterID: 1, NodeID: 1}
	from, rec, err := disk.Open(sender, "data", o, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	must(t, err)
	r, err := from.OpenSnapshot(rec.Snapshot.Index)
	must(t, err)
	var body bytes.Buffer
	_, err = body.ReadFrom(r)
	must(t, err)
	meta, sum := r.Meta(), r.Sum()

	o.NodeID = 2
	d, _, err := disk.Open(simdisk.New(), "data", o, replica.Joining(core.Config{}))
	must(t, err)
	defer d.Close()
	receive(t, d, meta, sum, body.Bytes())
	_, err = d.Receive(meta)
	must(t, err)
	must(t, d.Write([]replica.Write{{ID: 1, Install: &rec.Snapshot, Sync: true}}))
}

func receive(t *testing.T, d *disk.Disk, m storage.SnapshotMeta, sum [sha256.Size]byte, body []byte) {
	t.Helper()
	in, err := d.Receive(m)
	must(t, err)
	_, err = in.Write(body)
	must(t, err)
	_, err = in.End(sum)
	must(t, err)
}
