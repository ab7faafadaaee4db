package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// caller and called are two nodes of fake time of which the first has the address of the second.
func callerAndCalled(t *testing.T) (caller, called *node, at *pipes) {
	t.Helper()
	begin := func(id uint64, ln net.Listener, dial func(context.Context, string) (net.Conn, error)) *node {
		n := &node{heard: make(chan string, 100), lost: make(chan uint64, 100)}
		var err error
		n.Transport, err = transport.New(transport.Config{ID: id, Cluster: 7, Dir: 10 + id, Dial: dial,
			Deliver: func(from uint64, data []byte) { n.heard <- fmt.Sprintf("%d:%s", from, data) }, Unreachable: func(peer uint64) { n.lost <- peer }}, ln)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		return n
	}
	at = newPipes()
	called = begin(2, at, func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody is there") })
	caller = begin(1, newPipes(), at.dial)
	caller.SetPeers(map[uint64]string{2: "two"})
	synctest.Wait()
	return caller, called, at
}

// tells reports whether a message of node 2 arrives at node 1; else node 2 is told that it was lost.
func tells(t *testing.T, called, caller *node, text string) bool {
	t.Helper()
	called.Send(1, []byte(text))
	time.Sleep(2 * time.Second) // an address that leads nowhere is tried meanwhile
	synctest.Wait()
	select {
	case got := <-caller.heard:
		if got != "2:"+text {
			t.Errorf("node 1 heard %q, want %q", got, text)
		}
		return true
	case <-called.lost:
		return false
	default:
		t.Error("the message is neither there nor lost")
		return false
	}
}

// A node is answered on the connection that it has made, by one that does not know where it is, as
// long as it may come at all.
func TestAnswersOnTheCallersConnection(t *testing.T) {
	for name, c := range map[string]struct {
		addrs map[uint64]string
		dirs  map[uint64]uint64
		want  bool
	}{
		"nothing is known of it":  {nil, map[uint64]uint64{2: 12}, true},
		"it has moved":            {map[uint64]string{1: "old"}, map[uint64]uint64{1: 11, 2: 12}, true},
		"its directory is not":    {map[uint64]string{1: "old"}, map[uint64]uint64{1: 0, 2: 12}, false},
		"another has its number":  {map[uint64]string{1: "old"}, map[uint64]uint64{1: 99, 2: 12}, false},
		"it was removed":          {nil, map[uint64]uint64{1: transport.Removed, 2: 12}, false},
		"nothing is known at all": {nil, nil, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			caller, called, _ := callerAndCalled(t)
			called.SetPeers(c.addrs)
			called.Know(c.dirs)
			synctest.Wait()
			if got := tells(t, called, caller, "x"); got != c.want {
				t.Errorf("%s: it is answered: %v", name, got)
			}
		})
	}
}

// The way back holds as long as its connection, however long that is used, and then another takes
// its place.
func TestWayBackLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, called, _ := callerAndCalled(t)
		for round := range 10 {
			caller.Send(2, []byte("call"))
			if !tells(t, called, caller, fmt.Sprint("answer ", round)) {
				t.Errorf("answer %d is lost", round)
			}
			if len(called.lost) > 0 {
				t.Errorf("round %d: a message of node 2 was lost", round)
			}
		}
		caller.SetPeers(nil)
		synctest.Wait()
		if tells(t, called, caller, "too late") {
			t.Error("a connection that has ended brings an answer")
		}
		caller.SetPeers(map[uint64]string{2: "two"})
		synctest.Wait()
		if !tells(t, called, caller, "once more") {
			t.Error("the next connection brings no answer")
		}
	})
}

// After another process came under the number of a node, as the image of its machine, and went again, the node is answered on
// its own connection at once.
func TestWayBackAfterAnImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, called, at := callerAndCalled(t)
		if !tells(t, called, caller, "before") {
			t.Error("the node is not answered")
		}
		image, err := transport.New(transport.Config{ID: 1, Cluster: 7, Dir: 11, Dial: at.dial, Deliver: func(uint64, []byte) {}, Unreachable: func(uint64) {}}, newPipes())
		if err != nil {
			t.Fatal(err)
		}
		image.SetPeers(map[uint64]string{2: "two"})
		synctest.Wait()
		image.Close()
		synctest.Wait()
		if !tells(t, called, caller, "after") {
			t.Error("what it is told is lost")
		}
	})
}

// takesAll takes a snapshot.
func takesAll(_ uint64, _ []byte, next func() ([]byte, error)) error {
	for {
		if _, err := next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// A node that is not where the group has it is looked for where an operator says that it is, if it
// is known by its directory.
func TestElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		dirs map[uint64]uint64
		want bool
	}{
		"it is known":            {map[uint64]uint64{1: 11, 2: 12}, true},
		"its directory is not":   {map[uint64]uint64{1: 11, 2: 0}, false},
		"it was removed":         {map[uint64]uint64{1: 11, 2: transport.Removed}, false},
		"another has its number": {map[uint64]uint64{1: 11, 2: 99}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			at, heard, none := newPipes(), make(chan string, 100), func(uint64) {}
			two, err := transport.New(transport.Config{ID: 2, Dir: 12, Unreachable: none, Snapshot: takesAll, Deliver: func(_ uint64, data []byte) { heard <- string(data) }}, at)
			if err != nil {
				t.Fatal(err)
			}
			defer two.Close()
			one, err := transport.New(transport.Config{ID: 1, Dir: 11, Unreachable: none, Elsewhere: map[uint64]string{2: "new", 3: "new"}, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				if addr != "new" {
					return nil, errors.New("nobody is there")
				}
				return at.dial(ctx, addr)
			}}, newPipes())
			if err != nil {
				t.Fatal(err)
			}
			defer one.Close()
			one.Know(c.dirs)
			one.SetPeers(map[uint64]string{2: "old"})
			time.Sleep(2 * time.Second)
			one.Send(2, []byte("x"))
			synctest.Wait()
			if got, at := len(heard) == 1, one.FoundAt(2); got != c.want || (at == "new") != c.want {
				t.Errorf("%s: it is found: %v, at %q", name, got, at)
			}
			if err := one.SendSnapshot(2, []byte("meta"), strings.NewReader("body")); (err == nil) != c.want {
				t.Errorf("%s: it is sent a snapshot: %v", name, err)
			}
		})
	}
}

// A node that is back where the group has it is not elsewhere any more.
func TestElsewhere_Back(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, back := newPipes(), atomic.Bool{}
		two, err := transport.New(transport.Config{ID: 2, Dir: 12, Unreachable: func(uint64) {}, Snapshot: takesAll}, at)
		if err != nil {
			t.Fatal(err)
		}
		defer two.Close()
		one, err := transport.New(transport.Config{ID: 1, Dir: 11, Unreachable: func(uint64) {}, Elsewhere: map[uint64]string{2: "new"}, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if (addr == "old") != back.Load() {
				return nil, errors.New("nobody is there")
			}
			return at.dial(ctx, addr)
		}}, newPipes())
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		one.Know(map[uint64]uint64{1: 11, 2: 12})
		one.SetPeers(map[uint64]string{2: "old"})
		for _, want := range []string{"new", ""} {
			time.Sleep(2 * time.Second)
			if got := one.FoundAt(2); got != want {
				t.Errorf("it is found at %q, not at %q", got, want)
			}
			back.Store(true)
			if err := one.SendSnapshot(2, []byte("meta"), strings.NewReader("body")); err != nil {
				t.Error(err)
			}
		}
	})
}

// A node of which it is not known where it is, since the group has it where this node is, is looked for where an operator
// says that it is, until it is forgotten.
func TestElsewhere_Nowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, tries := newPipes(), atomic.Int64{}
		two, err := transport.New(transport.Config{ID: 2, Dir: 12, Unreachable: func(uint64) {}}, at)
		if err != nil {
			t.Fatal(err)
		}
		one, err := transport.New(transport.Config{ID: 1, Dir: 11, Unreachable: func(uint64) {}, Elsewhere: map[uint64]string{2: "new"}, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if tries.Add(1); addr != "new" {
				t.Errorf("it is looked for at %q", addr)
			}
			return at.dial(ctx, addr)
		}}, newPipes())
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		one.Know(map[uint64]uint64{1: 11, 2: 12, 3: 13})
		one.SetPeers(map[uint64]string{2: "", 3: ""})
		time.Sleep(2 * time.Second)
		if got := one.FoundAt(2); got != "new" {
			t.Errorf("it is found at %q", got)
		}
		one.SetPeers(nil)
		two.Close()
		time.Sleep(2 * time.Second)
		if got, tried := one.FoundAt(2), tries.Load(); got != "" || tried != 1 {
			t.Errorf("it was forgotten, and is found at %q; looked for %d times", got, tried)
		}
	})
}

// A node with a snapshot is asked whether it still works on it where it was found, not where the group has it: another node that
// answers there says nothing of it, and it is still where it was found.
func TestElsewhere_Snapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, other, none := newPipes(), newPipes(), func(uint64) {}
		taken := func(from uint64, meta []byte, next func() ([]byte, error)) error {
			err := takesAll(from, meta, next)
			time.Sleep(12 * time.Second)
			return err
		}
		two, err := transport.New(transport.Config{ID: 2, Dir: 12, Unreachable: none, Snapshot: taken}, at)
		if err != nil {
			t.Fatal(err)
		}
		defer two.Close()
		three, err := transport.New(transport.Config{ID: 3, Dir: 13, Unreachable: none}, other)
		if err != nil {
			t.Fatal(err)
		}
		defer three.Close()
		one, err := transport.New(transport.Config{ID: 1, Dir: 11, Unreachable: none, Elsewhere: map[uint64]string{2: "new"}, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "old" {
				return other.dial(ctx, addr)
			}
			return at.dial(ctx, addr)
		}}, newPipes())
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		one.Know(map[uint64]uint64{1: 11, 2: 12})
		one.SetPeers(map[uint64]string{2: "old"})
		time.Sleep(2 * time.Second)
		sent := make(chan error, 1)
		go func() { sent <- one.SendSnapshot(2, []byte("meta"), strings.NewReader("body")) }()
		time.Sleep(8 * time.Second)
		if got := one.FoundAt(2); got != "new" {
			t.Errorf("while it takes a snapshot it is found at %q", got)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}
