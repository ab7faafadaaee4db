package gather

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// deadMount are files of which those below /dead never answer.
func deadMount(t *testing.T) (s *files, looks *atomic.Int32) {
	dead, looks := make(chan struct{}), &atomic.Int32{}
	t.Cleanup(func() { close(dead) })
	return &files{stat: func(path string) (fs.FileInfo, error) {
		if strings.HasPrefix(path, "/dead/") {
			looks.Add(1)
			<-dead
		}
		return os.Stat(path)
	}}, looks
}

// A file on a mount that does not answer is an error of its leaf; others are decided, and
// followed, without it, and one look at it is enough.
func TestFiles_DeadMount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ok")
	synctest.Test(t, func(t *testing.T) {
		s, looks := deadMount(t)
		g := New(Config{Sources: map[guard.Source]Source{guard.SourceFile: s}})
		c := guard.Any(guard.FileExists("/dead/x"), guard.FileExists(path))
		r := g.Evaluate(t.Context(), &c)
		if r.Reasons[0].Outcome != guard.Error || r.Reasons[1].Outcome != guard.Failed || !strings.Contains(r.Reasons[0].Got, "did not answer") {
			t.Errorf("%s", r)
		}
		time.AfterFunc(time.Minute, func() { _ = os.WriteFile(path, nil, 0o600) })
		began := time.Now()
		r, err := g.Wait(t.Context(), &c, WaitOptions{Recheck: time.Hour})
		if d := time.Since(began); err != nil || r.Outcome != guard.Passed || d > 90*time.Second {
			t.Errorf("after %s %s, %v", d, r, err)
		}
		if n := looks.Load(); n != 1 {
			t.Errorf("%d looks are under way", n)
		}
	})
}

// The end of its context ends a wait, also for a file on a mount that does not answer.
func TestFiles_DeadMountEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := deadMount(t)
		g := New(Config{Sources: map[guard.Source]Source{guard.SourceFile: s}})
		c := guard.FileExists("/dead/x")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		_, err := g.Wait(ctx, &c, WaitOptions{})
		if d := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || d > 8*time.Second {
			t.Errorf("it ended after %s with %v", d, err)
		}
	})
}

// A source that does not end when nobody wants it any more keeps nobody waiting for long.
func TestSubscribe_StuckSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		t.Cleanup(func() { close(stuck) })
		g := New(Config{Sources: map[guard.Source]Source{guard.SourceFile: stuckFollow{stuck}}})
		stop := g.Subscribe(Interest{Inputs: []guard.Input{{Source: guard.SourceFile, Name: "x"}}, Changed: func(...guard.Input) {}})
		began := time.Now()
		if stop(); time.Since(began) > 2*time.Second {
			t.Errorf("it ended after %s", time.Since(began))
		}
	})
}

type stuckFollow struct{ stuck chan struct{} }

func (s stuckFollow) Find(context.Context, []guard.Input) guard.Inputs { return nil }

func (s stuckFollow) Follow(context.Context, func() []guard.Input, func(...guard.Input)) { <-s.stuck }
