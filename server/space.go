package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// Space opens a Space on this node, in process. It works while the node leads,
// as a single node always does; on another member of a group its calls wait
// until the node leads, or answer ErrUnavailable. When the node stops, calls
// answer ErrClosed and all holds end.
func (s *Server) Space(opts ...holdfast.Option) (*holdfast.Space, error) {
	d := s.Driver()
	space, err := holdfast.New(d, opts...)
	if err != nil {
		_ = d.Close(context.Background())
		return nil, err
	}
	return space, nil
}

// Driver is what Space is made of, for [holdfast.New].
func (s *Server) Driver() driver.Driver {
	return s.near().g.New(client.Full("embed", s.MinTTL(), driver.FeatureDurable))
}

// engine carries the sessions of this process to the node, over one stream.
type engine struct {
	s    *Server
	g    *client.SessionMux
	left func()
	wake chan struct{}

	mu     sync.Mutex
	stream *Stream // nil: there is none
	in     []byte  // what came over it
	next   func()  // nil: the node has no more to send by now
	ended  bool    // it is over
}

var _ client.Engine = (*engine)(nil)

// near is the engine of this process, made when it is first needed.
func (s *Server) near() *engine {
	s.engineOnce.Do(func() {
		e := &engine{s: s, wake: make(chan struct{}, 1), left: func() {}}
		e.g = client.NewGroup(e, client.Options{Down: true})
		s.engine = e
		s.running.Go(e.run)
	})
	return s.engine
}

// run keeps a stream open as long as the node runs.
func (e *engine) run() {
	route := session.NewRoute(rand.Uint64(), "")
	for e.open() {
		e.g.Connect()
		e.receive(route)
		e.g.Disconnect()
		route.Failed(e.g.Now())
		if !e.pause(route) {
			break
		}
	}
	<-e.s.Done()
	e.g.Fail(errors.Join(errStopped, e.s.Err()))
}

// pause waits until it is time for another stream; false: the node has stopped.
func (e *engine) pause(route *session.Route) bool {
	_, at := route.Dial()
	select {
	case <-time.After(time.Duration(at - e.g.Now())):
		return true
	case <-e.s.Done():
		return false
	}
}

func (e *engine) open() bool {
	e.mu.Lock()
	e.in, e.next, e.ended = nil, nil, false
	e.mu.Unlock()
	st, err := e.s.Stream(context.Background(), e.deliver, e.closed)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream = st
	return err == nil
}

// deliver and closed run on the node's loop, which must not wait for callers.
func (e *engine) deliver(data []byte, next func()) {
	e.mu.Lock()
	e.in = append(e.in, data...)
	if next != nil {
		e.next = next
	}
	e.mu.Unlock()
	e.signal()
}

func (e *engine) closed() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.signal()
}

func (e *engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// receive hands what comes over the stream to the sessions until it ends. A node
// that does not lead refuses at once; any other answer means that it was right to
// come here.
func (e *engine) receive(route *session.Route) {
	for range e.wake {
		e.mu.Lock()
		in, next, ended := e.in, e.next, e.ended
		e.in, e.next = nil, nil
		if ended {
			e.stream = nil
		}
		e.mu.Unlock()
		if m, _, err := session.DecodeMessage(in); err == nil && m.Kind != session.KindRefused {
			route.Worked()
		}
		if err := e.g.Receive(in); err != nil || ended {
			return
		}
		if next != nil {
			next()
		}
	}
}

// Carry sends messages over the stream; without one they are sent again later.
func (e *engine) Carry(_ int64, sends []client.Outgoing) {
	var data []byte
	for i := range sends {
		data = session.AppendMessage(data, &sends[i].Message)
	}
	e.mu.Lock()
	st := e.stream
	e.mu.Unlock()
	if st != nil {
		_ = st.Send(data) // a node that has stopped says so by closed
	}
}

// Redial gives the stream up: the node may lead when there is a new one.
func (e *engine) Redial(string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stream != nil {
		e.stream.Close()
	}
}

// Silent gives it up too: a new one costs next to nothing.
func (e *engine) Silent() { e.Redial("") }

// Forget has nothing to forget.
func (e *engine) Forget(core.SessionID) {}

// Left is told when a client has gone.
func (e *engine) Left() { e.left() }

// Ping asks the node for a linearizable read of nothing.
func (e *engine) Ping(ctx context.Context) error {
	return e.s.Look(ctx, func(*core.Machine, int64) {})
}

// Inspect tells holders and waiters.
func (e *engine) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	return e.s.Inspect(ctx, defaultNamespace, r)
}

// SessionInfo tells about any session.
func (e *engine) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	return e.s.SessionInfo(ctx, defaultNamespace, r)
}

// Watch begins a feed.
func (e *engine) Watch(_ context.Context, r *driver.WatchRequest) (client.Feed, uint64, error) {
	f, first, err := e.s.Feed(defaultNamespace, r)
	if err != nil {
		return nil, 0, err
	}
	return f, first, nil
}
