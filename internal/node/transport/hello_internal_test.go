package transport

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// listen is a listener on loopback that ends with the test.
func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// strangers are hellos that a node 2 of cluster 7 and group 1 must not accept from
// a peer, each for one reason only.
var strangers = map[string]hello{
	"another cluster": {cluster: 8, group: 1, from: 1, to: 2},
	"another group":   {cluster: 7, group: 9, from: 1, to: 2},
	"another node":    {cluster: 7, group: 1, from: 1, to: 3},
	"our own name":    {cluster: 7, group: 1, from: 2, to: 2},
	"no name":         {cluster: 7, group: 1, from: 0, to: 2},
}

// A node hears nothing from a stranger that calls it, whatever the stranger makes
// of the answer.
func TestStrangersAreNotHeard(t *testing.T) {
	heard := make(chan string, 10)
	ln := listen(t)
	b, err := New(Config{ID: 2, Cluster: 7, Group: 1,
		Deliver:     func(uint64, []byte) { heard <- "a message" },
		Unreachable: func(uint64) {},
		Snapshot: func(uint64, []byte, func() ([]byte, error)) error {
			heard <- "a snapshot"
			return nil
		}}, ln)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	for name, h := range strangers {
		for what, why := range map[string]purpose{"a message": forMessages, "a snapshot": forSnapshot} {
			h.purpose = why
			if told := say(t, ln.Addr().String(), h, heard); told != "" {
				t.Errorf("%s: %s was heard", name, told)
			}
			friend := hello{purpose: why, cluster: 7, group: 1, from: 1, to: 2}
			if told := say(t, ln.Addr().String(), friend, heard); told != what {
				t.Fatalf("of a peer %q was heard, want %s", told, what)
			}
		}
	}
}

// say calls a node with a hello and a frame, and returns what the node heard
// before it hung up.
func say(t *testing.T, addr string, h hello, heard chan string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write(appendFrame(h.encode(), []byte("x"))) // the node may have hung up
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	select {
	case told := <-heard:
		return told
	case <-ended:
	}
	select { // it may have heard, and hung up then
	case told := <-heard:
		return told
	default:
		return ""
	}
}

// A node says nothing to a stranger that answers in place of the peer.
func TestStrangersAreNotTold(t *testing.T) {
	for name, answer := range map[string]hello{
		"a peer":          {cluster: 7, group: 1, from: 1, to: 2},
		"another cluster": {cluster: 8, group: 1, from: 1, to: 2},
		"another group":   {cluster: 7, group: 9, from: 1, to: 2},
		"for another":     {cluster: 7, group: 1, from: 1, to: 3},
		"another node":    {cluster: 7, group: 1, from: 4, to: 2},
	} {
		answer.purpose = forMessages
		here, there := net.Pipe()
		go func() {
			if _, err := readHello(there); err == nil {
				_, _ = there.Write(answer.encode())
			}
		}()
		tr := &Transport{cfg: Config{ID: 2, Cluster: 7, Group: 1, Timeout: time.Minute}}
		err := tr.greet(here, 1, forMessages)
		if want := name != "a peer"; errors.Is(err, ErrHandshake) != want || (err != nil) != want {
			t.Errorf("%s answers: %v", name, err)
		}
		here.Close()
		there.Close()
	}
}
