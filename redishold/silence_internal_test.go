package redishold

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestBusyConnectionStays: a connection on which thousands of calls are being answered is not
// broken because the ping behind them has to wait. One on which nothing comes is.
func TestBusyConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &farServer{near: make(chan struct{}), late: 20 * time.Millisecond}
		close(s.near)
		s.dials.Add(1) // the first one stands
		opt := s.options()
		opt.Dialer.KeepAlive, opt.ConnWriteTimeout = time.Second, patience
		rc, err := connect(opt)
		if err != nil {
			t.Fatal(err)
		}
		defer rc.Close()
		call := func() error {
			return rc.Do(context.Background(), rc.B().Evalsha().Sha1("f").Numkeys(0).Build()).Error()
		}
		time.Sleep(3*time.Second - 10*time.Millisecond) // pings while it is idle; one is due before the first answer
		const calls = 1000
		errs := make(chan error, calls)
		for range calls {
			go func() { errs <- call() }()
		}
		for range calls {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		if n := s.dials.Load(); n != 2 {
			t.Errorf("%d connections were made", n-1)
		}
		s.mute.Store(true)
		began := time.Now()
		if err := call(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a call on a silent connection: %v", err)
		}
		if took := time.Since(began); took > 2*patience {
			t.Errorf("a silent connection broke after %s", took)
		}
	})
}

// TestHeldUpReader: what came while the process was held up is read.
func TestHeldUpReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		late := &lateConn{Conn: here, held: true}
		c := &heardConn{Conn: late, silence: time.Second}
		go there.Write([]byte("x"))
		if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		began := time.Now()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second+again {
			t.Errorf("silence took %s", took)
		}
		if err := c.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Millisecond {
			t.Errorf("a deadline of a millisecond ends after %s: %v", time.Since(began), err)
		}
	})
}

// lateConn is a connection whose first read finds its deadline passed.
type lateConn struct {
	net.Conn
	held bool
}

func (c *lateConn) Read(p []byte) (int, error) {
	if c.held {
		c.held = false
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Read(p)
}
