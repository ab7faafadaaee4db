package filehold_test

import (
	"context"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/filehold"
	"github.com/holdfast-io/holdfast/internal/kthtrip"
)

var kthBudget = flag.Duration("filehold.kth", 10*time.Second, "how long operations are disturbed at their k-th system call; 0: until all have been")

// fileFaults are the errors that calls can end with.
var fileFaults = map[string]map[string]syscall.Errno{
	"EIO": {"open": syscall.EIO, "read": syscall.EIO, "write": syscall.EIO, "sync": syscall.EIO, "truncate": syscall.EIO, "chmod": syscall.EIO, "list": syscall.EIO,
		"rename": syscall.EIO, "link": syscall.EIO, "remove": syscall.EIO, "make": syscall.EIO},
	"ENOSPC": {"open": syscall.ENOSPC, "write": syscall.ENOSPC, "sync": syscall.ENOSPC, "truncate": syscall.ENOSPC,
		"rename": syscall.ENOSPC, "link": syscall.ENOSPC, "make": syscall.ENOSPC},
	"EINTR":  {"open": syscall.EINTR, "read": syscall.EINTR, "write": syscall.EINTR, "sync": syscall.EINTR, "truncate": syscall.EINTR, "lock": syscall.EINTR},
	"EMFILE": {"open": syscall.EMFILE},
	"ENOLCK": {"lock": syscall.ENOLCK},
	"kill":   {},
}

// filePath is the way of one client to a directory: another process.
type filePath struct {
	dir string
	f   *farm
	i   *injector
	cmd *exec.Cmd
	t   testing.TB
	end func() error
}

var _ kthtrip.Proxy = (*filePath)(nil)

func (p *filePath) Open(ctx context.Context) (driver.Driver, error) { return p.f.open(ctx, p.dir) }

func (p *filePath) Arm(k int, f kthtrip.Fault) { p.i.arm(k, string(f)) }
func (p *filePath) Disarm() bool               { return p.i.disarm() }
func (p *filePath) Killed() bool               { return p.i.isDead() }

func (p *filePath) End() {
	if err := p.end(); err != nil && !p.Killed() {
		p.t.Errorf("the process ended with %v", err)
	}
	p.i.over.Wait()
}

// Conns is how many files of the directory the process has open.
func (p *filePath) Conns() (n int) {
	fds := "/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/fd"
	list, _ := os.ReadDir(fds)
	for _, fd := range list {
		if file, _ := os.Readlink(filepath.Join(fds, fd.Name())); strings.HasPrefix(file, p.dir) {
			n++
		}
	}
	return n
}

// TestKthCall: whatever a system call of an operation ends with, promises are kept, also
// when the process ends there.
func TestKthCall(t *testing.T) {
	dir := t.TempDir()
	sweeper, err := filehold.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sweeper.Close(context.Background()) })
	var faults []kthtrip.Fault
	for _, f := range slices.Sorted(maps.Keys(fileFaults)) {
		faults = append(faults, kthtrip.Fault(f))
	}
	kthtrip.Run(t, kthtrip.Engine{
		URL: "file://" + dir,
		Proxy: func(t testing.TB) kthtrip.Proxy {
			p := filtered(t, dir)
			p.t = t
			return p
		},
		Faults: faults,
		Left: func(t testing.TB, prefix string) (left []string) {
			if _, err := sweeper.Sweep(t.Context(), &driver.SweepRequest{Prefix: prefix, Limits: true}); err != nil {
				return []string{err.Error()}
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Error(err)
			}
			for _, e := range entries {
				if e.Name() != ".holdfast" && strings.Contains(e.Name(), strings.Trim(strings.TrimPrefix(prefix, "kth"), "/")) {
					left = append(left, e.Name())
				}
			}
			return left
		},
	}, *kthBudget)
}

// TestCancelRefusedOnce: a wait that was given up is taken back although the file system
// refuses that once. Else its place in the queue stays as long as its program.
func TestCancelRefusedOnce(t *testing.T) {
	dir := t.TempDir()
	p := filtered(t, dir)
	p.t = t
	t.Cleanup(p.End)
	other, err := holdfast.Open(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	d, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h, err := other.Semaphore("s", 2).Acquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = s.Semaphore("s", 2, holdfast.OnWait(func(int) {
		p.Arm(1, "ENOLCK")
		cancel()
	})).Acquire(ctx, 1)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	eventually(t, "nothing was refused", func() bool { return p.i.hit() })
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	late, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if _, err := other.Semaphore("s", 2).Acquire(late, 2); err != nil {
		t.Errorf("behind a wait that was given up: %v", err)
	}
}
