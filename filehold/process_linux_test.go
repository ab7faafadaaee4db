package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

// lonely opens dir with a fall-back poll of an hour: whatever wakes is the
// kernel.
func lonely(t testing.TB, dir string) *holdfast.Space {
	return openDriver(t, dir, func(s *filehold.Seams) { s.Fallback = time.Hour })
}

func number(t testing.TB, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// takers take what the servant's verb takes.
var takers = map[string]func(ctx context.Context, s *holdfast.Space, name string, o ...holdfast.HoldOption) (*holdfast.Hold, error){
	"lock": func(ctx context.Context, s *holdfast.Space, name string, o ...holdfast.HoldOption) (*holdfast.Hold, error) {
		return s.Mutex(name, o...).Acquire(ctx)
	},
	"read": func(ctx context.Context, s *holdfast.Space, name string, o ...holdfast.HoldOption) (*holdfast.Hold, error) {
		return s.RWMutex(name, o...).Writer().Acquire(ctx)
	},
	"permit": func(ctx context.Context, s *holdfast.Space, name string, o ...holdfast.HoldOption) (*holdfast.Hold, error) {
		return s.Semaphore(name, 2, o...).Acquire(ctx, 1)
	},
	"lead": func(ctx context.Context, s *holdfast.Space, name string, o ...holdfast.HoldOption) (*holdfast.Hold, error) {
		l, err := s.Election(name, o...).Campaign(ctx, nil)
		if err != nil {
			return nil, err
		}
		return l.Hold, nil
	},
}

// waiting starts a taker and returns when it waits.
func waiting(t testing.TB, s *holdfast.Space, verb, name string) <-chan *holdfast.Hold {
	t.Helper()
	ctx := deadline(t)
	waits, got := make(chan struct{}, 8), make(chan *holdfast.Hold, 1)
	go func() {
		h, err := takers[verb](ctx, s, name, holdfast.OnWait(func(int) { waits <- struct{}{} }))
		if err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		got <- h
	}()
	select {
	case <-waits:
	case <-got:
		t.Fatalf("%s did not wait", verb)
	}
	return got
}

// What a process held is granted to a waiter when it is killed, and to one that
// comes later; the token is greater.
func TestKilledHolder(t *testing.T) {
	noLeaks(t)
	for verb := range takers {
		t.Run(verb, func(t *testing.T) {
			dir := t.TempDir()
			s, p := lonely(t, dir), spawn(t, "servant", dir)
			old := number(t, p.do(verb+" x"))
			got := waiting(t, s, verb, "x")
			p.kill()
			h := <-got
			if uint64(h.Token()) <= old {
				t.Errorf("the token %d came after %d", h.Token(), old)
			}
			if err := h.Release(); err != nil {
				t.Error(err)
			}
			p = spawn(t, "servant", dir)
			p.do(verb + " x")
			p.kill()
			h, err := takers[verb](deadline(t), s, "x")
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A process that has the lock of the pipe and does not end the holds of a killed one, because it was
// stopped just then, keeps nobody waiting for ever.
func TestKilledHolder_NotEnded(t *testing.T) {
	dir := t.TempDir()
	s := lonely(t, dir)
	pipes := func() []string {
		list, _ := filepath.Glob(filepath.Join(dir, ".holdfast", "live", "*.pipe"))
		return list
	}
	own := pipes()
	p := spawn(t, "servant", dir)
	p.do("permit x")
	i := slices.IndexFunc(pipes(), func(path string) bool { return !slices.Contains(own, path) })
	path := pipes()[i]
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0) // its end is not yet seen
	if err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	locked := make(chan error, 1)
	go func() { locked <- syscall.Flock(fd, syscall.LOCK_EX) }()
	eventually(t, "nobody waits in the kernel", func() bool { return waitedFor(t, path) })
	got := waiting(t, s, "permit", "x")
	p.kill()
	if err := errors.Join(<-locked, open.Close()); err != nil {
		t.Fatal(err)
	}
	if err := (<-got).Release(); err != nil {
		t.Error(err)
	}
}

// A try that is refused because of the dead is not refused.
func TestKilledHolder_Try(t *testing.T) {
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "servant", dir)
	p.do("permit s")
	p.do("lock m")
	if _, err := s.Semaphore("s", 2).TryAcquire(deadline(t), 1); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("beside a living holder: %v", err)
	}
	p.kill()
	if _, err := s.Semaphore("s", 2).TryAcquire(deadline(t), 1); err != nil {
		t.Error(err)
	}
	if _, err := s.Mutex("m").TryAcquire(deadline(t)); err != nil {
		t.Error(err)
	}
}

// A waiter that is killed is never granted anything.
func TestKilledWaiter(t *testing.T) {
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "servant", dir)
	h, err := s.Mutex("m").Acquire(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	p.do("await m")
	r, err := s.Inspect(deadline(t), "m")
	if err != nil || len(r.Waiters) != 1 || r.Waiters[0].Owner != "servant" {
		t.Errorf("the waiter of another process is told as %+v, %v", r.Waiters, err)
	}
	p.kill()
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if h, err = s.Mutex("m").TryAcquire(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Inspect(deadline(t), "m"); err != nil || len(r.Waiters) != 0 || len(r.Holders) != 1 {
		t.Errorf("after its death: %+v, %v", r, err)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
}

// A waiter that is killed while it is the first in the line is passed over.
func TestKilledWaiter_First(t *testing.T) {
	dir := t.TempDir()
	s, p := lonely(t, dir), spawn(t, "servant", dir)
	first, err := s.Election("x").Campaign(deadline(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer := p.do("campaign x"); answer != "waits" {
		t.Fatal(answer)
	}
	got := waiting(t, s, "lead", "x")
	p.kill()
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	if h := <-got; h.Token() <= first.Token() || h.Release() != nil {
		t.Errorf("the token %d came after %d", h.Token(), first.Token())
	}
}

// A writer that is killed at any moment loses nothing that it was answered, and
// leaves a store that others go on with.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	s := openDriver(t, dir, func(s *filehold.Seams) { s.CompactAt = 8 << 10 })
	for round := range 8 {
		p := spawn(t, "servant", dir, "FILEHOLD_COMPACT=1")
		p.send("storm c")
		last := uint64(0)
		for range 5 + 7*round {
			last = number(t, p.line())
		}
		p.kill()
		n, err := s.Counter("c").Load(deadline(t))
		if err != nil || uint64(n) < last {
			t.Fatalf("after the answer %d the counter is %d, %v", last, n, err)
		}
		if _, err := s.Counter("c").Add(deadline(t), 1); err != nil {
			t.Fatal(err)
		}
		e, err := s.KV().Get(deadline(t), "c")
		if err != nil || len(e.Value) != 3000 {
			t.Fatalf("the key has %d bytes, %v", len(e.Value), err)
		}
	}
}

// A process that is stopped goes on holding.
func TestStoppedHolder(t *testing.T) {
	dir := t.TempDir()
	s, p := lonely(t, dir), spawn(t, "servant", dir)
	p.do("lock x")
	p.do("permit s")
	p.signal(syscall.SIGSTOP)
	got := waiting(t, s, "lock", "x")
	for range 3 {
		if _, err := s.Mutex("x").TryAcquire(deadline(t)); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("beside a stopped holder: %v", err)
		}
		if _, err := s.Semaphore("s", 2).TryAcquire(deadline(t), 1); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("beside a stopped holder: %v", err)
		}
	}
	for name, wait := range map[string]func(ctx context.Context) (*holdfast.Hold, error){
		"lock":   func(ctx context.Context) (*holdfast.Hold, error) { return s.Mutex("x").Acquire(ctx) },
		"permit": func(ctx context.Context) (*holdfast.Hold, error) { return s.Semaphore("s", 2).Acquire(ctx, 1) },
	} {
		short, cancel := context.WithTimeout(deadline(t), 20*time.Millisecond)
		if _, err := wait(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait for the %s of a stopped holder: %v", name, err)
		}
		cancel()
	}
	select {
	case <-got:
		t.Error("granted beside a stopped holder")
	default:
	}
	p.signal(syscall.SIGCONT)
	p.do("release x")
	if h := <-got; h.Release() != nil {
		t.Error("not released")
	}
}

// Promise: "a lock file that is removed under its holder keeps nobody out; the
// next locks the file that has the name then. Fencing still holds: its token is
// greater".
func TestUnlinkUnderHolder(t *testing.T) {
	dir := t.TempDir()
	s, p, q := space(t, dir), spawn(t, "servant", dir), spawn(t, "servant", dir)
	old := number(t, p.do("lock m"))
	path := filepath.Join(dir, filehold.FileName("m"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	token := number(t, q.do("lock m"))
	if token <= old {
		t.Errorf("the token %d came after %d", token, old)
	}
	p.do("release m")
	if _, err := s.Mutex("m").TryAcquire(deadline(t)); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("the release of the removed file freed the new one: %v", err)
	}
}

// A lock file that was given back may be removed: the next lock is on the file
// that has the name then, also for a process that had the old one open.
func TestUnlinkIdle(t *testing.T) {
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "servant", dir)
	h, err := s.Mutex("m").Acquire(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, filehold.FileName("m"))); err != nil {
		t.Fatal(err)
	}
	if token := number(t, p.do("lock m")); token <= uint64(h.Token()) {
		t.Errorf("the token %d came after %d", token, h.Token())
	}
	if _, err := s.Mutex("m").TryAcquire(deadline(t)); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("beside the holder of the new file: %v", err)
	}
	p.do("release m")
	if _, err := s.Mutex("m").TryAcquire(deadline(t)); err != nil {
		t.Error(err)
	}
}

// A waiter on a file that is removed goes on with the one that has the name.
func TestUnlinkUnderWaiter(t *testing.T) {
	dir := t.TempDir()
	s, p := lonely(t, dir), spawn(t, "servant", dir)
	p.do("lock x")
	path := filepath.Join(dir, filehold.FileName("x"))
	got := waiting(t, s, "lock", "x")
	eventually(t, "nobody waits in the kernel", func() bool { return waitedFor(t, path) })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p.do("release x")
	h := <-got
	q := spawn(t, "servant", dir)
	if answer := q.do("await x"); answer != "waits" {
		t.Fatalf("beside the holder of the new file: %s", answer)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
	if token := number(t, q.line()); token <= uint64(h.Token()) {
		t.Errorf("the token %d came after %d", token, h.Token())
	}
}

// waitedFor reports whether somebody waits in the kernel for a lock on the file.
func waitedFor(t testing.TB, path string) bool {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "->") && strings.Contains(line, fmt.Sprintf(":%d ", st.Ino)) {
			return true
		}
	}
	return false
}

// Promise: "Who waits is woken by the kernel". Every kind of wait, with the
// cause in another process, and no poll.
func TestWakesWithoutPoll(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	s, p := lonely(t, dir), spawn(t, "servant", dir)
	p.do("lock x")
	got := waiting(t, s, "lock", "x")
	p.do("release x")
	if err := (<-got).Release(); err != nil {
		t.Error(err)
	}

	ctx := deadline(t)
	watching, cancel := context.WithCancel(ctx)
	events := make(chan string, 64)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ev, err := range s.Watch(watching, "", 0, holdfast.Patterns{"kv:*", "lock:*"}) {
			if err != nil {
				t.Error(err)
				return
			}
			events <- ev.String() + " " + ev.Name
		}
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			if got != want {
				t.Fatalf("the next event is %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("%s was not told", want)
		}
	}
	expect("watch:ready ")
	p.do("put k")
	expect("kv:put k")
	p.do("lock m")
	expect("lock:acquired m")
	p.do("release m")
	expect("lock:released m")
	p.do("key mine")
	expect("kv:put mine")
	p.do("lock n")
	expect("lock:acquired n")
	p.kill()
	expect("kv:delete mine")
	expect("lock:expired n")
	cancel()
	<-over

	q := spawn(t, "servant", dir)
	q.do("lead kept")
	kept := waiting(t, s, "lead", "kept") // so that no other wait is the first
	for i := range 5 {
		latch := fmt.Sprint("l", i)
		passed := make(chan error, 1)
		waits := make(chan struct{}, 1)
		go func() {
			passed <- s.With(holdfast.OnWait(func(int) { waits <- struct{}{} })).Latch(latch, 1).Wait(ctx)
		}()
		<-waits
		q.do("countdown " + latch)
		if err := <-passed; err != nil {
			t.Fatal(err)
		}
	}
	q.do("release kept")
	if err := (<-kept).Release(); err != nil {
		t.Error(err)
	}
}

// A key that expires is told although nobody asks for it.
func TestExpiryIsTold(t *testing.T) {
	s := lonely(t, t.TempDir())
	ctx := deadline(t)
	for ev, err := range s.Watch(ctx, "", 0, holdfast.Patterns{"kv:*"}) {
		if err != nil {
			t.Fatal(err)
		}
		switch ev.String() {
		case "watch:ready":
			if _, err := s.KV().Put(ctx, "k", nil, holdfast.Expire(20*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		case "kv:delete":
			if _, err := s.KV().Get(ctx, "k"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Get: %v", err)
			}
			return
		}
	}
	t.Error("the key's end was not told")
}

// A session is its process: another one's keys end when it is killed, also if
// nobody waited for that.
func TestKilledSession(t *testing.T) {
	dir := t.TempDir()
	p := spawn(t, "servant", dir)
	p.do("key mine")
	s := space(t, dir)
	e, err := s.KV().Get(deadline(t), "mine")
	if err != nil || e.Session == (holdfast.SessionID{}) {
		t.Fatalf("%+v, %v", e, err)
	}
	p.kill()
	space(t, dir)
	later := spawn(t, "servant", dir)
	later.do("count c")
	if _, err := s.KV().Get(deadline(t), "mine"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of a dead process's key: %v", err)
	}
}

// Many processes count together.
func TestManyProcesses(t *testing.T) {
	dir := t.TempDir()
	const processes, each = 32, 5
	var ps []*process
	for range processes {
		ps = append(ps, spawn(t, "servant", dir))
	}
	for range each {
		for _, p := range ps {
			p.send("count c")
		}
	}
	seen := map[string]bool{}
	for _, p := range ps {
		for range each {
			n := p.line()
			if seen[n] {
				t.Errorf("two were told %s", n)
			}
			seen[n] = true
		}
	}
	if !seen[fmt.Sprint(processes*each)] || len(seen) != processes*each {
		t.Errorf("%d counts were told", len(seen))
	}
}
