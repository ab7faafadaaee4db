package redishold

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// dedicatedConn is a connection for a program with calls that come one at a time and close
// together. The caller writes and reads itself there, where the shared connections
// have a goroutine each to write and to read. It serves one call at a time, and a
// call that is given up breaks it.
type dedicatedConn struct {
	opt   rueidis.ClientOption
	calls atomic.Int32 // under way, here or on the shared connections

	life context.Context
	kill context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex // its holder has the connection
	client   rueidis.Client
	conn     net.Conn
	unbind   func() bool // frees what closes conn at the end of life
	answered time.Time   // when a call was sent that was answered here
	last     time.Time   // when a call came
	streak   int         // calls that came close together, one at a time
	waking   bool
	closed   bool
}

const (
	// close together: a pause that is longer may have broken the connection, and
	// nobody would have noticed.
	closeBy = 100 * time.Millisecond
	// enough calls in a row are worth a connection.
	enough = 8
)

// newDedicatedConn is nil where rueidis finds its servers itself, or by means of its own.
func newDedicatedConn(opt rueidis.ClientOption, mode rueidis.ClientMode) *dedicatedConn {
	if mode != rueidis.ClientModeStandalone || opt.Sentinel.MasterSet != "" || len(opt.InitAddress) != 1 || opt.DialCtxFn != nil {
		return nil
	}
	l := &dedicatedConn{opt: opt}
	l.life, l.kill = context.WithCancel(context.Background())
	l.opt.DialCtxFn = l.dial
	l.opt.ForceSingleClient = true
	l.opt.AlwaysPipelining, l.opt.PipelineMultiplex = false, -1
	l.opt.Dialer.KeepAlive = time.Hour // its pings would be calls beside ours
	return l
}

// dial is called while the lock is held.
func (l *dedicatedConn) dial(_ context.Context, addr string, d *net.Dialer, secret *tls.Config) (conn net.Conn, err error) {
	if conn, err = dialTCP(l.life, addr, d, secret); err != nil {
		return nil, err
	}
	if l.unbind != nil {
		l.unbind()
	}
	l.conn, l.unbind = conn, context.AfterFunc(l.life, func() { _ = conn.Close() })
	return conn, nil
}

// enter begins a call; true: it goes by this connection, and the lock is held.
func (l *dedicatedConn) enter() bool {
	if l.calls.Add(1) > 1 || !l.mu.TryLock() {
		return false
	}
	now := time.Now()
	if now.Sub(l.last) > closeBy {
		l.streak = 0
	}
	l.last = now
	l.streak++
	if now.Sub(l.answered) < closeBy {
		return true
	}
	if l.streak >= enough && !l.waking && !l.closed {
		l.waking = true
		l.work.Go(l.wake)
	}
	l.mu.Unlock()
	return false
}

// leave ends a call.
func (l *dedicatedConn) leave() { l.calls.Add(-1) }

// wake sees to it that the connection stands.
func (l *dedicatedConn) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waking = false
	now := time.Now()
	if l.client == nil {
		c, err := rueidis.NewClient(l.opt)
		if err != nil {
			return
		}
		l.client = c
	}
	if l.client.Do(context.Background(), l.client.B().Ping().Build()).Error() == nil {
		l.answered = now
	}
}

// do sends commands and gives the lock back. send returns why there was no
// answer.
func (l *dedicatedConn) do(ctx context.Context, send func(context.Context, rueidis.Client) error) {
	defer l.mu.Unlock()
	stop := func() bool { return true }
	if ctx.Done() != nil {
		conn := l.conn
		stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	// With a context that can end, rueidis would have its goroutines.
	err := send(context.Background(), l.client)
	if stop() && err == nil {
		l.answered = l.last
	} else {
		l.answered = time.Time{}
	}
}

// close ends a call that is under way, too.
func (l *dedicatedConn) close() {
	l.kill()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.work.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		l.client.Close()
	}
}
