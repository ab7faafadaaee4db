package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A stream whose caller gives up while the loop is busy is not kept: nobody would close it.
func TestStream_CallerGivesUp(t *testing.T) {
	s, err := New(Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	streams := func() (n int) {
		if err := s.loop.do(t.Context(), func() { n = len(s.loop.streams) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := streams()
	busy := make(chan struct{})
	s.loop.post(func(in *inbox) { in.todo = append(in.todo, func() { <-busy }) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Stream(ctx, func([]byte, func()) {}, func() {}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(busy)
	if n := streams(); n != before {
		t.Errorf("%d streams were left behind", n-before)
	}
}

// A session that is attached to a stream which has just ended leaves nothing behind.
func TestStream_AttachAfterItsEnd(t *testing.T) {
	s, err := New(Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ended := make(chan struct{})
	st, err := s.Stream(t.Context(), func([]byte, func()) {}, func() { close(ended) })
	if err != nil {
		t.Fatal(err)
	}
	streams := func() (n int) {
		if err := s.loop.do(t.Context(), func() { n = s.loop.node.Streams() }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := streams()
	st.Close()
	<-ended
	st.Attach(core.SessionID{7}, 1, 1)
	if n := streams(); n != before {
		t.Errorf("%d streams, %d before", n, before)
	}
}
