package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
)

// maxAhead is how many bytes a client may send behind a call over HTTP that is under way. One
// that sends more is taken for gone: behind them its end could not be seen.
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
	err    error              // what reading has ended with
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
	case isLate(a.err): // there may be more under another deadline
		err := a.err
		a.err = nil
		return 0, err
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
	if n == 1 && len(p) == 1 && a.gone != nil {
		a.reads = true
		go a.readAhead()
	}
	return n, err
}

// readAhead reads until the connection ends.
func (a *attended) readAhead() {
	buf := make([]byte, 4<<10)
	for {
		n, err := a.Conn.Read(buf)
		if !a.add(buf[:n], err) {
			return
		}
	}
}

// add takes what was read, and waits for room for more; false: nothing more will come.
func (a *attended) add(b []byte, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ahead, a.err = append(a.ahead, b...), err
	if ended := err != nil && !isLate(err); a.gone != nil && (ended || len(a.ahead) > maxAhead) {
		a.gone()
	}
	a.news.Broadcast()
	for (len(a.ahead) > maxAhead || isLate(a.err)) && !a.closed {
		a.news.Wait()
	}
	return a.err == nil && !a.closed
}

// isLate: a deadline has passed; net/http sets one to end a read.
func isLate(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// during says which call is under way.
func (a *attended) during(gone context.CancelFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = gone
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
