package filehold_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

func TestOpen_BadURL(t *testing.T) {
	for _, u := range []string{"file:", "file://host/tmp", "file:tmp", "file:///tmp?x=1", "file:///tmp#x", "file://u:p@/tmp"} {
		s, err := holdfast.Open(context.Background(), u)
		if !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), ":p@") {
			t.Errorf("%s: %v, %v", u, s, err)
		}
	}
}

// refusedOpen is the error of Open, which names the file and closes what it
// opened, once.
func refusedOpen(t *testing.T, dir, names string, kind error) {
	t.Helper()
	before := openFiles(t)
	s, err := filehold.Open(dir)
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), names) {
		t.Errorf("%v; want %v naming %s", err, kind, names)
	}
	if after := openFiles(t); after != before || errors.Is(err, syscall.EBADF) {
		t.Errorf("%d files are open, %d were before: %v", after, before, err)
	}
}

func TestOpen_Directory(t *testing.T) {
	base := t.TempDir()
	missing := filepath.Join(base, "a", "b")
	refusedOpen(t, missing, missing, fs.ErrNotExist)
	if _, err := os.Lstat(filepath.Join(base, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a parent was made")
	}
	space(t, filepath.Join(base, "a")) // the last element is made
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	refusedOpen(t, file, file, holdfast.ErrUnavailable)
}

// A directory that may not be written is an error that says so.
func TestOpen_ReadOnly(t *testing.T) {
	dir := filepath.Join(public(t), "locks")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out := unprivileged(t, dir)
	if !strings.Contains(out, "permission denied") || !strings.Contains(out, dir) {
		t.Errorf("the error is %q", out)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files were made: %v", files)
	}
}

// public is a directory that everybody may enter.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "filehold")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// unprivileged opens dir as somebody who may do little, and returns what is
// said.
func unprivileged(t *testing.T, dir string) string {
	t.Helper()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(public(t), "program")
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied)
	cmd.Dir = "/"
	cmd.Env = []string{"FILEHOLD_ROLE=servant", "FILEHOLD_DIR=" + dir}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	} else if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// A full file system refuses what it cannot store, keeps what it has, and goes
// on when there is room. It takes root to mount one.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatalf("mount a small file system (as root): %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := space(t, dir)
	ctx := deadline(t)
	if _, err := s.Counter("c").Add(ctx, 7); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; err == nil; i++ {
		_, err = s.KV().Put(ctx, string(rune('a'+i)), make([]byte, 16<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), "log") {
		t.Errorf("a full disk: %v", err)
	}
	if n, err := s.Counter("c").Load(ctx); err != nil || n != 7 {
		t.Errorf("the counter is %d, %v", n, err)
	}
	if err := os.Truncate(filepath.Join(dir, ".holdfast", "bell"), 0); err != nil {
		t.Error(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=2m"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Counter("c").Add(ctx, 1); err != nil || n != 8 {
		t.Errorf("with room again the counter is %d, %v", n, err)
	}
}

func TestOpen_WithoutFlock(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.ENOLCK, syscall.EOPNOTSUPP} {
		dir := t.TempDir()
		_, err := filehold.NewWith(dir, func(s *filehold.Seams) { s.Flock = func(int, int) error { return errno } })
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "no flock") {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// A directory that was replaced grants nothing: its locks would keep out nobody
// in the old one.
func TestReplacedDirectory(t *testing.T) {
	base := t.TempDir()
	dir, other := filepath.Join(base, "d"), filepath.Join(base, "other")
	s := space(t, dir)
	ctx := deadline(t)
	h, err := s.Mutex("m").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(dir, other), os.Symlink(base, dir)); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a known lock": second(s.Mutex("m").TryAcquire(ctx)), "a new lock": second(s.Mutex("n").TryAcquire(ctx)), "ping": s.Ping(ctx),
	} {
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(os.Remove(dir), os.Rename(other, dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mutex("m").TryAcquire(ctx); err != nil {
		t.Errorf("in its place again: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// A lock file that is no file is an error.
func TestLockFileIsADirectory(t *testing.T) {
	dir := t.TempDir()
	s := space(t, dir)
	path := filepath.Join(dir, filehold.FileName("m"))
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mutex("m").TryAcquire(deadline(t)); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), path) {
		t.Errorf("a directory: %v", err)
	}
	fifo := filepath.Join(dir, filehold.FileName("f"))
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mutex("f").TryAcquire(deadline(t)); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), fifo) {
		t.Errorf("a pipe: %v", err)
	}
	link := filepath.Join(dir, filehold.FileName("l"))
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mutex("l").TryAcquire(deadline(t)); err == nil || !strings.Contains(err.Error(), link) {
		t.Errorf("a symbolic link: %v", err)
	}
}

// stored makes a directory with something in it and returns its inner one.
func stored(t *testing.T, dir string) string {
	t.Helper()
	s := space(t, dir)
	ctx := deadline(t)
	for range 5 {
		if _, err := s.Counter("c").Add(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, ".holdfast")
}

// Of processes that start at once on a new directory none takes what another has
// just made for damage.
func TestOvertakenAtTheStart(t *testing.T) {
	dir := t.TempDir()
	control := filepath.Join(stored(t, dir), "control")
	if err := filehold.LateToMakeControl(dir); err != nil {
		t.Errorf("who is late: %v", err)
	}
	if err := os.Remove(control); err != nil {
		t.Fatal(err)
	}
	if err := filehold.LateToMakeControl(dir); err == nil || !strings.Contains(err.Error(), "missing beside a log") {
		t.Errorf("a log without its control file: %v", err)
	}
}

// Every damaged store file is refused, with its name and a reason, and nothing
// is overwritten.
func TestDamagedStore(t *testing.T) {
	tests := map[string]struct {
		file   string
		damage func(b []byte) []byte
	}{
		"log cut":         {"log", func(b []byte) []byte { return b[:len(b)-3] }},
		"log cut much":    {"log", func(b []byte) []byte { return b[:10] }},
		"log empty":       {"log", func([]byte) []byte { return nil }},
		"log flipped":     {"log", func(b []byte) []byte { b[len(b)-40] ^= 4; return b }},
		"log header":      {"log", func(b []byte) []byte { b[20] ^= 1; return b }},
		"log snapshot":    {"log", func(b []byte) []byte { b[60] ^= 1; return b }},
		"control cut":     {"control", func(b []byte) []byte { return b[:100] }},
		"control longer":  {"control", func(b []byte) []byte { return append(b, 0) }},
		"control empty":   {"control", func([]byte) []byte { return nil }},
		"control magic":   {"control", func(b []byte) []byte { b[0] ^= 1; return b }},
		"control ceiling": {"control", func(b []byte) []byte { b[4*8] ^= 1; return b }},
		"control next":    {"control", func(b []byte) []byte { b[3*8+6] = 0xff; return b }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(stored(t, dir), test.file)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b = test.damage(b)
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
			refusedOpen(t, dir, path, holdfast.ErrUnavailable)
			if after, _ := os.ReadFile(path); !bytes.Equal(after, b) {
				t.Error("the file was changed")
			}
		})
	}
}

// A part of the store that is missing is no new store.
func TestMissingStoreFile(t *testing.T) {
	for _, file := range []string{"log", "control"} {
		dir := t.TempDir()
		path := filepath.Join(stored(t, dir), file)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		refusedOpen(t, dir, path, holdfast.ErrUnavailable)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made anew", file)
		}
	}
}

// A part of the store that is a symbolic link is refused, and not followed.
func TestSymlinkedStore(t *testing.T) {
	for _, file := range []string{"log", "control", "bell"} {
		dir := t.TempDir()
		path := filepath.Join(stored(t, dir), file)
		elsewhere := filepath.Join(t.TempDir(), file)
		if err := errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)); err != nil {
			t.Fatal(err)
		}
		refusedOpen(t, dir, path, syscall.ELOOP)
	}
}

// A store that is damaged while it is in use answers with errors that name the
// file, and nothing more is written to it.
func TestDamagedInUse(t *testing.T) {
	damages := map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 0) },
		"removed": os.Remove,
	}
	for _, file := range []string{"log", "control"} {
		for name, damage := range damages {
			dir := t.TempDir()
			s, err := filehold.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			ctx := deadline(t)
			if _, err := s.Counter("c").Add(ctx, 1); err != nil {
				t.Fatal(err)
			}
			held, err := s.Semaphore("s", 1).Acquire(ctx, 1)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, ".holdfast", file)
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			if err := held.Release(); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: release: %v", file, name, err)
			}
			if _, err = s.Counter("c").Add(ctx, 1); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), path) || file == "control" && !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("%s %s: %v", file, name, err)
			}
			_ = s.Close()
			if st, err := os.Stat(path); err == nil && st.Size() != 0 {
				t.Errorf("%s %s: %d bytes were written", file, name, st.Size())
			}
		}
	}
}
