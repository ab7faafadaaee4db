package pghold

import (
	"net"
	"testing"
	"time"
)

// TestNap: a nap ends when something comes, and when the other side goes. It
// reads nothing.
func TestNap(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	there, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()

	n := newNap(here)
	n.take() // nothing comes: it is over soon
	woken := 0
	n.nod = func(fd uintptr) bool {
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); { // signals come too
			if awaitInput(fd, time.Until(until)) {
				woken++
				break
			}
		}
		return true
	}
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	n.take()
	var b [2]byte
	if size, err := here.Read(b[:]); size != 1 || err != nil {
		t.Errorf("after the nap %d bytes can be read, %v", size, err)
	}
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	n.take()
	if woken != 2 || naps.Load() != 0 {
		t.Errorf("%d of two naps were ended by what came, %d are not over", woken, naps.Load())
	}
}

// TestNap_Bound: only so many threads nap at a time.
func TestNap_Bound(t *testing.T) {
	defer naps.Store(0)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	taken := 0
	n := newNap(conn.(*net.UDPConn))
	n.nod = func(uintptr) bool { taken++; return true }
	naps.Store(maxNaps)
	n.take()
	naps.Store(maxNaps - 1)
	n.take()
	if taken != 1 || naps.Load() != maxNaps-1 {
		t.Errorf("%d naps were taken, and %d are counted", taken, naps.Load())
	}
}
