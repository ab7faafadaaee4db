package nap

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// napFor is how long a nap lasts if nothing comes; the kernel makes one to three
	// of its ticks of it, 4 to 30 ms. Then the poller is to wake the reader: a thread
	// is too dear.
	napFor = time.Millisecond
	// writeFor is how often a writer that cannot write looks at its deadline, counted
	// as coarsely.
	writeFor = 10 * time.Millisecond
	// maxWrite is what is written at once: the kernel counts the time anew for each
	// piece of more.
	maxWrite = 32 << 10
	// maxNaps bounds the threads that nap, in the whole program.
	maxNaps = 4
)

// naps are the threads that nap now.
var naps atomic.Int32

// start is what times are counted from, by a clock that nobody sets.
var start = time.Now()

// conn is a TCP or Unix connection that the runtime's poller watches only while a
// Read waits. What comes during a nap wakes the thread that naps, and nothing else.
type conn struct {
	local, remote net.Addr

	socket *os.File // in blocking mode, so not one of the poller's
	io     syscall.RawConn
	// alarm is an epoll of the socket alone, and one of the poller's files. It is
	// set for each wait, and rings once.
	alarm   *os.File
	waiting syscall.RawConn

	reading sync.Mutex
	step    func(fd uintptr) bool // reads into room, by flags
	room    []byte
	flags   int
	n       int
	err     error
	buffer  [4 << 10]byte // what came during a nap
	came    []byte        // of it, what is still to be read
	end     error         // what a nap met instead

	writing sync.Mutex
	put     func(fd uintptr) bool // writes out
	out     []byte
	sent    int
	fault   error
	writeBy atomic.Int64 // nanoseconds since start; 0: any time
}

// NewConn takes c over if it is a *net.TCPConn or *net.UnixConn, which nobody may
// use any more then, and else returns c as it is. The result is a net.Conn as any
// other, made of two file descriptors, on which one can nap (see [On]).
func NewConn(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return c
	}
	taken, err := takeOver(c)
	if err != nil {
		return c // on a system that has no such thing it is used as it is
	}
	return taken
}

func takeOver(old net.Conn) (*conn, error) {
	fd, err := duplicate(old.(syscall.Conn))
	if err != nil {
		return nil, err
	}
	alarm, err := newAlarm(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if err := makeBlocking(fd); err != nil {
		_, _ = alarm.Close(), unix.Close(fd)
		return nil, err
	}
	c := &conn{local: old.LocalAddr(), remote: old.RemoteAddr(), socket: os.NewFile(uintptr(fd), "socket"), alarm: alarm}
	c.io, _ = c.socket.SyscallConn() // an open file has one
	c.waiting, _ = c.alarm.SyscallConn()
	c.step, c.put = c.receive, c.send
	_ = old.Close() // only now the poller forgets it
	return c, nil
}

func duplicate(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

// newAlarm is an epoll of fd that is not set yet.
func newAlarm(fd int) (*os.File, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	err = errors.Join(unix.SetNonblock(ep, true),
		unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLONESHOT}))
	if err != nil {
		_ = unix.Close(ep)
		return nil, err
	}
	alarm := os.NewFile(uintptr(ep), "alarm")
	if err := alarm.SetReadDeadline(time.Time{}); err != nil { // the poller does not take it
		_ = alarm.Close()
		return nil, err
	}
	return alarm, nil
}

// makeBlocking has reads and writes of a socket sleep, for a while.
func makeBlocking(fd int) error {
	most := map[int]time.Duration{unix.SO_RCVTIMEO: napFor, unix.SO_SNDTIMEO: writeFor}
	for option, d := range most {
		limit := unix.NsecToTimeval(d.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return err
		}
	}
	return unix.SetNonblock(fd, false)
}

// nap reads ahead: that is the sleep. One thread at least is left to run Go,
// since the runtime may not notice before the nap is over.
func (c *conn) nap() {
	if naps.Add(1) <= int32(min(maxNaps, runtime.GOMAXPROCS(0)-1)) {
		c.readAhead()
	}
	naps.Add(-1)
}

func (c *conn) readAhead() {
	if !c.reading.TryLock() { // another reader is there, and may wait for long
		return
	}
	defer c.reading.Unlock()
	if len(c.came) > 0 || c.end != nil {
		return
	}
	n, err := c.receiveInto(c.buffer[:], 0)
	if !again(err) {
		c.came, c.end = c.buffer[:n], err
	}
}

// Read reads what has come, and else waits until something comes.
func (c *conn) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	if len(c.came) > 0 {
		n := copy(b, c.came)
		c.came = c.came[n:]
		return n, nil
	}
	if err := c.end; err != nil {
		c.end = nil
		return 0, err
	}
	for {
		n, err := c.receiveInto(b, unix.MSG_DONTWAIT)
		if !again(err) {
			return n, err
		}
		if err := c.await(); err != nil {
			return 0, err
		}
	}
}

// again: nothing has come, or was taken, for now.
func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }

// receiveInto reads once.
func (c *conn) receiveInto(b []byte, flags int) (int, error) {
	c.room, c.flags = b, flags
	err := c.io.Read(c.step)
	c.room = nil
	switch {
	case err != nil:
		return 0, net.ErrClosed
	case again(c.err):
		return 0, c.err
	case c.err != nil:
		return 0, os.NewSyscallError("recv", c.err)
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

func (c *conn) receive(fd uintptr) bool {
	if c.flags == 0 {
		c.n, c.err = unix.Read(int(fd), c.room)
	} else {
		c.n, _, c.err = unix.Recvfrom(int(fd), c.room, c.flags)
	}
	return true
}

// await sets the alarm and waits for it by the poller, until the deadline.
func (c *conn) await() error {
	if c.setAlarm(unix.EPOLLIN|unix.EPOLLRDHUP) != nil {
		return net.ErrClosed
	}
	err := c.waiting.Read(func(alarm uintptr) bool {
		var rung [1]unix.EpollEvent
		n, err := unix.EpollWait(int(alarm), rung[:], 0)
		return n > 0 || err != nil && !again(err)
	})
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) && c.setAlarm(0) == nil {
		return err
	}
	return net.ErrClosed
}

// setAlarm has it ring once, at one of the events; 0: not.
func (c *conn) setAlarm(events uint32) error {
	var closed, failed error
	err := c.io.Control(func(fd uintptr) {
		closed = c.waiting.Control(func(alarm uintptr) {
			when := unix.EpollEvent{Events: events | unix.EPOLLONESHOT}
			failed = unix.EpollCtl(int(alarm), unix.EPOLL_CTL_MOD, int(fd), &when)
		})
	})
	return errors.Join(err, closed, failed)
}

// Write writes all, or as much as it can until the deadline.
func (c *conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for done := 0; ; {
		if by := c.writeBy.Load(); by != 0 && int64(time.Since(start)) >= by {
			return done, os.ErrDeadlineExceeded
		}
		n, err := c.sendFrom(b[done:min(done+maxWrite, len(b))])
		if err != nil && !again(err) {
			return done, err
		}
		if done += n; done == len(b) {
			return done, nil
		}
	}
}

// sendFrom writes once.
func (c *conn) sendFrom(b []byte) (int, error) {
	c.out = b
	err := c.io.Write(c.put)
	c.out = nil
	switch {
	case err != nil:
		return 0, net.ErrClosed
	case again(c.fault):
		return 0, c.fault
	case c.fault != nil:
		return 0, os.NewSyscallError("send", c.fault)
	}
	return c.sent, nil
}

func (c *conn) send(fd uintptr) bool {
	c.sent, c.fault = unix.Write(int(fd), c.out)
	return true
}

// Close ends what waits, too.
func (c *conn) Close() error {
	_ = c.alarm.Close()
	if c.socket.Close() != nil {
		return net.ErrClosed
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline bounds waiting. What has come already is read after it, too.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.alarm.SetReadDeadline(t) != nil {
		return net.ErrClosed
	}
	return nil
}

// SetWriteDeadline is kept to within some ticks of the kernel.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.io.Control(func(uintptr) {}) != nil {
		return net.ErrClosed
	}
	by := int64(0)
	if !t.IsZero() {
		by = max(int64(t.Sub(start)), 1)
	}
	c.writeBy.Store(by)
	return nil
}
