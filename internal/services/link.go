//go:build unix

package services

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A Direction is one of the two ways through a [Link].
type Direction int

// The directions of a Link.
const (
	ToServer Direction = iota
	ToClient
)

var bothWays = []Direction{ToServer, ToClient}

// A Link is a TCP path to a server that a test can disturb. Disturbances hold
// for open connections and for those opened later, until Heal. The methods may
// be called from several goroutines.
type Link struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	ways  [2]way
	pairs map[*pair]struct{}
	ended bool
}

// Proxy opens a Link to the server at addr ("host:port") for this test. The
// server need not run yet: each connection is forwarded to whatever answers there
// when it is opened, and reset when nothing does.
func Proxy(t testing.TB, addr string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("services: open a link to %s: %v", addr, err)
	}
	l := &Link{target: addr, listener: listener, pairs: map[*pair]struct{}{}}
	for i := range l.ways {
		l.ways[i].changed = make(chan struct{})
	}
	l.running.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// Addr returns the "host:port" that clients connect to.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// URL returns the URL of a server changed so that it leads through the link.
func (l *Link) URL(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	u.Host = l.Addr()
	return u.String()
}

// Cut stops the flow in the given directions, both when none is given. Nothing
// is lost or closed, as when a cable is pulled: sockets stay open, a new
// connection is accepted and gets no answer, and what was sent, ends of
// connections included, arrives after Heal. When Cut returns, no further byte
// gets through.
func (l *Link) Cut(ways ...Direction) {
	l.change(ways, func(w *way) { w.cut = true })
}

// Delay makes everything arrive d after it was sent, in the given directions,
// both when none is given. It also holds for what is under way. Opening a
// connection is not delayed.
func (l *Link) Delay(d time.Duration, ways ...Direction) {
	l.change(ways, func(w *way) { w.delay = d })
}

// Heal ends all cuts and delays.
func (l *Link) Heal() {
	l.change(bothWays, func(w *way) { w.cut, w.delay = false, 0 })
}

// Break resets all open connections, on both sides and also through a cut.
// New connections are possible.
func (l *Link) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		p.reset()
	}
}

// Open is how many connections there are.
func (l *Link) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pairs)
}

// change alters directions between two writes. Writes that hang, because the
// receiver does not read, are interrupted and go on afterwards.
func (l *Link) change(ways []Direction, alter func(*way)) {
	if len(ways) == 0 {
		ways = bothWays
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ways {
		l.setDeadlines(d, time.Unix(1, 0))
		l.ways[d].change(alter)
		l.setDeadlines(d, time.Time{})
	}
}

func (l *Link) setDeadlines(d Direction, at time.Time) {
	for p := range l.pairs {
		if to := p.ends[d]; to != nil {
			_ = to.SetWriteDeadline(at) // fails only when the connection has ended
		}
	}
}

func (l *Link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.running.Go(func() { l.serve(conn.(*net.TCPConn)) })
	}
}

func (l *Link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.Break()
	l.running.Wait()
}
