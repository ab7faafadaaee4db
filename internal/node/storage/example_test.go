package storage_test

import (
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// A node writes, the power fails, and the next start finds what was acknowledged.
// With storage.OS{} instead of the simulated disk it is a directory.
func Example() {
	disk := simdisk.New()
	options := storage.Options{ClusterID: 7, NodeID: 1, SegmentSize: 64 << 10}
	store, recovered, err := storage.Open(disk, "node-1", options)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("fresh:", recovered.Fresh)

	err = store.Append(storage.Batch{
		HardState: storage.HardState{Term: 1, Vote: 1},
		Entries: []storage.Entry{
			{Index: 1, Term: 1, Data: []byte("acquire jobs/nightly")},
			{Index: 2, Term: 1, Data: []byte("release jobs/nightly")},
		},
	})
	fmt.Println("append:", err)

	snapshot, _ := store.NewSnapshot(storage.SnapshotMeta{Index: 1, Term: 1})
	io.WriteString(snapshot, "jobs/nightly is held")
	fmt.Println("snapshot:", store.CreateSnapshot(snapshot))

	disk = disk.Crash(func(int) int { return 0 }) // whatever was not synced is lost

	store, recovered, err = storage.Open(disk, "node-1", options)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("term %d, vote %d, snapshot at %d\n", recovered.HardState.Term, recovered.HardState.Vote, recovered.Snapshot.Index)
	for entry, err := range store.Replay(recovered.Snapshot.Index + 1) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d: %s\n", entry.Index, entry.Data)
	}
	fmt.Println("close:", store.Close())
	// Output:
	// fresh: true
	// append: <nil>
	// snapshot: <nil>
	// term 1, vote 1, snapshot at 1
	// 2: release jobs/nightly
	// close: <nil>
}

// What an offline check says about a directory with one flipped bit.
func ExampleVerify() {
	disk := simdisk.New()
	store, _, _ := storage.Open(disk, "node-1", storage.Options{ClusterID: 7, NodeID: 1, SegmentSize: 64 << 10})
	for i := range uint64(3) {
		if err := store.Append(storage.Batch{Entries: []storage.Entry{{Index: i + 1, Data: []byte("grant")}}}); err != nil {
			fmt.Println(err)
		}
	}
	store.Close()
	disk.Flip("node-1/log-0000000000000001", 2000)

	report, err := storage.Verify(disk, "node-1")
	fmt.Println(report.Damaged(), err)
	for _, finding := range report.Findings {
		fmt.Println(finding)
	}
	// Output:
	// true <nil>
	// DAMAGE: bad record in log-0000000000000001 at byte 232: record 2; a later one is at byte 336
}
