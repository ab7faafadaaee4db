package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// Promise: any failed operation ends the store with an error that names the file
// and the cause; the next start finds everything acknowledged.
func TestFaultAtEveryOperation(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS} {
		t.Run(errno.Error(), func(t *testing.T) {
			n, step := 1, effort(1, 1, 11)
			for faultAt(t, n, errno) {
				n += step
			}
			t.Logf("%d operations, one in %d failed", n-1, step)
		})
	}
}

// faultAt plays the history with the n-th operation failing, and reports whether
// it came that far.
func faultAt(t *testing.T, n int, errno syscall.Errno) bool {
	disk := simdisk.New()
	var failing simdisk.Op
	fs := &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
		if op.N == n {
			failing = op
			return errno
		}
		return nil
	}}
	p := play(fs, history(disk))
	if failing.N == 0 {
		if p.err != nil {
			t.Fatalf("without a fault: %v", p.err)
		}
		return false
	}
	what := fmt.Sprintf("operation %d, %s %s, in %q", n, failing.Kind, failing.Name, p.step)
	if err := clearEnd(p.err, failing, errno); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	s, rec, err := storage.Open(disk, dir, options)
	if err != nil {
		t.Fatalf("%s: start after it: %v", what, err)
	}
	if err := p.allowed(s, rec); err != nil {
		t.Fatalf("%s: start after it: %v", what, err)
	}
	if err := p.survives(disk.Crash(lose)); err != nil {
		t.Fatalf("%s: power cut after it: %v", what, err)
	}
	return true
}

// clearEnd checks the error of the step that met the fault. A snapshot on a bad
// sector is special: an older one stands in, or else it is damage.
func clearEnd(err error, op simdisk.Op, errno syscall.Errno) error {
	if errno == syscall.EIO && strings.Contains(op.Name, "snap-") && (err == nil || errors.Is(err, storage.ErrDamaged)) {
		return nil
	}
	if err == nil {
		return errors.New("nobody noticed")
	}
	full, ok := errors.AsType[*storage.Error](err)
	if !ok || !errors.Is(err, errno) {
		return fmt.Errorf("error does not tell the cause: %w", err)
	}
	if !strings.Contains(err.Error(), full.File) || full.File == "" || full.Advice == "" {
		return fmt.Errorf("error does not tell file or way out: %w", err)
	}
	return nil
}

// Promise: after a failed write or sync every later call returns that error.
func TestPoison(t *testing.T) {
	disk, broken := simdisk.New(), false
	s, _ := mustOpen(t, &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
		if broken && op.Kind == "sync" {
			broken = false // works again: nobody must try
			return syscall.EIO
		}
		return nil
	}})
	must(t, s.Append(storage.Batch{HardState: hard(1, 1, 0), Entries: entries(1, 5, 1, 10)}))
	snapshot, err := writeSnapshot(s, meta(3, 1))
	must(t, err)
	broken = true
	first := s.Append(storage.Batch{Entries: entries(6, 6, 1, 10)})
	if !errors.Is(first, syscall.EIO) {
		t.Fatalf("append: %v", first)
	}
	get := func(_ any, err error) error { return err }
	calls := map[string]func() error{
		"Append":           func() error { return s.Append(storage.Batch{Entries: entries(6, 6, 1, 10)}) },
		"SaveVote":         func() error { return s.SaveVote(2, 1) },
		"Mark":             s.Mark,
		"Doubt":            s.Doubt,
		"Compact":          func() error { return s.Compact(1) },
		"NewSnapshot":      func() error { return get(s.NewSnapshot(meta(3, 1))) },
		"Write":            func() error { return get(snapshot.Write([]byte("x"))) },
		"Sum":              func() error { return get(snapshot.Sum()) },
		"CreateSnapshot":   func() error { return s.CreateSnapshot(snapshot) },
		"ReplaceSnapshots": func() error { return s.ReplaceSnapshots(snapshot) },
		"InstallSnapshot":  func() error { return s.InstallSnapshot(snapshot, storage.Batch{}) },
		"OpenSnapshot":     func() error { return get(s.OpenSnapshot(3)) },
		"Snapshot":         func() error { return get(s.Snapshot()) },
		"FirstIndex":       func() error { return get(s.FirstIndex()) },
		"LastIndex":        func() error { return get(s.LastIndex()) },
		"Term":             func() error { return get(s.Term(1)) },
		"HardState":        func() error { return get(s.HardState()) },
		"Entries":          func() error { return get(s.Entries(1, 2, 100)) },
		"Replay": func() error {
			for _, err := range s.Replay(1) {
				return err
			}
			return nil
		},
		"Abort": snapshot.Abort,
		"Close": s.Close,
	}
	for name, call := range calls {
		if name != "Close" && name != "Abort" {
			if err := call(); !errors.Is(err, first) {
				t.Errorf("%s: %v, want the error that ended the store", name, err)
			}
		}
	}
	for _, name := range []string{"Abort", "Close"} {
		if err := calls[name](); !errors.Is(err, first) {
			t.Errorf("%s: %v, want the error that ended the store", name, err)
		}
	}
	if _, rec := mustOpen(t, disk.Crash(lose)); rec.Last != 5 {
		t.Errorf("log ends at %d, want 5", rec.Last)
	}
}

// Promise: an entry that can no longer be read back is damage, not other data.
func TestReadBackChecks(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 1, 1, 400)}))
	must(t, s.Append(storage.Batch{Entries: entries(2, 3, 1, 250)})) // pushes 1 out of the cache
	if _, err := s.Entries(1, 2, 1000); err != nil {
		t.Fatal(err)
	}
	must(t, s.Append(storage.Batch{Entries: entries(4, 4, 1, 400)}))
	if _, err := s.Entries(2, 3, 1000); err != nil { // another record: 1 must be read again
		t.Fatal(err)
	}
	disk.Flip(dir+"/log-0000000000000001", (storage.SegmentHeader+storage.RecordHeader+200)*8)
	_, err := s.Entries(1, 2, 1000)
	if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), "log-0000000000000001 at byte 128") {
		t.Fatalf("read of a flipped entry: %v", err)
	}
	if err := s.Append(storage.Batch{Entries: entries(5, 5, 1, 1)}); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("append after damage was found: %v", err)
	}
}

// Promise: so is one that a disk has written to the wrong place.
func TestReadBackKnowsItsPlace(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	for i := uint64(1); i < 4; i++ {
		must(t, s.Append(storage.Batch{Entries: entries(i, i, 1, 400)}))
	}
	const size = storage.RecordHeader + 16 + 400
	first := disk.Read(dir + "/log-0000000000000001")[storage.SegmentHeader : storage.SegmentHeader+size]
	overwrite(t, disk, "log-0000000000000001", first, storage.SegmentHeader+size)
	if got, err := s.Entries(2, 3, 1000); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("entry 2 is %v, %v; want damage", got, err)
	}
}
