package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// pipes listens for connections within the process.
type pipes struct {
	conns chan net.Conn
	over  context.Context
	close context.CancelFunc
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn)}
	p.over, p.close = context.WithCancel(context.Background())
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.over.Done():
	case <-ctx.Done():
	}
	return nil, net.ErrClosed
}

// A receiver has the time that it needs to make a state of what has come: a sender that
// gave up would begin from the beginning, and never come to an end.
func TestSnapshot_SlowReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		none := func(uint64) {}
		two, err := transport.New(transport.Config{ID: 2, Unreachable: none, Snapshot: func(_ uint64, _ []byte, next func() ([]byte, error)) error {
			for {
				if _, err := next(); err == io.EOF {
					time.Sleep(time.Hour)
					return nil
				} else if err != nil {
					return err
				}
			}
		}}, ln)
		if err != nil {
			t.Fatal(err)
		}
		defer two.Close()
		one, err := transport.New(transport.Config{ID: 1, Unreachable: none, Dial: ln.dial}, newPipes())
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		one.SetPeers(map[uint64]string{2: "two"})
		begin := time.Now()
		if err := one.SendSnapshot(2, []byte("meta"), strings.NewReader("body")); err != nil || time.Since(begin) < time.Hour {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

// A receiver that stands still, as a process that was stopped, keeps its connections and
// opens its door to nobody: the sender gives it up, and can begin anew.
func TestSnapshot_StoppedReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, stands := newPipes(), make(chan struct{})
		none := func(uint64) {}
		two, err := transport.New(transport.Config{ID: 2, Unreachable: none, Snapshot: func(_ uint64, _ []byte, next func() ([]byte, error)) error {
			for _, err := next(); err == nil; _, err = next() {
				continue
			}
			close(stands)
			time.Sleep(time.Hour)
			return nil
		}}, ln)
		if err != nil {
			t.Fatal(err)
		}
		defer two.Close()
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			select {
			case <-stands:
				here, _ := net.Pipe() // taken by the kernel, and by nobody else
				return here, nil
			default:
				return ln.dial(ctx, addr)
			}
		}
		one, err := transport.New(transport.Config{ID: 1, Unreachable: none, Dial: dial}, newPipes())
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		one.SetPeers(map[uint64]string{2: "two"})
		begin := time.Now()
		if err := one.SendSnapshot(2, []byte("meta"), strings.NewReader("body")); err == nil || !strings.Contains(err.Error(), "stands still") || time.Since(begin) > time.Minute {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

// A large snapshot that is refused is not sent to its end: the sender will come again.
func TestSnapshot_Refused(t *testing.T) {
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	at, none := listen(), func(uint64) {}
	two, err := transport.New(transport.Config{ID: 2, Unreachable: none, Snapshot: func(uint64, []byte, func() ([]byte, error)) error {
		return errors.New("there is no room")
	}}, at)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	one, err := transport.New(transport.Config{ID: 1, Unreachable: none}, listen())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	one.SetPeers(map[uint64]string{2: at.Addr().String()})
	const size = 64 << 20
	body := strings.NewReader(strings.Repeat("x", size))
	if err := one.SendSnapshot(2, []byte("meta"), body); err == nil || body.Len() < size/4 {
		t.Errorf("%d bytes of %d were sent: %v", size-body.Len(), size, err)
	}
}
