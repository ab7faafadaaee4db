//go:build unix

package server_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	clients "github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/server"
	"github.com/holdfast-io/holdfast/session"
)

// Between the processes of these tests a message of package session travels
// behind its length in four bytes.
func writeFrame(w io.Writer, data []byte) error {
	_, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	data := make([]byte, binary.LittleEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, data)
	return data, err
}

// pipe is what waits to be written to a connection: putting never blocks.
type pipe struct {
	mu     sync.Mutex
	data   []byte
	closed bool
	wake   chan struct{}
}

func newPipe() *pipe { return &pipe{wake: make(chan struct{}, 1)} }

func (p *pipe) put(data []byte) { p.change(func() { p.data = append(p.data, data...) }) }
func (p *pipe) close()          { p.change(func() { p.closed = true }) }

func (p *pipe) change(f func()) {
	p.mu.Lock()
	f()
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// drain writes to conn until the pipe or the connection ends, and closes conn.
func (p *pipe) drain(conn net.Conn) {
	defer conn.Close()
	for range p.wake {
		p.mu.Lock()
		data, closed := p.data, p.closed
		p.data = nil
		p.mu.Unlock()
		if len(data) > 0 && writeFrame(conn, data) != nil || closed {
			return
		}
	}
}

// serveStream carries one client's stream to the node.
func serveStream(srv *server.Server, conn net.Conn) {
	out := newPipe()
	go out.drain(conn)
	st, err := srv.Stream(context.Background(), out.put, out.close)
	if err != nil {
		out.close()
		return
	}
	defer st.Close()
	r := bufio.NewReader(conn)
	for {
		data, err := readFrame(r)
		if err != nil || st.Send(data) != nil {
			return
		}
	}
}

// remote carries the sessions of one program to a group of nodes.
type remote struct {
	clients.Engine // reads are not part of it
	g              *clients.Group
	route          *session.Route
	ended          chan struct{}
	stop           context.CancelFunc
	life           context.Context

	mu   sync.Mutex
	conn net.Conn // nil: there is none
	out  *pipe
	hint string
}

// dialRemote begins a program with nodes at these addresses.
func dialRemote(nodes ...string) *remote {
	e := &remote{route: session.NewRoute(rand.Uint64(), nodes...), ended: make(chan struct{})}
	e.life, e.stop = context.WithCancel(context.Background())
	e.g = clients.NewGroup(e, clients.Options{Down: true})
	go e.run()
	return e
}

func (e *remote) driver() driver.Driver {
	return e.g.New(clients.Full("test", 5*time.Second, driver.FeatureDurable))
}

// close ends the program; its Spaces have been closed before.
func (e *remote) close() {
	e.stop()
	e.Redial("")
	<-e.ended
}

func (e *remote) run() {
	defer close(e.ended)
	for e.life.Err() == nil {
		endpoint, at := e.route.Dial()
		select {
		case <-time.After(time.Duration(at - e.g.Now())):
		case <-e.life.Done():
			return
		}
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(e.life, "tcp", endpoint)
		if err != nil {
			e.route.Failed(e.g.Now())
			continue
		}
		e.serve(conn)
		e.leave()
	}
}

// serve uses a connection until it ends.
func (e *remote) serve(conn net.Conn) {
	out := newPipe()
	defer out.close()
	if _, err := conn.Write([]byte{streamWanted}); err != nil {
		conn.Close()
		return
	}
	go out.drain(conn)
	e.mu.Lock()
	e.conn, e.out = conn, out
	e.mu.Unlock()
	e.g.Connect()
	defer e.g.Disconnect()
	r := bufio.NewReader(conn)
	for {
		data, err := readFrame(r)
		if err != nil {
			return
		}
		if m, _, err := session.DecodeMessage(data); err == nil && m.Kind != session.KindRefused {
			e.route.Worked()
		}
		if e.g.Receive(data) != nil {
			return
		}
	}
}

// leave notes that the connection is over.
func (e *remote) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hint != "" {
		e.route.Hint(e.g.Now(), e.hint)
	} else {
		e.route.Failed(e.g.Now())
	}
	e.conn, e.out, e.hint = nil, nil, ""
}

func (e *remote) Carry(_ int64, sends []clients.Outgoing) {
	var data []byte
	for i := range sends {
		data = session.AppendMessage(data, &sends[i].Message)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.out != nil {
		e.out.put(data)
	}
}

func (e *remote) Redial(endpoint string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn != nil {
		e.hint = endpoint
		e.conn.Close()
	}
}

func (e *remote) Forget(core.SessionID)      {}
func (e *remote) Left()                      {}
func (e *remote) Ping(context.Context) error { return errors.ErrUnsupported }
