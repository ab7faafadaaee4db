package disk_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// A node begins on an empty directory, and is found there again.
func Example() {
	files := simdisk.New()
	options := storage.Options{ClusterID: 1, NodeID: 1}
	founders := replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}})
	d, rec, err := disk.Open(files, "node-1", options, founders)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("begins after entry", rec.Snapshot.Index)
	if err := d.Close(); err != nil {
		fmt.Println(err)
		return
	}

	d, rec, err = disk.Open(files, "node-1", options, replica.Joining(core.Config{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	fmt.Println("found again after entry", rec.Snapshot.Index, "with voters", rec.Snapshot.Conf.Conf.GetVoters())
	// Output:
	// begins after entry 1
	// found again after entry 1 with voters [1]
}
