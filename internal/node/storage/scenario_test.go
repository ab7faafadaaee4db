package storage_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// Promise: "Snapshot install, crash, restart: stale suffix (10, term 1) above
// committed (5, term 3); this node then votes for a candidate that lacks committed
// entries." The reset record kills the suffix.
func TestStaleSuffixStaysDead(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 2), Entries: entries(1, 10, 1, 20)}))
	must(t, install(s, meta(5, 3), storage.Batch{HardState: hard(3, 0, 5)}))
	for _, crash := range []func(int) int{lose, keep} {
		again, rec := mustOpen(t, disk.Crash(crash))
		if rec.First != 6 || rec.Last != 5 || rec.HardState != hard(3, 0, 5) || rec.Snapshot.Index != 5 {
			t.Fatalf("recovered %+v", rec)
		}
		if term, err := again.Term(5); err != nil || term != 3 {
			t.Errorf("term of 5 is %d, %v", term, err)
		}
		if _, err := again.Term(10); !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("entry 10 is still there: %v", err)
		}
	}
}

// Promise: a voter whose acknowledged entries are missing does not start. Each
// file taken away in turn.
func TestMissingFileIsDamage(t *testing.T) {
	built := func() *simdisk.Disk {
		disk := simdisk.New()
		s, _ := mustOpen(t, disk)
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 2, 1, 20)}))
		must(t, create(s, meta(2, 1)))
		must(t, s.Compact(1))
		for i := uint64(3); i < 20; i++ {
			must(t, s.Append(storage.Batch{Entries: entries(i, i, 1, 900)}))
		}
		must(t, s.Close())
		return disk
	}
	names, _ := built().List(dir)
	taken := 0
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		taken++
		disk := built()
		must(t, disk.Remove(dir+"/"+name))
		if _, _, err := storage.Open(writesNothing(t, disk), dir, options); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("without %s: %v, want damage", name, err)
		}
		if report, err := storage.Verify(disk, dir); err != nil || !report.Damaged() {
			t.Errorf("verify without %s: %v, %v", name, report.Findings, err)
		}
	}
	if taken < 7 {
		t.Errorf("only %d files: %v", taken, names)
	}
}

// Promise: the vote file vouches for "every new segment": the newest one, made in
// the ordinary way and never vouched for by a restart, cannot vanish unnoticed.
func TestNewSegmentIsVouchedFor(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	for i := uint64(1); len(segments(disk)) < 2; i++ {
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(i, i, 1, 1000)}))
	}
	disk = disk.Crash(lose)
	names := segments(disk)
	must(t, disk.Remove(dir+"/"+names[len(names)-1]))
	if s, rec, err := storage.Open(disk, dir, options); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("without %s the log ends at %d, %v; want damage", names[len(names)-1], rec.Last, err)
		s.Close()
	}
}

// Promise: a log file that became shorter or longer is damage.
func TestWrongSizeIsDamage(t *testing.T) {
	for _, change := range []int64{-8, 8, -4000} {
		disk := simdisk.New()
		s, _ := mustOpen(t, disk)
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 2, 1, 20)}))
		f, err := disk.Open(dir + "/log-0000000000000001")
		must(t, err)
		must(t, f.Truncate(options.SegmentSize+change))
		if _, _, err := storage.Open(writesNothing(t, disk.Clone()), dir, options); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("size changed by %d: %v, want damage", change, err)
		}
	}
}

// Promise: bytes of a recycled file never pass for records. All records have one
// size, so that after each start an old one lies exactly where the next belongs.
func TestRecycledBytesNeverValidate(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	last, reused := uint64(0), 0
	for round := range uint64(12) {
		for range 20 {
			last++
			must(t, s.Append(storage.Batch{HardState: hard(1, 0, last-1), Entries: entries(last, last, 1, 400)}))
			disk = disk.Crash(lose)
			var rec storage.Recovered
			if s, rec = mustOpen(t, disk); rec.Last != last {
				t.Fatalf("round %d: log ends at %d, want %d: an old record came back", round, rec.Last, last)
			}
		}
		must(t, create(s, meta(last-1, 1)))
		must(t, s.Compact(last-1))
		names, _ := disk.List(dir)
		reused += strings.Count(strings.Join(names, " "), "spare-")
	}
	if reused == 0 {
		t.Error("no file was ever recycled")
	}
}

// Promise: the directory of another cluster, node or group, and one in use, are
// refused with the way out, and nothing is changed.
func TestForeignDirectory(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	if _, _, err := storage.Open(disk, dir, options); !errors.Is(err, storage.ErrLocked) || !strings.Contains(err.Error(), "data/LOCK") {
		t.Errorf("second process: %v", err)
	}
	if _, err := storage.Verify(disk, dir); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("verify beside a running node: %v", err)
	}
	must(t, s.Close())
	for name, change := range map[string]func(*storage.Options){
		"identity": func(o *storage.Options) { o.ClusterID++ },
		"identit":  func(o *storage.Options) { o.NodeID++ },
		"log-":     func(o *storage.Options) { o.Group++ },
	} {
		o := options
		change(&o)
		_, _, err := storage.Open(writesNothing(t, disk), dir, o)
		if !errors.Is(err, storage.ErrForeign) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := options
	other.ClusterID = 4077
	if _, _, err := storage.Open(writesNothing(t, disk), dir, other); err == nil || !strings.Contains(err.Error(), "this node is of cluster 4077") {
		t.Errorf("the number of another cluster: %v", err)
	}
	o := options
	o.Salt++ // only for new directories
	s, _, err := storage.Open(disk, dir, o)
	must(t, err)
	must(t, s.Close())
}

// Promise: a damaged voter moves its files aside and starts again as another
// node; a crash in between leaves a damaged store, never an empty one.
func TestMoveAside(t *testing.T) {
	built, _ := twoHundred(t)
	built = built.Crash(lose)
	built.Flip(dir+"/"+segments(built)[1], 4000)
	for n := 1; ; n++ {
		disk := built.Clone()
		cut, _ := cutAt(disk, n)
		_, err := storage.MoveAside(cut, dir)
		disk = disk.Crash(lose)
		if err == nil {
			break
		}
		if _, _, err := storage.Open(disk, dir, options); !errors.Is(err, storage.ErrDamaged) {
			t.Fatalf("cut %d: %v, want damage", n, err)
		}
	}
	prefix, err := storage.MoveAside(built, dir)
	must(t, err)
	names, _ := built.List(dir)
	if prefix != "damaged-1-" || strings.Count(strings.Join(names, " "), "damaged-1-") != len(names)-1 {
		t.Errorf("prefix %q, left: %v", prefix, names)
	}
	o := options
	o.NodeID = 99
	if _, rec, err := storage.Open(built, dir, o); err != nil || !rec.Fresh {
		t.Errorf("start as another node: fresh %v, %v", rec.Fresh, err)
	}
}

// Promise: bad input is refused before anything changes.
func TestBadInput(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.Append(storage.Batch{HardState: hard(3, 2, 4), Entries: entries(1, 9, 3, 10)}))
	must(t, create(s, meta(4, 3)))
	must(t, s.Compact(2))
	far, err := writeSnapshot(s, meta(50, 3))
	must(t, err)
	low, err := writeSnapshot(s, meta(3, 3))
	must(t, err)
	before := disk.Clone()
	for name, call := range map[string]func() error{
		"term goes back":           func() error { return s.Append(storage.Batch{HardState: hard(2, 2, 4)}) },
		"second vote":              func() error { return s.Append(storage.Batch{HardState: hard(3, 1, 4)}) },
		"second vote by SaveVote":  func() error { return s.SaveVote(3, 1) },
		"vote taken back":          func() error { return s.SaveVote(3, 0) },
		"commit goes back":         func() error { return s.Append(storage.Batch{HardState: hard(3, 2, 3)}) },
		"commit above the log":     func() error { return s.Append(storage.Batch{HardState: hard(3, 2, 10)}) },
		"gap before":               func() error { return s.Append(storage.Batch{Entries: entries(11, 12, 3, 1)}) },
		"gap within":               func() error { return s.Append(storage.Batch{Entries: append(entries(10, 10, 3, 1), entry(12, 3, 1))}) },
		"compacted":                func() error { return s.Append(storage.Batch{Entries: entries(2, 12, 3, 1)}) },
		"term falls":               func() error { return s.Append(storage.Batch{Entries: entries(10, 10, 2, 1)}) },
		"term falls within":        func() error { return s.Append(storage.Batch{Entries: append(entries(10, 10, 4, 1), entry(11, 3, 1))}) },
		"committed entry replaced": func() error { return s.Append(storage.Batch{Entries: entries(4, 12, 4, 1)}) },
		"committed entries cut":    func() error { return s.Append(storage.Batch{Entries: entries(3, 3, 3, 1)}) },
		"too large":                func() error { return s.Append(storage.Batch{Entries: tooLarge()}) },
		"compact above snapshot":   func() error { return s.Compact(5) },
		"snapshot above the log":   func() error { return s.CreateSnapshot(far) },
		"install behind commit":    func() error { return s.InstallSnapshot(low, storage.Batch{}) },
		"install with a gap":       func() error { return s.InstallSnapshot(far, storage.Batch{Entries: entries(60, 60, 3, 1)}) },
		"snapshot at 0":            func() error { _, err := s.NewSnapshot(meta(0, 0)); return err },
		"large membership": func() error {
			_, err := s.NewSnapshot(storage.SnapshotMeta{Index: 3, Conf: make([]byte, 2<<20)})
			return err
		},
	} {
		if err := call(); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v, want fs.ErrInvalid", name, err)
		}
	}
	if !sameFiles(disk, before) {
		t.Error("something was written")
	}
	must(t, s.Append(storage.Batch{Entries: entries(10, 10, 3, 1)}))
	for _, o := range []storage.Options{{}, {ClusterID: 1}, {NodeID: 1}, {ClusterID: 1, NodeID: 1, SegmentSize: 100}, {ClusterID: 1, NodeID: 1, SoftLimit: -1}} {
		if _, _, err := storage.Open(simdisk.New(), dir, o); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("options %+v: %v", o, err)
		}
	}
}

// tooLarge is a batch above the limit that shares one piece of memory.
func tooLarge() []storage.Entry {
	data := make([]byte, 64<<20)
	out := entries(10, 14, 3, 0)
	for i := range out {
		out[i].Data = data
	}
	return out
}

func sameFiles(a, b *simdisk.Disk) bool {
	names, _ := a.List(dir)
	for _, name := range names {
		if string(a.Read(dir+"/"+name)) != string(b.Read(dir+"/"+name)) {
			return false
		}
	}
	return true
}

// Promise: at the soft limit Full says so, and compaction makes room again.
func TestFull(t *testing.T) {
	o := options
	o.SoftLimit = 60_000
	disk := simdisk.New()
	s, _, err := storage.Open(disk, dir, o)
	must(t, err)
	last := uint64(0)
	for !s.Full() {
		last++
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, last-1), Entries: entries(last, last, 1, 900)}))
		if last > 100 {
			t.Fatalf("never full: %d bytes", s.Size())
		}
	}
	must(t, s.Append(storage.Batch{Entries: entries(last+1, last+1, 1, 10)})) // a release still goes through
	must(t, create(s, meta(last-1, 1)))
	must(t, s.Compact(last-1))
	if s.Full() {
		t.Errorf("still full after compaction: %d bytes", s.Size())
	}
	names, _ := disk.List(dir)
	var sum int64
	for _, name := range names {
		sum += int64(disk.Bytes(dir + "/" + name))
	}
	if s.Size() != sum {
		t.Errorf("size is %d, the files take %d", s.Size(), sum)
	}
	must(t, s.Close())
	s, _, err = storage.Open(disk, dir, o)
	if must(t, err); s.Size() != sum {
		t.Errorf("size after a start is %d, the files take %d", s.Size(), sum)
	}
}
