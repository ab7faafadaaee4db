package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// overwrite puts bytes into a file, behind the back of the store.
func overwrite(t *testing.T, disk *simdisk.Disk, name string, b []byte, off int64) {
	t.Helper()
	f, err := disk.Create(dir + "/restored")
	if off > 0 {
		f, err = disk.Open(dir + "/" + name)
	}
	must(t, err)
	_, err = f.WriteAt(b, off)
	must(t, err)
	must(t, f.Sync())
	if off == 0 {
		must(t, disk.Rename(dir+"/restored", dir+"/"+name))
		must(t, disk.SyncDir(dir))
	}
}

// grown builds a log over three segments; which tells two such logs apart.
func grown(t *testing.T, which uint64) *simdisk.Disk {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.SaveVote(which, which))
	for i := uint64(1); i < 11; i++ {
		must(t, s.Append(storage.Batch{HardState: hard(which, which, i-1), Entries: entries(i, i, which, 900)}))
	}
	must(t, s.Close())
	return disk
}

// Promise: valid bytes in the wrong place are damage: a whole file, one record,
// or the vote of a directory with the same salt.
func TestMixedUpFiles(t *testing.T) {
	other := grown(t, 2)
	for _, c := range []struct {
		name     string
		from, to int64
		kind     storage.Kind
	}{
		{"log-0000000000000001", 0, 4096, storage.MisplacedRecord},
		{"log-0000000000000002", 0, 4096, storage.MisplacedRecord},
		{"log-0000000000000003", 0, 4096, storage.MisplacedRecord},
		{"log-0000000000000002", 128 + 1000, 128 + 2000, storage.MisplacedRecord},
	} {
		disk := grown(t, 1)
		overwrite(t, disk, c.name, other.Read(dir + "/" + c.name)[c.from:c.to], c.from)
		_, _, err := storage.Open(writesNothing(t, disk), dir, options)
		if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), string(c.kind)) {
			t.Errorf("%s %d..%d of another log: %v", c.name, c.from, c.to, err)
		}
	}
	disk := grown(t, 1)
	overwrite(t, disk, "log-0000000000000002", other.Read(dir+"/log-0000000000000003"), 0)
	if _, _, err := storage.Open(writesNothing(t, disk), dir, options); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("segment 3 in place of segment 2: %v", err)
	}
}

// Promise: of slots and log the highest term wins; two votes in one term are
// damage.
func TestVoteFileOfAnotherTime(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.SaveVote(4, 1))
	old := disk.Read(dir + "/vote")
	must(t, s.Append(storage.Batch{HardState: hard(5, 2, 0), Entries: entries(1, 1, 5, 1)}))
	must(t, s.Close())
	overwrite(t, disk, "vote", old, 0)
	s, rec := mustOpen(t, disk)
	if rec.HardState.Term != 5 || rec.HardState.Vote != 2 {
		t.Errorf("older vote file: recovered %+v, the log has 2 in term 5", rec.HardState)
	}
	must(t, s.Close())

	elsewhere := simdisk.New()
	s, _ = mustOpen(t, elsewhere)
	must(t, s.SaveVote(5, 3))
	must(t, s.Close())
	overwrite(t, disk, "vote", elsewhere.Read(dir+"/vote"), 0)
	if _, _, err := storage.Open(writesNothing(t, disk), dir, options); !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), "vote") {
		t.Errorf("two votes in term 5: %v", err)
	}
}

// Promise: a directory that lost its identity is damaged if anything in it was
// ever promised, and made anew only if not.
func TestLostIdentity(t *testing.T) {
	for name, use := range map[string]func(*storage.Store) error{
		"a vote":     func(s *storage.Store) error { return s.SaveVote(1, 1) },
		"an entry":   func(s *storage.Store) error { return s.Append(storage.Batch{Entries: entries(1, 1, 0, 1)}) },
		"a snapshot": func(s *storage.Store) error { return install(s, meta(1, 1), storage.Batch{}) },
		"a segment":  func(s *storage.Store) error { return s.Append(storage.Batch{Entries: entries(1, 1, 0, 9000)}) },
	} {
		disk := simdisk.New()
		s, _ := mustOpen(t, disk)
		must(t, use(s))
		disk = disk.Crash(lose)
		must(t, disk.Remove(dir+"/identity"))
		if _, _, err := storage.Open(writesNothing(t, disk), dir, options); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("with %s: %v, want damage", name, err)
		}
		if report, err := storage.Verify(disk, dir); err != nil || report.Findings[0].Kind != storage.BadIdentity {
			t.Errorf("verify with %s: %v, %v", name, report.Findings, err)
		}
	}
	disk := simdisk.New()
	mustOpen(t, disk)
	disk = disk.Crash(lose)
	must(t, disk.Remove(dir+"/identity"))
	if _, err := storage.Verify(disk, dir); err == nil || errors.Is(err, storage.ErrDamaged) {
		t.Errorf("verify of no store: %v", err)
	}
	if _, rec := mustOpen(t, disk); !rec.Fresh {
		t.Error("a directory that never promised anything was not made anew")
	}
}

// Promise: a record with right checksums and wrong content is refused.
func TestDecodeRefuses(t *testing.T) {
	const seed = 5
	good := storage.EncodeEntries(entries(3, 4, 1, 20), seed)
	for name, change := range map[string]func(b []byte) []byte{
		"no flags":           func(b []byte) []byte { b[13] = 0; return b },
		"unknown flag":       func(b []byte) []byte { b[13] |= 0x80; return b },
		"reserved byte":      func(b []byte) []byte { b[14] = 1; return b },
		"reset and compact":  func(b []byte) []byte { b[13] = 7; return b },
		"point without room": func(b []byte) []byte { b[13], b[20], b[72] = 1, 0, 0; return b[:storage.RecordHeader+8] },
		"no body":            func(b []byte) []byte { return b[:storage.RecordHeader] },
		"odd length":         func(b []byte) []byte { return b[:len(b)-1] },
		"entries, no flag":   func(b []byte) []byte { b[13] = 1; return b },
		"too many entries":   func(b []byte) []byte { b[20] = 200; return b },
		"fewer entries":      func(b []byte) []byte { b[20] = 1; return b },
		"index overflows":    func(b []byte) []byte { copy(b[72:], "\xff\xff\xff\xff\xff\xff\xff\xff"); return b },
		"entry too long":     func(b []byte) []byte { b[storage.RecordHeader+8] = 200; return b },
		"entry padding":      func(b []byte) []byte { b[storage.RecordHeader+13] = 1; return b },
		"cut entry":          func(b []byte) []byte { b[storage.RecordHeader+8] = 40; return b },
		"padding":            func(b []byte) []byte { b = append(b, make([]byte, 8)...); return b },
	} {
		b := change(append([]byte(nil), good...))
		storage.SealRecord(b, seed)
		if _, _, err := storage.DecodeRecord(b, seed); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, again, err := storage.DecodeRecord(good, seed); err != nil || string(again) != string(good) {
		t.Errorf("the good one: %v", err)
	}
}

// Promise: a record that contradicts the log before it is damage, though its
// checksums are right: another group, number, durable mark or first index.
func TestForgedRecord(t *testing.T) {
	const first, size = storage.SegmentHeader, storage.RecordHeader + 16 + 16
	for name, change := range map[string]func(h []byte){
		"sequence":        func(h []byte) { h[24]++ },
		"group":           func(h []byte) { h[32]++ },
		"mark too high":   func(h []byte) { h[40]++ },
		"mark too low":    func(h []byte) { h[40]-- },
		"index after gap": func(h []byte) { h[72]++ },
		"chain":           func(h []byte) { h[8]++ },
	} {
		disk := simdisk.New()
		s, _ := mustOpen(t, disk)
		for i := uint64(1); i < 4; i++ {
			must(t, s.Append(storage.Batch{Entries: entries(i, i, 1, 16)}))
		}
		off := int64(first + 2*size)
		b := disk.Read(dir + "/log-0000000000000001")[off : off+size]
		change(b)
		storage.SealRecord(b, storage.Seed(options.Salt, 1, off))
		overwrite(t, disk, "log-0000000000000001", b, off)
		_, _, err := storage.Open(writesNothing(t, disk.Crash(lose)), dir, options)
		if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), string(storage.MisplacedRecord)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
