package storage_test

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// Promise: a snapshot goes from one node to another piece by piece, and both
// agree on one checksum.
func TestSendSnapshot(t *testing.T) {
	leader, _ := mustOpen(t, simdisk.New())
	must(t, leader.Append(storage.Batch{HardState: hard(2, 1, 9), Entries: entries(1, 9, 2, 10)}))
	large := strings.Repeat("state", 2<<20) // several syncs on the way
	w, err := leader.NewSnapshot(meta(9, 2))
	must(t, err)
	for piece := range 10 {
		n := len(large) / 10
		_, err := io.WriteString(w, large[piece*n:(piece+1)*n])
		must(t, err)
	}
	must(t, leader.CreateSnapshot(w))
	r, err := leader.OpenSnapshot(9)
	must(t, err)

	disk := simdisk.New()
	follower, _ := mustOpen(t, disk)
	got, err := follower.NewSnapshot(r.Meta())
	must(t, err)
	if n, err := io.CopyBuffer(struct{ io.Writer }{got}, r, make([]byte, 100_000)); err != nil || n != r.Size() || n != int64(len(large)) {
		t.Fatalf("copied %d of %d: %v", n, r.Size(), err)
	}
	must(t, r.Close())
	sum, err := got.Sum()
	if err != nil || sum != r.Sum() || got.Meta().Index != 9 {
		t.Fatalf("sums differ: %x, %x, %v", sum, r.Sum(), err)
	}
	if _, err := got.Write([]byte("x")); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("write after the sum: %v", err)
	}
	must(t, follower.InstallSnapshot(got, storage.Batch{HardState: hard(2, 0, 9)}))
	must(t, got.Abort()) // deferred in real code; does nothing now
	_, rec := mustOpen(t, disk.Crash(lose))
	if rec.Snapshot.Index != 9 || string(rec.Snapshot.Conf) != "members at 9" || rec.Last != 9 || rec.HardState.Commit != 9 {
		t.Errorf("recovered %+v", rec)
	}
}

// Promise: a reader says io.EOF only if everything it gave out was right.
func TestReaderNoticesFlip(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 3), Entries: entries(1, 3, 1, 1)}))
	must(t, create(s, meta(3, 1)))
	disk.Flip(dir+"/snap-0000000000000003", (storage.SnapHeader+50)*8)
	r, err := s.OpenSnapshot(3)
	must(t, err)
	defer r.Close()
	if _, err := io.ReadAll(r); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("read of a flipped snapshot: %v", err)
	}
	disk.Flip(dir+"/snap-0000000000000003", 40*8)
	if _, err := s.OpenSnapshot(3); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("open of a flipped header: %v", err)
	}
	if _, err := s.OpenSnapshot(2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of no snapshot: %v", err)
	}
}

// Promise: two snapshots are kept; a reader of an older one goes on reading.
func TestKeepTwo(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 9), Entries: entries(1, 9, 1, 1)}))
	must(t, create(s, meta(1, 1)))
	r, err := s.OpenSnapshot(1)
	must(t, err)
	for i := uint64(2); i < 6; i++ {
		must(t, create(s, meta(i, 1)))
	}
	given, err := writeSnapshot(s, meta(7, 1))
	must(t, err)
	must(t, given.Abort())
	if err := s.CreateSnapshot(given); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("end of a snapshot that was given up: %v", err)
	}
	names, _ := disk.List(dir)
	if got := strings.Join(names, " "); strings.Count(got, "snap-") != 2 || strings.Contains(got, "tmp-") {
		t.Errorf("files: %s", got)
	}
	if data, err := io.ReadAll(r); err != nil || string(data) != string(body(1)) {
		t.Errorf("reader of the removed snapshot: %v", err)
	}
}

// Promise: ReplaceSnapshots leaves exactly the given one, though it is older.
func TestReplaceSnapshots(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 9), Entries: entries(1, 9, 1, 1)}))
	must(t, create(s, meta(5, 1)))
	must(t, create(s, meta(8, 1)))
	for _, index := range []uint64{6, 6, 2} {
		w, err := writeSnapshot(s, meta(index, 1))
		must(t, err)
		must(t, s.ReplaceSnapshots(w))
		_, rec := mustOpen(t, disk.Crash(lose))
		if rec.Snapshot.Index != index {
			t.Errorf("newest is %d, want %d", rec.Snapshot.Index, index)
		}
		if names, _ := disk.List(dir); strings.Count(strings.Join(names, " "), "snap-") != 1 {
			t.Errorf("files: %v", names)
		}
	}
}

// Promise: a state that was found to be wrong is known to be so after every start, until another
// is durable: one in the place of all, or one that is installed.
func TestDoubt(t *testing.T) {
	for name, other := range map[string]func(s *storage.Store, w *storage.SnapshotWriter) error{
		"replaced":  (*storage.Store).ReplaceSnapshots,
		"installed": func(s *storage.Store, w *storage.SnapshotWriter) error { return s.InstallSnapshot(w, storage.Batch{}) },
	} {
		disk := simdisk.New()
		s, rec := mustOpen(t, disk)
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, 9), Entries: entries(1, 9, 1, 1)}))
		must(t, create(s, meta(5, 1)))
		if rec.Doubted {
			t.Errorf("%s: a new store is doubted", name)
		}
		must(t, s.Doubt())
		must(t, s.Doubt())
		must(t, create(s, meta(8, 1)))
		for range 2 {
			disk = disk.Crash(lose)
			if s, rec = mustOpen(t, disk); !rec.Doubted {
				t.Errorf("%s: a start does not know that the state is wrong", name)
			}
			if len(rec.Findings) != 1 || rec.Findings[0].Kind != storage.WrongState || rec.Findings[0].Damage {
				t.Errorf("%s: a start finds %v", name, rec.Findings)
			}
		}
		w, err := writeSnapshot(s, meta(9, 1))
		must(t, err)
		must(t, other(s, w))
		if _, rec := mustOpen(t, disk.Crash(lose)); rec.Doubted {
			t.Errorf("%s: a start takes the new state for wrong", name)
		}
	}
}

// Promise: a snapshot that was received but whose reset record was never written
// is cleared away, even if several were tried.
func TestInstallCutShort(t *testing.T) {
	disk, broken := simdisk.New(), false
	s, _ := mustOpen(t, disk)
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 9), Entries: entries(1, 9, 1, 1)}))
	must(t, create(s, meta(5, 1)))
	must(t, s.Compact(5))
	must(t, s.Close())
	for _, index := range []uint64{50, 60, 70} {
		broken = false
		s, _ := mustOpen(t, &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
			if broken && op.Kind == "write" && strings.Contains(op.Name, "log-") {
				return simdisk.ErrPower
			}
			return nil
		}})
		broken = true
		if err := install(s, meta(index, 2), storage.Batch{}); !errors.Is(err, simdisk.ErrPower) {
			t.Fatalf("install: %v", err)
		}
		disk = disk.Crash(keep)
	}
	_, rec := mustOpen(t, disk)
	if rec.Snapshot.Index != 5 || rec.Last != 9 || len(rec.Findings) != 1 || rec.Findings[0].Kind != storage.Leftover {
		t.Errorf("recovered %+v", rec)
	}
}
