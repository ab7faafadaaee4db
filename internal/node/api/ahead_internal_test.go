package api

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// attendedPair is a connection that reads ahead, and the client at its other end.
func attendedPair(t *testing.T) (*attended, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	a := attend(ours)
	t.Cleanup(func() { a.Close(); theirs.Close() })
	go theirs.Write([]byte("x"))
	if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return a, theirs
}

// A deadline that has passed counts until there is another, as with every connection: net/http
// sets one in the past when a call ends, and nobody may read when it passes.
func TestReadAheadDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, theirs := attendedPair(t)
		for range 2 {
			_ = a.SetReadDeadline(time.Unix(1, 0))
			for range 2 {
				synctest.Wait()
				if n, err := a.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(n, err)
				}
			}
			_ = a.SetReadDeadline(time.Time{})
			go theirs.Write([]byte("yz"))
			b := make([]byte, 2)
			if n, err := a.Read(b); string(b[:n]) != "yz" || err != nil {
				t.Fatalf("%q %v", b[:n], err)
			}
		}
	})
}

// What was late for a deadline that has been replaced meanwhile is read again.
func TestReadAheadReplacedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := attendedPair(t)
		before := a.deadlines()
		_ = a.SetReadDeadline(time.Time{})
		if !a.add(nil, os.ErrDeadlineExceeded, before) || a.err != nil {
			t.Error(a.err)
		}
	})
}

// A client that has gone before the call is begun is noticed then.
func TestGoneBeforeACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, theirs := attendedPair(t)
		theirs.Close()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a.during(cancel)
		if ctx.Err() == nil {
			t.Error("its call goes on")
		}
	})
}
