//go:build unix

package server_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/server"
	"github.com/holdfast-io/holdfast/server/replica"
	"github.com/holdfast-io/holdfast/session"
)

// wire is callers that speak to a node as a network server would: a session
// each, and a few streams for all of them.
type wire struct {
	callers []*caller
}

// caller is one session. Its commands are numbered by hand, since what is to be
// measured is the node.
type caller struct {
	id     core.SessionID
	st     *server.Stream
	name   string
	seq    uint64
	tries  uint64
	body   []byte
	answer chan struct{}
}

const wireStreams = 8

func newWire(b *testing.B, srv *server.Server) *wire {
	b.Helper()
	for st := (replica.Status{}); !st.Serving; {
		var err error
		if st, err = srv.Status(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	w := &wire{}
	var mu sync.Mutex // until all callers are there
	mu.Lock()
	deliver := func(data []byte) {
		mu.Lock()
		defer mu.Unlock()
		w.deliver(b, data)
	}
	var streams []*server.Stream
	for range wireStreams {
		st, err := srv.Stream(context.Background(), deliver, func() {})
		if err != nil {
			b.Fatal(err)
		}
		streams = append(streams, st)
	}
	for i := range proposers {
		c := &caller{st: streams[i%wireStreams], name: fmt.Sprintf("bench/some-lock-%08d", i), answer: make(chan struct{}, 1)}
		binary.LittleEndian.PutUint32(c.id[:], uint32(i))
		c.id[15] = 1
		w.callers = append(w.callers, c)
	}
	mu.Unlock()
	var all sync.WaitGroup
	for _, c := range w.callers {
		_ = c.st.Send(session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: c.id, Stream: 1}))
		all.Go(func() { c.do(core.Command{Op: core.OpOpen, TTL: 24 * 3600e9, Window: 16}) })
	}
	all.Wait()
	return w
}

// deliver wakes the callers that are answered.
func (w *wire) deliver(b *testing.B, data []byte) {
	for len(data) > 0 {
		m, rest, err := session.DecodeMessage(data)
		if err != nil {
			b.Error(err)
			return
		}
		if m.Kind == session.KindReply {
			w.callers[binary.LittleEndian.Uint32(m.Session[:])].answer <- struct{}{}
		}
		data = rest
	}
}

// do sends a command and waits for its answer.
func (c *caller) do(cmd core.Command) {
	c.tries++
	f := core.Frame{Session: c.id, Attempt: c.tries, Mark: max(cmd.Seq, 1), Commands: []core.Command{cmd}}
	c.body = core.AppendFrame(c.body[:0], &f)
	_ = c.st.Send(session.AppendMessage(nil, &session.Message{Kind: session.KindFrame, Session: c.id, Stream: 1, Body: c.body}))
	<-c.answer
}

// work takes the caller's lock and gives it back.
func (w *wire) work(i int) int {
	c := w.callers[i]
	c.seq += 2
	c.do(core.Command{Op: core.OpAcquire, Seq: c.seq - 1, Wants: []core.Want{{Name: c.name, Kind: core.Mutex}}})
	c.do(core.Command{Op: core.OpRelease, Seq: c.seq, Target: c.seq - 1})
	return 2
}
