package server

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// A caller that would write itself leaves it to the writer while the disk is in use, and the
// writer leaves the disk to it.
func TestWriter_OneAtATime(t *testing.T) {
	d, _, err := disk.Open(simdisk.New(), "data", storage.Options{ClusterID: 1, NodeID: 1, SegmentSize: 64 << 10}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var w *writer
	told, other := 0, make(chan struct{})
	w = newWriter(d, func(_ disk.Job, _ error) {
		told++
		w.add(disk.Job{Run: func(*disk.Disk) error { close(other); return nil }, Then: func(error) {}})
	})
	if w.now([]replica.Write{{ID: 1, Install: &replica.SnapshotMeta{Index: 9}}}) {
		t.Error("an installation, which must not be done again, was not left to the writer")
	}
	begun, end := make(chan struct{}), make(chan struct{})
	w.add(disk.Job{Run: func(*disk.Disk) error { close(begun); <-end; return nil }, Then: func(error) {}})
	<-begun
	if w.now(nil) {
		t.Error("written while another used the disk")
	}
	close(end)
	for !w.now(nil) { // until the writer has given it up
	}
	if told != 1 {
		t.Errorf("told %d times that it is written, want 1", told)
	}
	<-other
	w.close()
	if w.now(nil) {
		t.Error("written after the end")
	}
}
