//go:build unix

package server_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/server"
)

// wire is callers that speak to a node as a network server would: a session
// each, and a few streams for all of them.
type wire struct {
	callers []*caller
	over    atomic.Bool
}

// caller is one session. Its commands are numbered by hand, since what is to be
// measured is the node.
type caller struct {
	id     core.SessionID
	st     *server.Stream
	name   string
	seq    uint64
	tries  uint64
	answer chan struct{}
}

const wireStreams = 8

// newWire opens n sessions; whatever goes wrong ends the process, since nothing
// may.
func newWire(srv *server.Server, n int) *wire {
	for !serves(srv) {
		time.Sleep(time.Millisecond)
	}
	w := &wire{}
	for i := range n {
		c := &caller{name: fmt.Sprintf("bench/some-lock-%08d", i), answer: make(chan struct{}, 1)}
		binary.LittleEndian.PutUint32(c.id[:], uint32(i))
		c.id[15] = 1
		w.callers = append(w.callers, c)
	}
	for i := range wireStreams {
		st, err := srv.Stream(context.Background(), w.deliver, w.closed)
		if err != nil {
			panic(err)
		}
		for k := i; k < n; k += wireStreams {
			w.callers[k].st = st
		}
	}
	w.open()
	return w
}

func serves(srv *server.Server) bool {
	st, err := srv.Status(context.Background())
	if err != nil {
		panic(err)
	}
	return st.Serving
}

func (w *wire) open() {
	var all sync.WaitGroup
	for _, c := range w.callers {
		_ = c.st.Send(session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: c.id, Stream: 1}))
		all.Go(func() { c.do(1, core.Command{Op: core.OpOpen, TTL: 24 * 3600e9, Window: 1024}) })
	}
	all.Wait()
}

// end is called when the node may stop.
func (w *wire) end() { w.over.Store(true) }

// closed: a node that has stopped leading would let its callers wait for ever.
func (w *wire) closed() {
	if !w.over.Load() {
		panic("the node has ended a stream: it does not lead any more")
	}
}

// deliver wakes the callers that are answered.
func (w *wire) deliver(data []byte, _ func()) {
	for len(data) > 0 {
		m, rest, err := session.DecodeMessage(data)
		if err != nil {
			panic(err)
		}
		if m.Kind == session.KindReply {
			w.callers[binary.LittleEndian.Uint32(m.Session[:])].answer <- struct{}{}
		}
		data = rest
	}
}

// do sends commands in one frame, the first of them with the number mark, and
// waits for their answer.
func (c *caller) do(mark uint64, cmds ...core.Command) {
	d := desks.Get().(*desk)
	d.cmds = append(d.cmds[:0], cmds...)
	c.send(d, mark)
	<-c.answer
}

// desk is where a caller writes its frame. A few serve all, so that what is
// measured is not the memory of those who ask.
type desk struct {
	cmds  []core.Command
	wants [1]core.Want
	body  []byte
}

var desks = sync.Pool{New: func() any { return new(desk) }}

// send sends the commands on a desk and gives that back.
func (c *caller) send(d *desk, mark uint64) {
	c.tries++
	f := core.Frame{Session: c.id, Attempt: c.tries, Mark: mark, Commands: d.cmds}
	d.body = core.AppendFrame(d.body[:0], &f)
	m := session.Message{Kind: session.KindFrame, Session: c.id, Stream: 1, Body: d.body}
	_ = c.st.Send(session.AppendMessage(make([]byte, 0, len(d.body)+64), &m))
	desks.Put(d)
}

// one sends a command of two that lock and unlock, and waits for its answer.
func (c *caller) one(op core.Op) {
	c.seq++
	d := desks.Get().(*desk)
	d.cmds = append(d.cmds[:0], core.Command{Op: op, Seq: c.seq})
	if op == core.OpAcquire {
		d.wants[0] = core.Want{Name: c.name, Kind: core.Mutex}
		d.cmds[0].Wants = d.wants[:]
	} else {
		d.cmds[0].Target = c.seq - 1
	}
	c.send(d, c.seq)
	<-c.answer
}

// pair is to take the caller's lock and to give it back.
func (c *caller) pair() (lock, unlock core.Command) {
	c.seq += 2
	lock = core.Command{Op: core.OpAcquire, Seq: c.seq - 1, Wants: []core.Want{{Name: c.name, Kind: core.Mutex}}}
	return lock, core.Command{Op: core.OpRelease, Seq: c.seq, Target: c.seq - 1}
}

// work is a pair, each command waited for.
func (w *wire) work(i int) int {
	w.callers[i].one(core.OpAcquire)
	w.callers[i].one(core.OpRelease)
	return 2
}

// fill is as many commands, many in a frame.
func (w *wire) fill(commands int) {
	const frame = 100
	var all sync.WaitGroup
	for _, c := range w.callers {
		all.Go(func() {
			for range commands / len(w.callers) / frame {
				var cmds []core.Command
				for len(cmds) < frame {
					lock, unlock := c.pair()
					cmds = append(cmds, lock, unlock)
				}
				c.do(cmds[0].Seq, cmds...)
			}
		})
	}
	all.Wait()
}
