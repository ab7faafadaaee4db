package client_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/core"
)

// addUnanswered has a fresh Space add 1 to a counter: that is done, and the link breaks
// before the answer has come.
func addUnanswered(t *testing.T) (f *far, done chan error) {
	t.Helper()
	f, done = openFar(t, 1), make(chan error, 1)
	f.mend()
	go func() {
		_, err := f.s.Counter("n").Add(context.Background(), 1)
		done <- err
	}()
	time.Sleep(5 * latency / 2) // the attach and the frame are there
	f.cut()
	return f, done
}

// wantOne fails the test unless the counter is 1.
func (f *far) wantOne(t *testing.T) {
	t.Helper()
	if n, err := f.s.Counter("n").Load(t.Context()); n != 1 || err != nil {
		t.Errorf("1 was added: %d (%v)", n, err)
	}
}

// A server that refuses to open a session now may have opened it before, and have done
// what came with that.
func TestRefusedAfterItWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, done := addUnanswered(t)
		f.deny = core.CodeInvalid
		f.mend()
		if err := <-done; !errors.Is(err, fs.ErrInvalid) || holdfast.NotDone(err) {
			t.Errorf("what was done ends with %v, not done: %v", err, holdfast.NotDone(err))
		}
		f.mu.Lock()
		f.deny = core.CodeOK
		f.mu.Unlock()
		f.wantOne(t)
	})
}

// What was refused at its only sending, or never sent, is not done.
func TestRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFar(t, 1)
		f.deny = core.CodeInvalid
		f.mend()
		if _, err := f.s.Counter("n").Add(t.Context(), 1); !errors.Is(err, fs.ErrInvalid) || !holdfast.NotDone(err) {
			t.Errorf("what was refused ends with %v, not done: %v", err, holdfast.NotDone(err))
		}
	})
}

// What a full server refuses is told at once: the next session would be refused the same.
func TestRefusedByAFullServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFar(t, 1)
		f.mend()
		for _, code := range []core.Code{core.CodeOK, core.CodeFull} {
			f.mu.Lock()
			f.deny = code
			f.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := f.s.Counter("n").Add(ctx, 1)
			cancel()
			if refused := errors.Is(err, holdfast.ErrExhausted) && holdfast.NotDone(err); refused != (code == core.CodeFull) || !refused && err != nil {
				t.Errorf("with code %d for every frame: %v", code, err)
			}
		}
	})
}

// After an outage for which no server remembers an id, nothing is done a second time.
func TestOutageLongerThanMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, done := addUnanswered(t)
		time.Sleep(15 * time.Minute)
		f.mend()
		if err := <-done; err == nil || holdfast.NotDone(err) {
			t.Errorf("after an outage of 15 minutes what was done ends with %v", err)
		}
		f.wantOne(t)
	})
}
