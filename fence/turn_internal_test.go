package fence

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// meet lets a waiter's context end in the moment in which its turn comes: the
// operation that it waits for ends the context as its last act. queued reports
// that the waiter stands in line.
func meet(t *testing.T, gate Doer, queued func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	entered := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := gate.Do(t.Context(), "r", 5, Exclusive, func(context.Context) error {
			close(entered)
			for !queued() {
				runtime.Gosched()
			}
			cancel()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-entered
	wg.Go(func() {
		err := gate.Do(ctx, "r", 5, Exclusive, func(context.Context) error { return nil })
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	wg.Wait()
}

func TestATurnThatComesTooLateIsPassedOn(t *testing.T) {
	var g Gate
	for round := range 500 {
		meet(t, &g, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.resources["r"].turn.queue) > 0
		})
		if r := g.resources["r"]; !r.turn.idle() {
			t.Fatalf("round %d: the turn is kept by nobody: %+v", round, r.turn)
		}
	}
}

func TestADirKeepsNoQueuesOfTheIdle(t *testing.T) {
	d := &Dir{Path: t.TempDir()}
	for round := range 500 {
		meet(t, d, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.turns["r"].queue) > 0
		})
		if len(d.turns) != 0 {
			t.Fatalf("round %d: %d queues are left", round, len(d.turns))
		}
	}
}

// A lock on a file that was removed meanwhile keeps out nobody, and must not
// count: Forget removes lock files while others open them.
func TestALockOnARemovedFileDoesNotCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 4 {
		wg.Go(func() {
			for range 1500 {
				f, err := tryLockFile(path, Exclusive)
				if errors.Is(err, errBusy) {
					runtime.Gosched()
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two have the lock")
				}
				runtime.Gosched()
				inside.Add(-1)
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
				f.Close()
			}
		})
	}
	wg.Wait()
}
