package api

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of one connection.
type pipes struct {
	conns chan net.Conn
	net.Listener
}

func (p *pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p *pipes) Close() error { return nil }

// answered serves handler to a client that sends one request, and then does what take says.
func answered(t *testing.T, handler http.HandlerFunc, take func(net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{conns: make(chan net.Conn, 1)}
		done := make(chan struct{})
		srv := &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(done)
			handler(newTimedAnswer(w, 10*time.Second), r)
		})}
		go func() { _ = srv.Serve(ln) }()
		client, served := net.Pipe()
		ln.conns <- served
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		var taker sync.WaitGroup
		taker.Go(func() { take(client) })
		<-done
		close(ln.conns)
		_ = srv.Close()
		client.Close()
		taker.Wait()
	})
}

// A caller that does not take its answer is cut off: it would keep the answer in memory for
// as long as it likes.
func TestAnswer_NotTaken(t *testing.T) {
	answered(t, func(w http.ResponseWriter, _ *http.Request) {
		began := time.Now()
		if n, err := w.Write(make([]byte, 1<<20)); err == nil || time.Since(began) != 10*time.Second {
			t.Errorf("%d bytes were written after %s: %v", n, time.Since(began), err)
		}
	}, func(net.Conn) {})
}

// A slow caller that takes its answer gets all of it, and an event an hour after the last.
func TestAnswer_TakenSlowly(t *testing.T) {
	answered(t, func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Errorf("a slow caller: %v", err)
		}
		time.Sleep(time.Hour)
		if _, err := w.Write([]byte("event")); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("an event an hour later: %v", err)
		}
	}, func(c net.Conn) {
		p := make([]byte, 16<<10)
		for err := error(nil); err == nil; _, err = c.Read(p) {
			time.Sleep(time.Second)
		}
	})
}
