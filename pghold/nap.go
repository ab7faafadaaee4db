package pghold

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// nap is a short sleep for an answer, of the thread and on this one socket. The
// runtime's poller, which watches all sockets, takes longer to wake a reader: at
// a server nearby longer than the answer itself.
type nap struct {
	raw  syscall.RawConn // nil: never
	nod  func(fd uintptr) bool
	most int32 // threads at a time
}

const (
	napFor  = time.Millisecond // then the poller is to wake the reader: a thread is too dear
	maxNaps = 4                // at a time, in the whole program; see newNap
)

var naps atomic.Int32

// newNap is for what comes on conn. A thread that naps runs no Go, and the runtime
// may not notice before the nap is over: one thread at least is left.
func newNap(conn net.Conn) nap {
	if secret, ok := conn.(*tls.Conn); ok {
		conn = secret.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok || !canNap {
		return nap{}
	}
	raw, _ := c.SyscallConn() // nil if it has none
	return nap{
		raw: raw, nod: func(fd uintptr) bool { awaitInput(fd, napFor); return true },
		most: int32(min(maxNaps, runtime.GOMAXPROCS(0)-1)),
	}
}

// take returns when there is something to read, or before that.
func (n nap) take() {
	if n.raw == nil {
		return
	}
	if naps.Add(1) <= n.most {
		_ = n.raw.Read(n.nod) // what is wrong with the connection the reader will be told
	}
	naps.Add(-1)
}
