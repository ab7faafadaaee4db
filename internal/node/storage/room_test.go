package storage_test

import (
	"errors"
	"path/filepath"
	"slices"
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

// Promise: segments that are kept to be used again count as free, up to half of the reserve.
func TestReserveCountsSpares(t *testing.T) {
	disk, o := newCramped(), options
	o.Reserve = 3 * o.SegmentSize
	s, _, err := storage.Open(disk, dir, o)
	must(t, err)
	defer s.Close()
	for i := uint64(1); i <= 90; i++ {
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, i-1), Entries: entries(i, i, 1, 100)}))
	}
	must(t, create(s, meta(80, 1)))
	if disk.free = o.Reserve - 1; !isFull(s) {
		t.Error("it is not full, with a byte less than the reserve")
	}
	must(t, s.Compact(80)) // of which two segments are kept
	for _, step := range []struct {
		free int64
		full bool
	}{{o.Reserve/2 + 1024, false}, {o.Reserve/2 - 1, true}, {0, true}} {
		if disk.free = step.free; isFull(s) != step.full {
			t.Errorf("with %d bytes free of a reserve of %d: full %v", step.free, o.Reserve, s.Full())
		}
	}
	if text := s.Lack(); !strings.Contains(text, "0.0 MiB of the disk are free") || !strings.Contains(text, "in reserve") {
		t.Errorf("what is missing: %q", text)
	}
	if disk.free = 1 << 30; isFull(s) || s.Lack() != "" {
		t.Errorf("with room again: full %v, %q", s.Full(), s.Lack())
	}
}

// isFull looks whether there is room.
func isFull(s *storage.Store) bool {
	s.Probe()
	return s.Full()
}

// Promise: a new store is refused on a disk that is too small for it, with numbers, and nothing is written.
func TestNewStoreWithoutRoom(t *testing.T) {
	disk, o := newCramped(), options
	o.SegmentSize, disk.free = 16<<20, 5<<20
	_, _, err := storage.Open(disk, dir, o)
	if !errors.Is(err, storage.ErrNoRoom) || !strings.Contains(err.Error(), "5.0 MiB of the disk are free, and a new node takes 16.0 MiB") {
		t.Errorf("a disk that is too small: %v", err)
	}
	disk.free = 17 << 20
	s, _, err := storage.Open(disk, dir, o)
	must(t, err)
	must(t, s.Close())
	disk.free = 0 // what is there needs no room
	s, _, err = storage.Open(disk, dir, o)
	must(t, err)
	must(t, s.Close())
}

// holed is a disk that has room for what a file was written with, and not for what it was
// only truncated to.
type holed struct {
	*simdisk.Disk
	full bool
}

func (h *holed) Create(name string) (storage.File, error) { return h.wrap(h.Disk.Create(name)) }
func (h *holed) Open(name string) (storage.File, error)   { return h.wrap(h.Disk.Open(name)) }

func (h *holed) wrap(f storage.File, err error) (storage.File, error) {
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	return &holedFile{f, h, size}, err
}

type holedFile struct {
	storage.File
	h     *holed
	taken int64 // bytes that have a place on the disk
}

func (f *holedFile) WriteAt(p []byte, off int64) (int, error) {
	if end := off + int64(len(p)); end > f.taken {
		if f.h.full {
			n, _ := f.File.WriteAt(p[:len(p)/2], off)
			return n, syscall.ENOSPC
		}
		f.taken = end
	}
	return f.File.WriteAt(p, off)
}

func (f *holedFile) Truncate(size int64) error {
	f.taken = min(f.taken, size)
	return f.File.Truncate(size)
}

// Promise: a record that is larger than a segment is refused without room for it, also if
// there is a spare, and is appended when there is room.
func TestLargeRecordWithoutRoom(t *testing.T) {
	disk := &holed{Disk: simdisk.New()}
	s, _, err := storage.Open(disk, dir, options)
	must(t, err)
	for i := uint64(1); i <= 90; i++ {
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, i-1), Entries: entries(i, i, 1, 100)}))
	}
	must(t, create(s, meta(80, 1)))
	must(t, s.Compact(80))
	if names, err := disk.List(dir); err != nil || !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "spare-") }) {
		t.Fatalf("there is no spare: %v %v", names, err)
	}
	before := s.Size()
	disk.full = true
	large := storage.Batch{HardState: hard(1, 0, 90), Entries: entries(91, 92, 1, 5000)}
	for range 3 {
		if err := s.Append(large); !errors.Is(err, storage.ErrNoRoom) {
			t.Fatalf("a large record without room: %v", err)
		}
	}
	if s.Size() != before {
		t.Errorf("%d bytes are taken, %d before", s.Size(), before)
	}
	for i := uint64(91); i <= 110; i++ { // also into the spare, which needs no room
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, 90), Entries: entries(i, i, 1, 100)}))
	}
	disk.full = false
	large.Entries = entries(111, 112, 1, 5000)
	must(t, s.Append(large))
	must(t, s.Close())
	s, rec, err := storage.Open(disk, dir, options)
	must(t, err)
	if rec.Last != 112 {
		t.Errorf("a start finds the log up to %d", rec.Last)
	}
	must(t, s.Close())
}

// tight is a disk that has room for so many bytes.
type tight struct {
	*simdisk.Faults
	room int64
}

func (d *tight) Free(dir string) (int64, error) {
	free := d.room
	names, err := d.FS.List(dir)
	for _, name := range names {
		f, err := d.FS.Open(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		size, err := f.Size()
		if err != nil {
			return 0, err
		}
		free -= size
		f.Close()
	}
	return free, err
}

// Promise: what a creation cut short has left, at whatever operation, does not count as taken when it is made again.
func TestNewStoreAfterOneCutShort(t *testing.T) {
	o := options
	o.SegmentSize = 256 << 10
	for at := range 100 {
		op := 0
		disk := &tight{room: o.SegmentSize * 3 / 2}
		disk.Faults = &simdisk.Faults{FS: simdisk.New(), Check: func(simdisk.Op) error {
			if op++; op == at+1 {
				return syscall.EIO
			}
			return nil
		}}
		s, _, err := storage.Open(disk, dir, o)
		if op <= at {
			must(t, err)
			must(t, s.Close())
			return
		}
		if err == nil { // what failed was not needed
			must(t, s.Close())
		}
		s, _, err = storage.Open(disk, dir, o)
		if err != nil {
			t.Fatalf("cut short at operation %d, then: %v", at, err)
		}
		must(t, s.Close())
	}
	t.Error("a store is not made in 100 operations")
}

// Promise: where a write found no room, though the disk seems to have some, as by a quota, that is told instead of numbers.
func TestLackOfAWriteWithoutRoom(t *testing.T) {
	disk, o := newCramped(), options
	o.Reserve = 1000
	s, _, err := storage.Open(disk, dir, o)
	must(t, err)
	defer s.Close()
	if disk.free = 0; !isFull(s) {
		t.Fatal("it is not full without a byte")
	}
	disk.free, disk.full = 5000<<20, true
	if isFull(s) {
		t.Fatal("it is full with 5000 MiB free")
	}
	for at := uint64(1); err == nil; at++ {
		err = s.Append(storage.Batch{HardState: hard(1, 0, at-1), Entries: entries(at, at, 1, 100)})
	}
	if text := s.Lack(); !errors.Is(err, storage.ErrNoRoom) || !s.Full() || text != "a write found no room: no space left on device" {
		t.Errorf("after %v: full %v, %q", err, s.Full(), text)
	}
	if isFull(s) || s.Lack() != "" {
		t.Errorf("after another look: full %v, %q", s.Full(), s.Lack())
	}
}
