//go:build unix

package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

// Another process cannot open a directory in use, and is told which.
func TestOtherProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := spawn(t, "suite", "SERVER_TEST_DIR="+dir)
	p.line() // it counts
	for name, open := range map[string]func() error{
		"New": func() error { _, err := server.New(server.Config{Dir: dir}); return err },
		"URL": func() error { _, err := holdfast.Open(t.Context(), "embed://"+dir); return err },
	} {
		err := open()
		if !errors.Is(err, storage.ErrLocked) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want an error that names %s as in use", name, err, dir)
		}
	}
	p.line() // and still does
	p.kill()
	s, err := holdfast.Open(within(t), "embed://"+dir)
	if err != nil {
		t.Fatal("after the other process has gone:", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// user has everything under way that a node's end has to end.
type user struct {
	s      *holdfast.Space
	hold   *holdfast.Hold
	waits  chan error
	events chan error
}

func newUser(ctx context.Context, s *holdfast.Space) (*user, error) {
	u := &user{s: s, waits: make(chan error, 1), events: make(chan error, 1)}
	var err error
	if u.hold, err = s.Mutex("held").Acquire(ctx); err != nil {
		return nil, err
	}
	queued := make(chan struct{})
	go func() {
		_, err := s.Mutex("held", holdfast.OnWait(func(int) { close(queued) })).Acquire(ctx)
		u.waits <- err
	}()
	go func() {
		var last error
		for _, last = range s.Watch(ctx, "", 0) {
		}
		u.events <- last
	}()
	<-queued
	return u, nil
}

// ended waits for the end of everything and returns what was wrong with it.
func (u *user) ended(ctx context.Context) error {
	var wrong []error
	closed := func(what string, err error) {
		if !errors.Is(err, holdfast.ErrClosed) {
			wrong = append(wrong, fmt.Errorf("%s: %w, want ErrClosed", what, err))
		}
	}
	select {
	case <-u.hold.Done():
	case <-ctx.Done():
		return errors.New("the hold does not end")
	}
	closed("the hold", u.hold.Err())
	closed("who waited for it", <-u.waits)
	closed("the watch", <-u.events)
	_, err := u.s.Counter("n").Add(ctx, 1)
	closed("a call", err)
	_, err = u.s.Mutex("other").Acquire(ctx)
	closed("an Acquire", err)
	_, err = u.s.KV().Get(ctx, "k")
	closed("a read", err)
	closed("Ping", u.s.Ping(ctx))
	return errors.Join(wrong...)
}

// When the node is closed, so are its Spaces.
func TestSpaceOfClosedServer(t *testing.T) {
	srv := start(t, server.Config{Dir: t.TempDir()})
	s, err := srv.Space()
	if err != nil {
		t.Fatal(err)
	}
	u, err := newUser(within(t), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := u.ended(within(t)); err != nil {
		t.Error(err)
	}
	late, err := srv.Space()
	if err == nil {
		_, err = late.Counter("n").Add(within(t), 1)
		_ = late.Close()
	}
	if !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("a Space of a node that has stopped: %v, want ErrClosed", err)
	}
	_ = s.Close()
}

func init() { roles["failing"] = failingChild }

// failingChild is a process whose disk takes no more writes after it has counted
// to ten: no file may grow, or be written to, beyond its first byte.
func failingChild() error {
	go untilOrphaned()
	ctx := context.Background()
	srv, err := server.New(server.Config{Dir: os.Getenv("SERVER_TEST_DIR")})
	if err != nil {
		return err
	}
	s, err := srv.Space()
	if err != nil {
		return err
	}
	u, err := newUser(ctx, s)
	if err != nil {
		return err
	}
	for range 10 {
		if _, err := s.Counter("n").Add(ctx, 1); err != nil {
			return err
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1, Max: 1}); err != nil {
		return err
	}
	_, err = s.Counter("n").Add(ctx, 1)
	fmt.Println("the call after it:", errors.Is(err, holdfast.ErrClosed), !holdfast.NotDone(err))
	if err := u.ended(ctx); err != nil {
		return err
	}
	<-srv.Done()
	fmt.Println("the reason:", errors.Is(srv.Err(), syscall.EFBIG), errors.Is(err, syscall.EFBIG))
	_ = s.Close()
	fmt.Println("Close:", errors.Is(srv.Close(), syscall.EFBIG))
	return nil
}

// A node whose disk fails ends, and says why: calls answer ErrClosed, holds and
// waits end, and what had been answered is there for the next process.
func TestFailingDisk(t *testing.T) {
	dir := t.TempDir()
	p := spawn(t, "failing", "SERVER_TEST_DIR="+dir)
	for _, want := range []string{"the call after it: true true", "the reason: true true", "Close: true"} {
		if got := p.line(); got != want {
			t.Fatalf("the process says %q, want %q", got, want)
		}
	}
	p.kill()
	s, err := holdfast.Open(within(t), "embed://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, err := s.Counter("n").Load(within(t)); err != nil || n != 10 {
		t.Errorf("the next process finds a count of %d, %v, want 10", n, err)
	}
}

// A node without its directory ends: another that is started in its place would grant the same names.
func TestDirectoryIsRemoved(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"moved": func(dir string) error { return os.Rename(dir, dir+".away") },
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "LOCK"), nil, 0o600))
		},
		"unlocked": func(dir string) error { return os.Remove(filepath.Join(dir, "LOCK")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "node")
			s, err := holdfast.Open(within(t), "embed://"+dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			h, err := s.Mutex("m").Acquire(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := take(dir); err != nil {
				t.Fatal(err)
			}
			select {
			case <-h.Done():
			case <-within(t).Done():
				t.Fatal("the hold goes on")
			}
			if err := h.Err(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("the hold: %v", err)
			}
			if _, err := s.KV().Put(within(t), "k", nil); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("a put: %v", err)
			}
		})
	}
}
