package api

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// However many connections are silent, one that speaks is served; the oldest of the
// others have to go.
func TestSilentCrowd(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newPort(ln, nil, time.Hour)
	p.most = 3
	ended := make(chan error, 1)
	go func() { ended <- p.run() }()
	var crowd []net.Conn
	for range 10 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		crowd = append(crowd, c)
	}
	for i, c := range crowd[:7] {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second)) // only if it fails
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("silent connection %d is not cut off: %v", i, err)
		}
	}
	speaks := crowd[7]
	if _, err := io.WriteString(speaks, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	c, err := p.http.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if c.RemoteAddr().String() != speaks.LocalAddr().String() {
		t.Errorf("%s is served, %s spoke", c.RemoteAddr(), speaks.LocalAddr())
	}
	p.close()
	p.cut()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if p.silent.Len() != 0 || len(p.open) != 1 { // the one that was handed on is not ours to close
		t.Errorf("%d are silent and %d open", p.silent.Len(), len(p.open))
	}
}
