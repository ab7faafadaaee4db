//go:build unix

package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
)

// unsyncedDisk is a disk whose next syncs of a directory fail.
type unsyncedDisk struct {
	osDisk
	fail, synced int
}

func (d *unsyncedDisk) SyncDir(path string) error {
	if d.fail > 0 {
		d.fail--
		return errPower
	}
	d.synced++
	return d.osDisk.SyncDir(path)
}

// A token whose state was written, but not surely to disk, is on disk before its operation
// begins when it comes again. After that a repetition writes nothing.
func TestDir_RepeatedTokenIsOnDisk(t *testing.T) {
	disk := &unsyncedDisk{fail: 1}
	dir := t.TempDir()
	first, second := &Dir{Path: dir, disk: disk}, &Dir{Path: dir, disk: disk}
	if err := first.Do(t.Context(), "r", 7, Exclusive, func(context.Context) error { return nil }); !errors.Is(err, errPower) {
		t.Fatalf("a state that could not be synced: %v", err)
	}
	for _, d := range []*Dir{first, second} {
		for round := range 3 {
			disk.synced = 0
			if err := d.Do(t.Context(), "r", 7, Exclusive, func(context.Context) error {
				if want := map[bool]int{true: 1}[round == 0]; disk.synced != want {
					t.Errorf("round %d: %d syncs before the operation, want %d", round, disk.synced, want)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
}

// What a Dir remembers of a resource does not grow with what is on disk of it: of a strict one thousands of tokens.
func TestDir_RemembersLittle(t *testing.T) {
	const resources, size = 300, 1 << 15
	d := &Dir{Path: t.TempDir(), disk: idleDisk{}}
	before := heap()
	for i := range resources {
		if err := d.persist(fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, size), false); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > resources*size/4 {
		t.Errorf("%d resources take %d bytes", resources, grown)
	}
	runtime.KeepAlive(d)
}

// idleDisk does nothing.
type idleDisk struct{ disk }

func (idleDisk) SyncDir(string) error { return nil }

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
