package natsconn

import (
	"io"
	"net"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"
)

// TestFailedConnectionsAreClosed: a connection that ends before it has begun as one to NATS does
// is closed when the next is made, and the last with the client.
func TestFailedConnectionsAreClosed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close them some time
	var made atomic.Int32
	closed := make(chan struct{}, 1000)
	addr := server(t, func(c net.Conn) {
		if made.Add(1) == 1 {
			go greet(c)
			<-t.Context().Done()
			return
		}
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		closed <- struct{}{}
	})
	c, err := Dial(t.Context(), Settings{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	next := func(what string) {
		select {
		case <-closed:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is still open; %d were made", what, made.Load())
		}
	}
	for range 3 {
		next("a connection that came to nothing")
	}
	c.Close()
	for n := made.Load() - 4; n > 0; n-- {
		next("the last one of a client that was closed")
	}
}
