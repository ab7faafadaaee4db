package simdisk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

func keep(int) int { return 1 }
func lose(int) int { return 0 }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, f storage.File, text string, off int64) {
	t.Helper()
	_, err := f.WriteAt([]byte(text), off)
	must(t, err)
}

func newFile(t *testing.T) (*simdisk.Disk, storage.File) {
	t.Helper()
	disk := simdisk.New()
	must(t, disk.MkdirAll("d"))
	f, err := disk.Create("d/f")
	must(t, err)
	return disk, f
}

// Content needs Sync and the name needs SyncDir; neither stands in for the other.
func TestCrashLosesWhatWasNotSynced(t *testing.T) {
	disk, f := newFile(t)
	write(t, f, "first", 0)
	must(t, f.Sync())
	if names, _ := disk.Crash(lose).List("d"); len(names) != 0 {
		t.Errorf("name survived without a sync of the directory: %v", names)
	}
	must(t, disk.SyncDir("d"))
	write(t, f, "later", 0)
	if got := disk.Crash(lose).Read("d/f"); string(got) != "first" {
		t.Errorf("lost: %q", got)
	}
	if got := disk.Crash(keep).Read("d/f"); string(got) != "later" {
		t.Errorf("kept: %q", got)
	}
}

// Sectors of one write survive independently of each other.
func TestCrashTearsBySector(t *testing.T) {
	disk, f := newFile(t)
	write(t, f, string(make([]byte, 3*simdisk.Sector)), 0)
	must(t, f.Sync())
	must(t, disk.SyncDir("d"))
	write(t, f, string(slices.Repeat([]byte{'x'}, 3*simdisk.Sector)), 0)
	asked := 0
	got := disk.Crash(func(int) int { asked++; return asked % 2 }).Read("d/f")
	for s, want := range []byte{'x', 0, 'x'} {
		if got[s*simdisk.Sector] != want || got[(s+1)*simdisk.Sector-1] != want {
			t.Errorf("sector %d is %q, want %q", s, got[s*simdisk.Sector], want)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}

// A rename is one step: after a crash there is the old name or the new one.
func TestRenameIsAtomic(t *testing.T) {
	disk, f := newFile(t)
	write(t, f, "new", 0)
	must(t, f.Sync())
	must(t, disk.SyncDir("d"))
	must(t, disk.Rename("d/f", "d/g"))
	for name, choose := range map[string]func(int) int{"f": lose, "g": keep} {
		if names, _ := disk.Crash(choose).List("d"); !slices.Equal(names, []string{name}) {
			t.Errorf("want %s, got %v", name, names)
		}
	}
	must(t, disk.Remove("d/g"))
	write(t, f, "!", 3) // an open file outlives its name
	if size, err := f.Size(); err != nil || size != 4 {
		t.Errorf("size %d, %v", size, err)
	}
}

// Cutting a file is as volatile as writing to it.
func TestTruncate(t *testing.T) {
	disk, f := newFile(t)
	write(t, f, "0123456789", 0)
	must(t, f.Sync())
	must(t, disk.SyncDir("d"))
	must(t, f.Truncate(4))
	if got := disk.Crash(lose).Read("d/f"); string(got) != "0123456789" {
		t.Errorf("lost: %q", got)
	}
	if got := disk.Crash(keep).Read("d/f"); string(got) != "0123" {
		t.Errorf("kept: %q", got)
	}
	must(t, f.Truncate(6))
	must(t, f.Sync())
	if got := disk.Crash(lose).Read("d/f"); string(got) != "0123\x00\x00" {
		t.Errorf("synced: %q", got)
	}
}

func TestLockAndErrors(t *testing.T) {
	disk, f := newFile(t)
	lock, err := disk.Lock("d/LOCK")
	must(t, err)
	if _, err := disk.Lock("d/LOCK"); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	must(t, lock.Close())
	if _, err := disk.Lock("d/LOCK"); err != nil {
		t.Errorf("lock after it was freed: %v", err)
	}
	must(t, f.Close())
	for name, err := range map[string]error{
		"write after close": func() error { _, err := f.WriteAt(nil, 0); return err }(),
		"sync after close":  f.Sync(),
		"close twice":       f.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"open":   func() error { _, err := disk.Open("d/x"); return err }(),
		"create": func() error { _, err := disk.Create("nowhere/x"); return err }(),
		"list":   func() error { _, err := disk.List("nowhere"); return err }(),
		"rename": disk.Rename("d/x", "d/y"),
		"remove": disk.Remove("d/x"),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A failed sync leaves pages that read well and never reach the disk; one cut by
// the power leaves them to the crash.
func TestFailedSync(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{{syscall.EIO, "old"}, {simdisk.ErrPower, "new"}} {
		disk, f := newFile(t)
		write(t, f, "old", 0)
		must(t, f.Sync())
		must(t, disk.SyncDir("d"))
		failing := &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
			if op.Kind == "sync" && op.N == 3 {
				return c.err
			}
			return nil
		}}
		g, err := failing.Open("d/f")
		must(t, err)
		write(t, g, "new", 0)
		if err := g.Sync(); !errors.Is(err, c.err) {
			t.Fatalf("sync: %v", err)
		}
		if got := disk.Read("d/f"); string(got) != "new" {
			t.Errorf("%v: reads %q", c.err, got)
		}
		must(t, disk.SyncDir("d"))
		if got := disk.Crash(keep).Read("d/f"); string(got) != c.want {
			t.Errorf("%v: after the crash %q, want %q", c.err, got, c.want)
		}
	}
}

// A full disk takes the first half of a write.
func TestNoSpace(t *testing.T) {
	disk, _ := newFile(t)
	failing := &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
		if op.Kind == "write" {
			return syscall.ENOSPC
		}
		return nil
	}}
	f, err := failing.Open("d/f")
	must(t, err)
	if n, err := f.WriteAt([]byte("12345678"), 0); n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if got := disk.Read("d/f"); string(got) != "1234" {
		t.Errorf("file has %q", got)
	}
}

func ExampleDisk_Crash() {
	disk := simdisk.New()
	disk.MkdirAll("d")
	f, _ := disk.Create("d/file")
	f.WriteAt([]byte("durable"), 0)
	f.Sync()
	disk.SyncDir("d")
	f.WriteAt([]byte("perhaps"), 0)

	fmt.Printf("%s\n", disk.Crash(func(int) int { return 0 }).Read("d/file"))
	fmt.Printf("%s\n", disk.Crash(func(int) int { return 1 }).Read("d/file"))
	// Output:
	// durable
	// perhaps
}
