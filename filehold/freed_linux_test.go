package filehold_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

// TestFreedAfterKill measures how long what a process held stays taken after it
// was killed. Beside it stands what the kernel alone takes: a bare flock of the
// same process, for which another thread waits in the kernel.
func TestFreedAfterKill(t *testing.T) {
	dir := t.TempDir()
	s := lonely(t, dir)
	lock, plain := filepath.Join(dir, filehold.FileName("x")), filepath.Join(dir, "plain")
	leader, err := s.Election("e").Campaign(deadline(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer leader.Release()
	var bare, locks, permits, over, more []time.Duration
	for range max(*kills/3, 10) {
		p := spawn(t, "servant", dir)
		p.do("campaign e") // has the process listen for others, which costs at its end
		p.do("flock " + plain)
		p.do("lock x")
		p.do("permit s")
		waits := []<-chan time.Time{flocked(t, plain), granted(t, s, "lock", "x"), granted(t, s, "permit", "s")}
		for _, path := range []string{plain, lock} {
			eventually(t, "nobody waits in the kernel", func() bool { return waitedFor(t, path) })
		}
		start := time.Now()
		_ = p.cmd.Process.Kill()
		kernel, ours := (<-waits[0]).Sub(start), (<-waits[1]).Sub(start)
		bare, locks, permits = append(bare, kernel), append(locks, ours), append(permits, (<-waits[2]).Sub(start))
		more = append(more, ours-kernel)
		_ = p.cmd.Wait()
		over = append(over, time.Since(start))
	}
	t.Logf("proof: after its holder was killed, a lock is granted to its waiter in %s, a bare flock of the same process in %s, the permits of a semaphore in %s; the lock is later than the bare flock by %s; its parent sees the process gone after %s",
		spread(locks), spread(bare), spread(permits), spread(more), spread(over))
}

// flocked waits for a bare flock and tells when it had it.
func flocked(t *testing.T, path string) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		f, err := os.Open(path)
		if err == nil {
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		}
		at <- time.Now()
		if err != nil || f.Close() != nil {
			t.Errorf("a bare flock: %v", err)
		}
	}()
	return at
}

// granted waits for what the verb takes and tells when it had it. It returns
// when the wait has begun.
func granted(t *testing.T, s *holdfast.Space, verb, name string) <-chan time.Time {
	t.Helper()
	got := waiting(t, s, verb, name)
	at := make(chan time.Time, 1)
	go func() {
		h := <-got
		at <- time.Now()
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	}()
	return at
}
