package storage_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// cramped is a disk that can be full, and knows how much room it has.
type cramped struct {
	*simdisk.Faults
	free  int64
	full  bool
	first string // the file of the first segment, under the name it was made by
}

func newCramped() *cramped {
	c := &cramped{free: 1 << 30}
	c.Faults = &simdisk.Faults{FS: simdisk.New(), Check: func(op simdisk.Op) error {
		temp := strings.Contains(op.Name, "tmp-")
		if op.Kind == "create" && temp && c.first == "" {
			c.first = op.Name
		}
		if c.full && temp && op.Name != c.first && (op.Kind == "create" || op.Kind == "write") {
			return syscall.ENOSPC
		}
		return nil
	}}
	return c
}

func (c *cramped) Free(string) (int64, error) { return c.free, nil }

// Promise: without room for the next segment nothing is appended, the store goes on with
// what needs none, and the same append is done when there is room.
func TestAppendWithoutRoom(t *testing.T) {
	disk := newCramped()
	s, _, err := storage.Open(disk, dir, options)
	must(t, err)
	defer s.Close()
	last := uint64(0)
	appendOne := func() error {
		err := s.Append(storage.Batch{HardState: hard(1, 0, last), Entries: entries(last+1, last+1, 1, 100)})
		if err == nil {
			last++
		}
		return err
	}
	must(t, appendOne())
	disk.full = true
	for err = appendOne(); err == nil; err = appendOne() {
	}
	if !errors.Is(err, storage.ErrNoRoom) || !errors.Is(err, syscall.ENOSPC) || last < 10 {
		t.Fatalf("after %d entries: %v", last, err)
	}
	must(t, s.SaveVote(2, 1))
	if at, err := s.LastIndex(); err != nil || at != last {
		t.Errorf("the log ends at %d, want %d: %v", at, last, err)
	}
	disk.full = false
	hs := hard(2, 1, last)
	must(t, s.Append(storage.Batch{HardState: hs, Entries: entries(last+1, last+1, 2, 100)}))
	must(t, s.Close())
	again, rec, err := storage.Open(disk.FS, dir, options)
	must(t, err)
	defer again.Close()
	if rec.Last != last+1 || rec.HardState != hs {
		t.Errorf("found %+v, want %d entries", rec, last+1)
	}
}

// Promise: a snapshot without room is given up, at whatever piece, and the store goes on.
func TestSnapshotWithoutRoom(t *testing.T) {
	for pieces := range 4 {
		disk := newCramped()
		s, _, err := storage.Open(disk, dir, options)
		must(t, err)
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, 3), Entries: entries(1, 3, 1, 10)}))
		before := s.Size()
		err = func() error {
			disk.full = pieces == 0
			w, err := s.NewSnapshot(meta(2, 1))
			for i := 1; err == nil && i <= 3; i++ {
				disk.full = pieces <= i
				_, err = w.Write([]byte("piece"))
			}
			if err == nil {
				err = s.CreateSnapshot(w)
			}
			return err
		}()
		if pieces < 4 && !errors.Is(err, storage.ErrNoRoom) {
			t.Errorf("%d pieces: %v", pieces, err)
		}
		disk.full = false
		if s.Size() != before {
			t.Errorf("%d pieces: %d bytes are taken, %d before", pieces, s.Size(), before)
		}
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, 4), Entries: entries(4, 4, 1, 10)}))
		must(t, create(s, meta(3, 1)))
		must(t, s.Close())
	}
}

// Promise: Full follows the room that is left, as far as it is looked at, and a snapshot
// like the newest has room in the reserve.
func TestReserve(t *testing.T) {
	disk, o := newCramped(), options
	o.Reserve = 1000
	s, _, err := storage.Open(disk, dir, o)
	must(t, err)
	defer s.Close()
	for _, step := range []struct {
		free int64
		full bool
	}{{1000, false}, {999, true}, {1 << 20, false}, {0, true}, {-1, false}, {1500, false}} {
		disk.free = step.free
		s.Probe()
		if s.Full() != step.full {
			t.Errorf("with %d bytes: full %v", step.free, s.Full())
		}
	}
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 3), Entries: entries(1, 3, 1, 10)}))
	w, err := s.NewSnapshot(meta(2, 1))
	must(t, err)
	_, err = w.Write(make([]byte, 600))
	must(t, err)
	must(t, s.CreateSnapshot(w))
	if s.Probe(); !s.Full() {
		t.Error("there is no room for another snapshot, and it is not full")
	}
}
