//go:build unix

package server_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/server"
)

// What comes while the loop hands out an answer is seen after that, and not with
// the next tick. Attaching writes nothing, so that no write wakes the loop.
func TestNoFrameWaitsForATick(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir(), Tick: time.Hour})
	for !serves(s) {
		time.Sleep(time.Millisecond)
	}
	var st *server.Stream
	attach := func(number uint64) {
		_ = st.Send(session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: core.SessionID{1}, Stream: number}))
	}
	done := make(chan struct{})
	st, err := s.Stream(within(t), func(data []byte, _ func()) {
		m, _, err := session.DecodeMessage(data)
		if err != nil || m.Kind != session.KindTable || m.Stream == 10 {
			close(done)
			return
		}
		attach(m.Stream + 1) // while the loop is at work
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	attach(1)
	select {
	case <-done:
	case <-within(t).Done():
		t.Fatal("a frame lies before the loop, and nothing wakes it")
	}
}
