package filehold_test

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

// A watch that comes when the directory is gone ends, and has the program's holds end, although nobody waited before.
func TestGone_BeforeAWatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, ctx := space(t, dir), deadline(t)
	h, err := s.Mutex("m").Acquire(ctx)
	if err == nil {
		err = os.Rename(dir, dir+".away")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Watch(ctx, "", 0) {
		if !errors.Is(err, holdfast.ErrClosed) || !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("a watch: %v", err)
		}
		break
	}
	select {
	case <-h.Done():
	case <-ctx.Done():
	}
	if err := h.Err(); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("a hold: %v", err)
	}
}

// A watch ends with the directory, behind what it was told before, and says so; also an Observe, which would believe in
// the last leader for ever, and a Lead, which would campaign for ever.
func TestGone_UnderAWatch(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"cut": func(dir string) error {
			return filepath.WalkDir(filepath.Join(dir, ".holdfast"), func(path string, e fs.DirEntry, err error) error {
				if err != nil || !e.Type().IsRegular() {
					return err
				}
				return os.Truncate(path, 0)
			})
		},
		"moved": func(dir string) error { return os.Rename(dir, dir+".away") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			s, err := filehold.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx := deadline(t)
			if _, err := s.Election("e").Campaign(ctx, nil); err != nil {
				t.Fatal(err)
			}
			waits := make(chan struct{})
			led := make(chan error, 1)
			go func() {
				e := s.Election("e", holdfast.OnWait(func(int) { close(waits) }))
				led <- e.Lead(ctx, nil, func(context.Context, *holdfast.Leadership) error { return errors.New("it led") })
			}()
			<-waits
			watched, stop := iter.Pull2(s.Watch(ctx, "", 0))
			defer stop()
			seen, leave := iter.Pull2(s.Election("e").Observe(ctx))
			defer leave()
			_, err1, _ := watched() // it is ready
			_, err2, _ := seen()    // the leader
			if err := errors.Join(err1, err2, take(dir)); err != nil {
				t.Fatal(err)
			}
			for goes := true; err1 == nil && goes; {
				_, err1, goes = watched()
			}
			for goes := true; err2 == nil && goes; {
				_, err2, goes = seen()
			}
			for what, err := range map[string]error{"a watch": err1, "an Observe": err2, "a Lead": <-led} {
				if !errors.Is(err, holdfast.ErrClosed) || !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// A watch that ended with a directory that was moved leaves nothing there that says that it goes on, and is no failure.
func TestGone_WatchLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := space(t, dir, holdfast.Hooks{Fault: func(op, _ string, err error) {
		if op == "end a watch" {
			t.Error(op, err)
		}
	}})
	away := dir + ".away"
	said := func() bool {
		left, err := filepath.Glob(filepath.Join(away, ".holdfast", "live", "*.watch"))
		return err != nil || len(left) > 0
	}
	for ev, err := range s.Watch(deadline(t), "", 0) {
		if err != nil {
			break
		}
		if err := os.Rename(dir, away); err != nil || !said() {
			t.Fatalf("after %s nothing says that somebody watches: %v", ev.String(), err)
		}
	}
	eventually(t, "what says that somebody watches is still there", func() bool { return !said() })
}

// A directory that is gone does not come back: what is held there is lost, and nobody waits there any longer. All
// that tells so says that it is for good.
func TestGone(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"the directory":    func(dir string) error { return os.Rename(dir, dir+".away") },
		"its control file": func(dir string) error { return os.Remove(filepath.Join(dir, ".holdfast", "control")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			s, err := filehold.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx := deadline(t)
			lock, err1 := s.Mutex("m").Acquire(ctx)
			place, err2 := s.Semaphore("s", 1).Acquire(ctx, 1)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			waits, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := s.Semaphore("s", 1, holdfast.OnWait(func(int) { close(waits) })).Acquire(ctx, 1)
				ended <- err
			}()
			<-waits
			if err := take(dir); err != nil {
				t.Fatal(err)
			}
			closed := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, holdfast.ErrClosed) || !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("%s: %v", what, err)
				}
			}
			closed("a wait", <-ended)
			closed("Ping", s.Ping(ctx))
			for _, h := range []*holdfast.Hold{lock, place} {
				select {
				case <-h.Done():
				case <-ctx.Done():
				}
				closed("a hold", h.Err())
			}
		})
	}
}

// In a directory that is not there any more nothing begins: it would be done where nobody sees it.
func TestGone_CallsAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, ctx := space(t, dir), deadline(t)
	if _, err := s.Counter("c").Add(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"add":     second(s.Counter("c").Add(ctx, 1)),
		"flush":   second(s.Counter("c").Buffered(10, time.Hour).Flush(ctx)),
		"load":    second(s.Counter("c").Load(ctx)),
		"next":    second(s.Sequence("q").Next(ctx)),
		"put":     second(s.KV().Put(ctx, "k", nil)),
		"get":     second(s.KV().Get(ctx, "k")),
		"place":   second(s.Semaphore("s", 1).TryAcquire(ctx, 1)),
		"session": second(s.Session(ctx)),
		"inspect": second(s.Inspect(ctx, "m")),
		"leader":  second(s.Election("e").Leader(ctx)),
		"count":   second(s.Latch("l", 1).CountDown(ctx, 1)),
	} {
		if !errors.Is(err, holdfast.ErrClosed) || !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Counter("c").Load(ctx); n != 1 || err != nil {
		t.Errorf("back in its place the counter is %d: %v", n, err)
	}
	if h, err := s.Semaphore("s", 1).TryAcquire(ctx, 1); err != nil {
		t.Errorf("back in its place: %v", err)
	} else if err := h.Release(); err != nil {
		t.Error(err)
	}
}
