package pghold

import (
	"net"
	"runtime"
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

	useProcs(t, 2)
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

// TestNap_Bound: only so many threads nap at a time, and one at least runs Go.
func TestNap_Bound(t *testing.T) {
	defer naps.Store(0)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for procs, most := range map[int]int32{1: 0, 2: 1, 4: 3, 8: maxNaps} {
		useProcs(t, procs)
		taken := int32(0)
		n := newNap(conn.(*net.UDPConn))
		n.nod = func(uintptr) bool { taken++; return true }
		for before := range int32(10) {
			naps.Store(before)
			if n.take(); naps.Load() != before {
				t.Errorf("%d naps are counted; want %d", naps.Load(), before)
			}
		}
		if taken != most {
			t.Errorf("%d threads run Go and %d nap; want %d", procs, taken, most)
		}
	}
}

// useProcs has so many threads run Go until the test is over.
func useProcs(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}
