package storage_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// An empty store takes another number, is another directory then, and remembers the
// first number; one that has promised something does not.
func TestRenumber(t *testing.T) {
	disk := simdisk.New()
	o := storage.Options{ClusterID: 7, NodeID: 2, Salt: 5, SegmentSize: 64 << 10}
	s, _, err := storage.Open(disk, "d", o)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Directory()
	for _, node := range []uint64{5, 6} {
		if err := s.Renumber(node); err != nil {
			t.Fatal(err)
		}
		if s.Directory() == before {
			t.Error("under another number it is the same directory")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := storage.Open(disk, "d", o); err == nil {
		t.Error("it opens under its first number")
	}
	if former, err := storage.Former(disk, "d"); err != nil || former != 2 {
		t.Errorf("it was made for node %d (%v), want 2", former, err)
	}
	o.NodeID = 6
	s, _, err = storage.Open(disk, "d", o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Append(storage.Batch{HardState: storage.HardState{Term: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Renumber(6); err != nil {
		t.Errorf("a store that has heard of a term, and has promised nothing: %v", err)
	}
	if err := s.Append(storage.Batch{HardState: storage.HardState{Term: 1, Vote: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Renumber(7); err == nil {
		t.Error("a store that has voted takes another number")
	}
	if former, err := storage.Former(disk, "nothing"); err != nil || former != 0 {
		t.Errorf("a directory that is not there was made for %d (%v)", former, err)
	}
}

// Cut short at any write, a renumbering leaves the store of one number or the other.
func TestRenumberCutShort(t *testing.T) {
	for left := range 20 {
		disk := simdisk.New()
		o := storage.Options{ClusterID: 7, NodeID: 2, Salt: 5, SegmentSize: 64 << 10}
		faults := &simdisk.Faults{FS: disk, Check: func(simdisk.Op) error { return nil }}
		s, _, err := storage.Open(faults, "d", o)
		if err != nil {
			t.Fatal(err)
		}
		writes := left
		faults.Check = func(op simdisk.Op) error {
			if op.Writes() {
				if writes--; writes < 0 {
					return simdisk.ErrPower
				}
			}
			return nil
		}
		_ = s.Renumber(5)
		after := disk.Crash(func(int) int { return left % 2 })
		_, node, err := storage.Owner(after, "d")
		if err != nil || node != 2 && node != 5 {
			t.Fatalf("after %d writes it is of node %d: %v", left, node, err)
		}
		o.NodeID = node
		if s, _, err = storage.Open(after, "d", o); err != nil {
			t.Fatalf("after %d writes: %v", left, err)
		}
		s.Close()
	}
}
