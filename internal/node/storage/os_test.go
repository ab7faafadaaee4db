package storage_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// child turns the test binary into a process that appends until it is killed.
var child = flag.String("storage.child", "", "internal: append to this directory for ever")

func TestMain(m *testing.M) {
	flag.Parse()
	if *child != "" {
		if err := appendForEver(*child); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// appendForEver prints each index once it is durable.
func appendForEver(path string) error {
	s, rec, err := storage.Open(storage.OS{}, path, options)
	if err != nil {
		return err
	}
	fmt.Println("begin", rec.Last)
	for i := rec.Last + 1; ; i++ {
		hs := hard(1, 1, i-1)
		if err := s.Append(storage.Batch{HardState: hs, Entries: entries(i, i, 1, int(i*37%1500))}); err != nil {
			return err
		}
		if i%16 == 0 {
			if err := errors.Join(create(s, meta(i-1, 1)), s.Compact(i-8)); err != nil {
				return err
			}
		}
		fmt.Println(i)
	}
}

// Promise: kill -9 loses nothing acknowledged, on the real file system, and while
// the process lives nobody else gets in.
func TestKillMinusNine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	acked := uint64(0)
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-storage.child="+path)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; n < 40 && lines.Scan(); n++ {
			acked = ackedIndex(t, lines.Text(), acked)
		}
		if _, _, err := storage.Open(storage.OS{}, path, options); !errors.Is(err, storage.ErrLocked) {
			t.Errorf("round %d: open beside the running process: %v", round, err)
		}
		must(t, cmd.Process.Kill())
		for lines.Scan() {
			acked = ackedIndex(t, lines.Text(), acked)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
	}
	s, rec, err := storage.Open(storage.OS{}, path, options)
	must(t, err)
	if rec.Last < acked || rec.Last > acked+1 {
		t.Errorf("log ends at %d, acknowledged were %d", rec.Last, acked)
	}
	for e, err := range s.Replay(rec.First) {
		must(t, err)
		must(t, sameEntry(e, entry(e.Index, 1, int(e.Index*37%1500))))
	}
	must(t, readSnapshot(s, rec.Snapshot.Index))
	must(t, s.Close())
	report, err := storage.Verify(storage.OS{}, path)
	if err != nil || report.Damaged() {
		t.Errorf("%v, %v", report.Findings, err)
	}
}

// ackedIndex reads a line of the child.
func ackedIndex(t *testing.T, line string, acked uint64) uint64 {
	t.Helper()
	if text, ok := strings.CutPrefix(line, "begin "); ok {
		if last, err := strconv.ParseUint(text, 10, 64); err != nil || last < acked || last > acked+1 {
			t.Fatalf("child began with %q, acknowledged were %d", line, acked)
		}
		return acked
	}
	index, err := strconv.ParseUint(line, 10, 64)
	if err != nil {
		return acked // cut off by the kill
	}
	return index
}

// Promise: lookups may run beside the writing goroutine, also while compaction
// recycles the files they read.
func TestLookupsBesideWriting(t *testing.T) {
	s, _, err := storage.Open(storage.OS{}, t.TempDir(), options)
	must(t, err)
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 1, 1, 64)}))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := lookAround(s); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := uint64(2); i < 200; i++ {
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, i-1), Entries: entries(i, i, 1, 64)}))
		if i%25 == 0 {
			must(t, create(s, meta(i-1, 1)))
			must(t, s.Compact(i-20))
		}
	}
	close(done)
	wg.Wait()
	must(t, s.Close())
}

// lookAround reads the log from its beginning; that it moves away is no error.
func lookAround(s *storage.Store) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, _ := s.LastIndex()
	got, err := s.Entries(first, last+1, 1<<20)
	if errors.Is(err, storage.ErrCompacted) {
		return nil
	}
	for i := range got {
		err = errors.Join(err, sameEntry(got[i], entry(first+uint64(i), 1, 64)))
	}
	if term, errTerm := s.Term(last); errTerm == nil && term != 1 {
		err = errors.Join(err, fmt.Errorf("term of %d is %d", last, term))
	}
	s.Full()
	return err
}

// Promise: the real file system answers as the interface says.
func TestOS(t *testing.T) {
	var fsys storage.OS
	base := t.TempDir()
	if _, err := fsys.Open(filepath.Join(base, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	if _, err := fsys.List(filepath.Join(base, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("list: %v", err)
	}
	sub := filepath.Join(base, "x", "y")
	must(t, fsys.MkdirAll(sub))
	must(t, fsys.MkdirAll(sub))
	f, err := fsys.Create(filepath.Join(sub, "f"))
	must(t, err)
	_, err = f.WriteAt([]byte("hello"), 3)
	must(t, err)
	must(t, f.Truncate(6))
	must(t, f.Sync())
	if size, err := f.Size(); err != nil || size != 6 {
		t.Errorf("size %d, %v", size, err)
	}
	must(t, f.Close())
	must(t, fsys.Rename(filepath.Join(sub, "f"), filepath.Join(sub, "g")))
	must(t, fsys.SyncDir(sub))
	r, err := fsys.OpenRead(filepath.Join(sub, "g"))
	must(t, err)
	if _, err := r.WriteAt([]byte("x"), 0); err == nil {
		t.Error("wrote to a file opened for reading")
	}
	must(t, r.Close())
	if names, err := fsys.List(sub); err != nil || len(names) != 1 || names[0] != "g" {
		t.Errorf("list: %v, %v", names, err)
	}
	must(t, fsys.Remove(filepath.Join(sub, "g")))
	file := filepath.Join(base, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	_, _, err = storage.Open(fsys, filepath.Join(file, "dir"), options)
	if full, ok := errors.AsType[*storage.Error](err); !ok || full.File == "" || full.Advice == "" {
		t.Errorf("directory below a file: %v", err)
	}
}
