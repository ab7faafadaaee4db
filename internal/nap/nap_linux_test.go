package nap

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/nettest"
	"golang.org/x/sys/unix"
)

// patience bounds what should happen soon.
const patience = time.Minute

// link connects two conns.
func link(network string) (here, there *conn, err error) {
	ln, err := nettest.NewLocalListener(network)
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	dialed, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	accepted, err := ln.Accept()
	if err != nil {
		return nil, nil, err
	}
	return NewConn(dialed).(*conn), NewConn(accepted).(*conn), nil
}

func linked(t *testing.T) (here, there *conn) {
	t.Helper()
	here, there, err := link("tcp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	if err := errors.Join(here.SetReadDeadline(time.Now().Add(patience)), there.SetReadDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	return here, there
}

// TestConn: it is "a net.Conn as any other".
func TestConn(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				here, there, err := link(network)
				return here, there, func() { _, _ = here.Close(), there.Close() }, err
			})
		})
	}
}

// TestNap: a nap ends when something comes, also the other side's end, and by
// itself; what came is there to be read.
func TestNap(t *testing.T) {
	useProcs(t, 2)
	here, there := linked(t)
	nap := On(here)
	nap() // nothing comes
	wantRead(t, here, there, "before")
	if _, err := there.Write([]byte("an answer")); err != nil {
		t.Fatal(err)
	}
	napUntil(nap, func() bool { return len(here.came) > 0 })
	nap() // it has something already
	short := make([]byte, 3)
	if n, err := here.Read(short); n != 3 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	rest := make([]byte, 100)
	if n, err := here.Read(rest); string(short)+string(rest[:n]) != "an answer" || err != nil {
		t.Errorf("read %q and %q, %v", short, rest[:n], err)
	}
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	napUntil(nap, func() bool { return here.end != nil })
	if n, err := here.Read(rest); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
}

// napUntil naps until it slept in vain no more: a busy machine may be slow to
// bring what was sent.
func napUntil(nap func(), woken func() bool) {
	for end := time.Now().Add(patience); !woken() && time.Now().Before(end); {
		nap()
	}
}

func wantRead(t *testing.T, here, there net.Conn, text string) {
	t.Helper()
	if _, err := there.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(here, got); err != nil || string(got) != text {
		t.Fatalf("read %q, %v; want %q", got, err, text)
	}
}

// TestNap_WakesNobodyElse: "watches only while a Read waits".
func TestNap_WakesNobodyElse(t *testing.T) {
	here, there := linked(t)
	if got := watchers(t, here); !slices.Equal(got, []string{"off"}) {
		t.Errorf("at first it is watched %v", got)
	}
	got := waitingRead(t, here)
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if got := watchers(t, here); !slices.Equal(got, []string{"off"}) {
		t.Errorf("after a Read it is watched %v", got)
	}
}

// waitingRead is what a Read returns that waits now.
func waitingRead(t *testing.T, c *conn) <-chan error {
	t.Helper()
	got := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		got <- err
	}()
	for end := time.Now().Add(patience); !slices.Equal(watchers(t, c), []string{"on"}); {
		if time.Now().After(end) {
			t.Fatalf("while Read waits it is watched %v", watchers(t, c))
		}
		time.Sleep(time.Millisecond)
	}
	return got
}

// watchers are the epolls of this process that know the socket, and whether they
// would ring.
func watchers(t *testing.T, c *conn) (list []string) {
	t.Helper()
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	own := inodeOf(t, c)
	for _, name := range infos {
		info, err := os.ReadFile(name)
		if err != nil {
			continue // it was closed
		}
		for line := range strings.Lines(string(info)) {
			var fd, pos int
			var events, data, inode uint64
			if n, _ := fmt.Sscanf(line, "tfd: %d events: %x data: %x pos:%d ino:%x", &fd, &events, &data, &pos, &inode); n != 5 || inode != own {
				continue
			}
			list = append(list, map[bool]string{true: "on", false: "off"}[events&1 != 0])
		}
	}
	return list
}

func inodeOf(t *testing.T, c *conn) uint64 {
	t.Helper()
	var stat unix.Stat_t
	var err error
	if e := c.io.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &stat) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return stat.Ino
}

// TestNap_Bound: only so many threads nap at a time, and one at least runs Go.
func TestNap_Bound(t *testing.T) {
	defer naps.Store(0)
	here, there := linked(t)
	for procs, most := range map[int]int32{1: 0, 2: 1, 4: 3, 8: maxNaps} {
		useProcs(t, procs)
		taken := int32(0)
		for before := range int32(10) {
			if _, err := there.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			naps.Store(before)
			here.nap()
			if naps.Load() != before {
				t.Errorf("%d naps are counted; want %d", naps.Load(), before)
			}
			if before < most { // it may come late
				napUntil(here.nap, func() bool { return len(here.came) > 0 })
			}
			if len(here.came) > 0 {
				taken++
			}
			if _, err := here.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
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

// TestRead_GoesOn: a deadline that is set while a Read waits ends it, and reading
// can go on afterwards.
func TestRead_GoesOn(t *testing.T) {
	here, there := linked(t)
	got := waitingRead(t, here)
	if err := here.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	err := <-got
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		t.Errorf("it ended with %v", err)
	}
	if got := watchers(t, here); !slices.Equal(got, []string{"off"}) {
		t.Errorf("after the deadline it is watched %v", got)
	}
	if err := here.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	wantRead(t, here, there, "after it")
}

// TestNap_BesideARead: a caller that naps while somebody else waits in Read does not wait
// with them.
func TestNap_BesideARead(t *testing.T) {
	here, there := linked(t)
	got := waitingRead(t, here)
	here.nap()
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestWrite_Deadline: what was written whole is no time-out, and a deadline in a
// thousand years is none now.
func TestWrite_Deadline(t *testing.T) {
	here, there := linked(t)
	go func() { _, _ = io.Copy(io.Discard, there) }()
	if err := here.SetWriteDeadline(time.Now().AddDate(1000, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	for i := range 2000 {
		if err := here.SetWriteDeadline(time.Now().Add(time.Duration(i) * 10 * time.Nanosecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := here.Write([]byte("x")); n == 1 && err != nil {
			t.Fatalf("one byte of one was written, and %v", err)
		}
	}
}

// TestClosed: nothing that is asked of a closed one hangs or reaches another.
func TestClosed(t *testing.T) {
	here, _ := linked(t)
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	here.nap()
	_, read := here.Read(make([]byte, 1))
	_, write := here.Write([]byte("x"))
	for what, err := range map[string]error{"Read": read, "Write": write, "Close": here.Close(), "SetReadDeadline": here.SetReadDeadline(time.Now()), "SetWriteDeadline": here.SetWriteDeadline(time.Now())} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOthers: what cannot be napped on stays as it is; TLS is looked through.
func TestOthers(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if NewConn(a) != a {
		t.Error("a pipe was taken over")
	}
	On(a)() // returns at once
	here, there := linked(t)
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	useProcs(t, 2)
	napUntil(On(tls.Client(here, &tls.Config{})), func() bool { return len(here.came) > 0 })
	if len(here.came) != 1 {
		t.Error("nobody napped under TLS")
	}
}
