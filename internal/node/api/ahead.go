package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// maxAhead is how many bytes are read ahead, behind a call over HTTP that is under way. The end
// of a client that sends more is seen only when they are served: it may well be there.
const maxAhead = 16 << 10

// attended is a connection of HTTP that notices when its client goes, also when that has sent
// more than the call under way: net/http looks for the end of a connection with a read of one
// byte, and looks no more when there is one. From then on attended reads ahead.
type attended struct {
	net.Conn

	mu     sync.Mutex
	news   *sync.Cond // of what follows
	reads  bool       // ahead
	ahead  []byte
	err    error              // what reading has ended with; a passed deadline, until there is another
	set    int                // how many deadlines there were
	closed bool               // by the server
	gone   context.CancelFunc // of the call under way; nil: there is none
}

func attend(c net.Conn) *attended {
	a := &attended{Conn: c}
	a.news = sync.NewCond(&a.mu)
	return a
}

// Read is of net.Conn.
func (a *attended) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.reads {
		return a.readOn(p)
	}
	for len(a.ahead) == 0 && a.err == nil && !a.closed {
		a.news.Wait()
	}
	defer a.news.Broadcast()
	switch n := copy(p, a.ahead); {
	case n > 0:
		a.ahead = a.ahead[n:]
		return n, nil
	case a.err != nil:
		return 0, a.err
	}
	return 0, net.ErrClosed
}

// readOn reads from the connection itself; a is locked, but not meanwhile.
func (a *attended) readOn(p []byte) (int, error) {
	a.mu.Unlock()
	n, err := a.Conn.Read(p)
	a.mu.Lock()
	if n == 1 && len(p) == 1 {
		a.reads = true
		go a.readAhead()
	}
	return n, err
}

// readAhead reads until the connection ends.
func (a *attended) readAhead() {
	buf := make([]byte, 4<<10)
	for goesOn := true; goesOn; {
		set := a.deadlines()
		n, err := a.Conn.Read(buf)
		goesOn = a.add(buf[:n], err, set)
	}
}

func (a *attended) deadlines() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.set
}

// add takes what was read while so many deadlines had been set, and waits for room for more;
// false: nothing more will come.
func (a *attended) add(b []byte, err error, set int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if isLate(err) && set != a.set {
		err = nil // for another deadline than there is now
	}
	a.ahead, a.err = append(a.ahead, b...), err
	a.tell()
	a.news.Broadcast()
	for (len(a.ahead) > maxAhead || isLate(a.err)) && !a.closed {
		a.news.Wait()
	}
	return a.err == nil && !a.closed
}

// isLate: a deadline has passed; net/http sets one to end a read.
func isLate(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// SetReadDeadline is of net.Conn.
func (a *attended) SetReadDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set++
	if isLate(a.err) {
		a.err = nil
		a.news.Broadcast()
	}
	return a.Conn.SetReadDeadline(t)
}

// during says which call is under way.
func (a *attended) during(gone context.CancelFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = gone
	a.tell()
}

// tell ends the call under way if its client has gone; a is locked.
func (a *attended) tell() {
	if a.gone != nil && a.err != nil && !isLate(a.err) {
		a.gone()
	}
}

// Close is of net.Conn.
func (a *attended) Close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.news.Broadcast()
	return a.Conn.Close()
}

type attendedKey struct{}

// whileThere ends the context of a request when its client goes.
func whileThere(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := r.Context().Value(attendedKey{}).(*attended); ok {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			a.during(cancel)
			defer a.during(nil)
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}
