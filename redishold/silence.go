package redishold

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// bySilence has connections break by silence, and no more by one answer that is late:
// rueidis takes a connection for broken when its ping is not answered in time, also while
// thousands of calls that were sent before the ping are being answered. To break it then has
// all of them sent again, to a server that was behind already. The connection for calls one at a time keeps its own
// timeout: nothing waits behind another there. The dial function is set.
func bySilence(opt rueidis.ClientOption) rueidis.ClientOption {
	silence, dial := orElse(opt.ConnWriteTimeout, patience), opt.DialCtxFn
	opt.ConnWriteTimeout = time.Hour // it has rueidis ping, which is what a quiet connection answers
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, secret *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, d, secret)
		if err != nil {
			return nil, err
		}
		// The ping comes up to two gaps after the last answer.
		return &heardConn{Conn: conn, silence: silence + 2*d.KeepAlive}, nil
	}
	return opt
}

// heardConn is a connection that fails a read when nothing has come for as long as silence says.
type heardConn struct {
	net.Conn
	silence time.Duration
	limit   atomic.Pointer[time.Time] // the deadline that its reader has set; nil or zero: none
}

// again is for how long a read looks once more after silence: a process that was held up
// finds what came meanwhile.
const again = 100 * time.Millisecond

func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.read(p, c.silence)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return c.read(p, again)
	}
	return n, err
}

func (c *heardConn) read(p []byte, wait time.Duration) (int, error) {
	until := time.Now().Add(wait)
	if limit := c.limit.Load(); limit != nil && !limit.IsZero() && limit.Before(until) {
		until = *limit
	}
	if err := c.Conn.SetReadDeadline(until); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// SetDeadline keeps the bound of silence also if t is zero.
func (c *heardConn) SetDeadline(t time.Time) error {
	c.limit.Store(&t)
	if err := c.SetWriteDeadline(t); err != nil || t.IsZero() {
		return err
	}
	return c.SetReadDeadline(t)
}
