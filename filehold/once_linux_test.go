package filehold_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

// A flush of a buffered counter that the disk did not answer, since it is slow or has
// failed, has counted, and its repetition does not count again.
func TestBufferedCountsOnce(t *testing.T) {
	for what, slow := range map[string]bool{"slow": true, "failed": false} {
		t.Run(what, func(t *testing.T) {
			var broken atomic.Bool
			syncing, answer := make(chan struct{}), make(chan error)
			s := openDriver(t, t.TempDir(), func(x *filehold.Seams) {
				x.SyncLog = func(int) error {
					if !broken.CompareAndSwap(true, false) {
						return nil
					}
					close(syncing)
					return <-answer
				}
			})
			b := s.Counter("c").Buffered(1000, time.Hour)
			if err := b.Add(5); err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			ctx, leave := context.WithCancel(deadline(t))
			defer leave()
			first := flushed(ctx, b)
			<-syncing
			if slow {
				leave()
			} else {
				answer <- syscall.EIO
			}
			if err := <-first; err == nil || holdfast.NotDone(err) {
				t.Fatalf("a flush that the disk did not answer: %v", err)
			}
			if slow {
				answer <- nil
			}
			if err := <-flushed(deadline(t), b); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Counter("c").Load(deadline(t)); n != 5 || err != nil {
				t.Errorf("an amount of 5 was counted as %d, %v", n, err)
			}
		})
	}
}

// A change that is being synced while another process cannot sync the same log is done: the log
// is replaced, by one that has the change.
func TestSyncFailsElsewhere(t *testing.T) {
	dir := t.TempDir()
	var fails atomic.Bool
	var elsewhere error
	s := openDriver(t, dir, func(x *filehold.Seams) {
		x.SyncLog = func(int) error {
			if fails.CompareAndSwap(true, false) {
				elsewhere = filehold.SyncFailedElsewhere(dir)
			}
			return nil
		}
	})
	fails.Store(true)
	n, err := s.Counter("c").Add(deadline(t), 3)
	if n != 3 || err != nil || fails.Load() || elsewhere != nil {
		t.Errorf("an addition beside a sync that failed elsewhere (%v): %d, %v", elsewhere, n, err)
	}
}

// flushed flushes beside the test.
func flushed(ctx context.Context, b *holdfast.BufferedCounter[int64]) <-chan error {
	over := make(chan error, 1)
	go func() {
		_, err := b.Flush(ctx)
		over <- err
	}()
	return over
}
