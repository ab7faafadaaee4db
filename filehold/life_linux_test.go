package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

// A Space leaves no goroutine, no open file and no file of its own behind,
// whatever it did.
func TestNothingIsLeft(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	stored(t, t.TempDir()) // has the runtime open what it keeps
	before := openFiles(t)
	s, err := filehold.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := deadline(t)
	h, err := s.Mutex("m").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	waits, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := s.Mutex("m").Acquire(waits); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait: %v", err)
	}
	permit, err := s.Semaphore("s", 1).Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	waits, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := s.Semaphore("s", 1).Acquire(waits, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait: %v", err)
	}
	for range s.Watch(ctx, "", 0) {
		break
	}
	if err := errors.Join(permit.Release(), h.Release(), s.Close()); err != nil {
		t.Error(err)
	}
	eventually(t, "files are open", func() bool { return openFiles(t) <= before })
	if live, _ := os.ReadDir(filepath.Join(dir, ".holdfast", "live")); len(live) != 0 {
		t.Errorf("files are left: %v", live)
	}
}

// An Open that refuses an option leaves nothing open.
func TestRefusedOpenLeavesNothing(t *testing.T) {
	dir, before := t.TempDir(), openFiles(t)
	for range 20 {
		if _, err := filehold.Open(dir, holdfast.TTL(5)); !errors.Is(err, holdfast.ErrInvalid) {
			t.Fatalf("a TTL of 5 ns: %v", err)
		}
	}
	eventually(t, "files are open", func() bool { return openFiles(t) <= before })
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// The log is replaced when it is long, and everybody goes on: those who read
// along, those who come later and those who were away for long.
func TestCompaction(t *testing.T) {
	dir := t.TempDir()
	s := openDriver(t, dir, func(x *filehold.Seams) { x.CompactAt = 8 << 10 })
	along, away := spawn(t, "servant", dir), spawn(t, "servant", dir)
	away.do("count c")
	away.do("lock m")
	away.do("lead e")
	if answer := along.do("campaign e"); answer != "waits" { // and reads along
		t.Fatal(answer)
	}
	ctx := deadline(t)
	ready := make(chan struct{})
	seen := make(chan int, 1)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		n := 0
		for ev, err := range s.Watch(watching, "k", 0) {
			switch {
			case err != nil:
				t.Error(err)
			case ev.String() == "watch:ready":
				close(ready)
			case ev.String() == "kv:put":
				n++
			default:
				t.Errorf("the watch tells %s", ev.String())
			}
			if n == 300 {
				break
			}
		}
		seen <- n
	}()
	<-ready
	for i := range 300 {
		if _, err := s.KV().Put(ctx, fmt.Sprint("k", i%7), make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Counter("c").Add(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := <-seen; n != 300 {
		t.Errorf("the watch told %d of 300 changes", n)
	}
	st, err := os.Stat(filepath.Join(dir, ".holdfast", "log"))
	if err != nil || st.Size() > 64<<10 {
		t.Errorf("the log has %d bytes, %v", st.Size(), err)
	}
	for i, p := range []*process{along, away, spawn(t, "servant", dir)} {
		if n := number(t, p.do("count c")); n != uint64(302+i) {
			t.Errorf("process %d counts %d, want %d", i, n, 302+i)
		}
	}
	if _, err := s.Mutex("m").TryAcquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("a lock held all along: %v", err)
	}
}

// Lock files that were given back stay open, but not many of them.
func TestFewStayOpen(t *testing.T) {
	dir := t.TempDir()
	s := space(t, dir)
	for range 2 {
		for i := range 3 * filehold.MaxIdle {
			h, err := s.Mutex(fmt.Sprint("m", i)).Acquire(deadline(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Release(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := openLocks(t, dir); n != filehold.MaxIdle {
		t.Errorf("%d files stay open, want %d", n, filehold.MaxIdle)
	}
}

// openLocks is how many lock files of a directory are open.
func openLocks(t *testing.T, dir string) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if path, err := os.Readlink(fd); err == nil && filepath.Dir(path) == dir && filepath.Ext(path) == ".lock" {
			n++
		}
	}
	return n
}

// fill has the log replaced n times.
func fill(t *testing.T, s *holdfast.Space, dir string, n int) {
	t.Helper()
	path := filepath.Join(dir, ".holdfast", "log")
	ctx := deadline(t)
	for before := stat(t, path); n > 0; {
		if _, err := s.Counter("c").Add(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if after := stat(t, path); !os.SameFile(before, after) {
			before, n = after, n-1
		}
	}
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func counted(t *testing.T, s *holdfast.Space) int64 {
	t.Helper()
	n, err := s.Counter("c").Load(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A process that is one log behind reads its end before it goes on with the next.
func TestCompaction_Behind(t *testing.T) {
	dir := t.TempDir()
	s := openDriver(t, dir, func(x *filehold.Seams) { x.CompactAt = 8 << 10 })
	behind := spawn(t, "servant", dir)
	behind.do("count c")
	fill(t, s, dir, 1)
	n := counted(t, s)
	if got := number(t, behind.do("count c")); got != uint64(n+1) {
		t.Errorf("who was behind counts %d, want %d", got, n+1)
	}
}

// A waiter that is stopped while the log is replaced again and again gets what
// was granted to it meanwhile, and notices the ends of those that came.
func TestCompaction_StoppedWaiter(t *testing.T) {
	dir := t.TempDir()
	s := openDriver(t, dir, func(x *filehold.Seams) { x.CompactAt = 8 << 10 })
	ctx := deadline(t)
	first, err := s.Election("e").Campaign(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := spawn(t, "servant", dir)
	if answer := p.do("campaign e"); answer != "waits" {
		t.Fatal(answer)
	}
	p.signal(syscall.SIGSTOP)
	fill(t, s, dir, 1)
	q := spawn(t, "servant", dir)
	q.do("lead f")
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	fill(t, s, dir, 2)
	p.signal(syscall.SIGCONT)
	if token := number(t, p.line()); token <= uint64(first.Token()) {
		t.Errorf("the token %d came after %d", token, first.Token())
	}
	if answer := p.do("campaign f"); answer != "waits" {
		t.Fatal(answer)
	}
	q.kill()
	number(t, p.line())
}

// A log that was put into its place by a process that was killed before it could say so
// is taken by the next that finds it.
func TestCompaction_KilledBetween(t *testing.T) {
	dir := t.TempDir()
	d, err := filehold.NewWith(dir, func(x *filehold.Seams) { x.CompactAt = 8 << 10 })
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, dir, 1)
	n := counted(t, s)
	if err := errors.Join(s.Close(), filehold.HalfSwitched(dir)); err != nil {
		t.Fatal(err)
	}
	if got := counted(t, space(t, dir)); got != n {
		t.Errorf("the counter is %d, want %d", got, n)
	}
}

// A name is of one kind, also for other processes; a lock's name is one until
// its file is removed.
func TestOneKind(t *testing.T) {
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "servant", dir)
	ctx := deadline(t)
	p.do("lock m")
	p.do("release m")
	p.do("permit s")
	if _, err := s.Semaphore("m", 2).TryAcquire(ctx, 1); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("a lock as a semaphore: %v", err)
	}
	if _, err := s.Counter("m").Add(ctx, 1); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("a lock as a counter: %v", err)
	}
	if _, err := s.Mutex("s").TryAcquire(ctx); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("a semaphore as a lock: %v", err)
	}
	p.do("lock m")
	if _, err := s.RWMutex("m").Reader().TryAcquire(ctx); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("a mutex as a reader-writer lock: %v", err)
	}
	p.do("release m")
	if err := os.Remove(filepath.Join(dir, filehold.FileName("m"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Counter("m").Add(ctx, 1); err != nil {
		t.Errorf("a name whose file was removed: %v", err)
	}
}

// A holder in another process is told by ErrHeld and Inspect.
func TestHolderInAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "servant", dir)
	token := number(t, p.do("lock m"))
	_, err := s.Mutex("m").TryAcquire(deadline(t))
	he, ok := errors.AsType[*holdfast.Error](err)
	if !ok || len(he.Holders) != 1 || he.Holders[0].Owner != "servant" || uint64(he.Holders[0].Token) != token {
		t.Errorf("ErrHeld: %v", err)
	}
	leader := number(t, p.do("lead e"))
	l, err := s.Election("e").Leader(deadline(t))
	if err != nil || uint64(l.Token) != leader || string(l.Value) != "servant" {
		t.Errorf("the leader is told as %+v, %v", l, err)
	}
}

// Waits go on in the kernel for a while after they were cancelled; a lock that
// nobody wants any more is free for others all the same.
func TestCancelledWaitTakesNothing(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "servant", dir)
	for range 20 {
		p.do("lock m")
		short, cancel := context.WithTimeout(deadline(t), time.Millisecond)
		if _, err := s.Mutex("m").Acquire(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a wait: %v", err)
		}
		cancel()
		p.do("release m")
		h, err := s.Mutex("m").TryAcquire(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
