package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"strings"
	"sync"
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
		_, err := tr.greet(here, 1, forMessages)
		if want := name != "a peer"; errors.Is(err, ErrHandshake) != want || (err != nil) != want {
			t.Errorf("%s answers: %v", name, err)
		}
		here.Close()
		there.Close()
	}
}

// told is what two nodes of one cluster say after a handshake of theirs.
type told struct {
	mu      sync.Mutex
	refused map[uint64]error // by the node that refuses
	met     map[uint64]uint64
}

func (x *told) start(t *testing.T, id, dir uint64) *Transport {
	t.Helper()
	return x.startIn(t, 7, 0, id, dir)
}

// startIn starts a node of a cluster and a group.
func (x *told) startIn(t *testing.T, cluster, group, id, dir uint64) *Transport {
	t.Helper()
	n, err := New(Config{ID: id, Cluster: cluster, Group: group, Dir: dir, Deliver: func(uint64, []byte) {}, Unreachable: func(uint64) {},
		Word:    func(_ uint64, q []byte) ([]byte, error) { return append(q, " answered"...), nil },
		Met:     func(_, dir uint64, _ Versions) { x.mu.Lock(); x.met[id] = dir; x.mu.Unlock() },
		Refused: func(_ uint64, err error) { x.mu.Lock(); x.refused[id] = err; x.mu.Unlock() }}, listen(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// A node is refused if its number belongs to another directory, or was removed,
// whichever of the two dials and whichever of them knows; both are told why, and the one
// that must not come that it is itself. A question is answered all the same.
func TestDirectoriesAreCompared(t *testing.T) {
	for name, c := range map[string]struct {
		one, two map[uint64]uint64 // what each knows
		impostor uint64
	}{
		"all is known":              {one: map[uint64]uint64{2: 22}, two: map[uint64]uint64{1: 11}},
		"nothing is known":          {},
		"the dialler knows better":  {one: map[uint64]uint64{2: 99}, impostor: 2},
		"the answerer knows better": {two: map[uint64]uint64{1: 99}, impostor: 1},
		"the dialler was removed":   {two: map[uint64]uint64{1: Removed}, impostor: 1},
		"the answerer was removed":  {one: map[uint64]uint64{2: Removed}, impostor: 2},
	} {
		x := &told{refused: map[uint64]error{}, met: map[uint64]uint64{}}
		a, b := x.start(t, 1, 11), x.start(t, 2, 22)
		a.Know(c.one)
		b.Know(c.two)
		conn, err := a.dial(&peer{id: 2, addr: b.ln.Addr().String()}, forMessages)
		if err == nil {
			conn.Close()
		}
		if word, err := a.Ask(2, b.ln.Addr().String(), []byte("question")); err != nil || string(word) != "question answered" {
			t.Errorf("%s: a question is answered %q, %v", name, word, err)
		}
		a.Close()
		b.Close()
		if (err != nil) != (c.impostor != 0) {
			t.Errorf("%s: the dialler gets %v", name, err)
		}
		for id := uint64(1); id <= 2; id++ {
			why := x.refused[id]
			if (why != nil) != (c.impostor != 0) || errors.Is(why, ErrStranger) != (c.impostor == id) {
				t.Errorf("%s: node %d is told %v; the impostor is %d", name, id, why, c.impostor)
			}
		}
		if dir, met := x.met[2]; c.impostor == 0 && (x.met[1] != 22 || !met || dir != 0) { // the second knows no address of the first
			t.Errorf("%s: they met %v", name, x.met)
		}
	}
}

// Nodes of two clusters or groups, and a node that is dialled under the number of another, refuse
// each other, and both are told what differs, with both values.
func TestMismatchesAreToldOnBothSides(t *testing.T) {
	for name, c := range map[string]struct {
		cluster, group, as uint64 // of the one that is dialled, and the number that it is dialled by
		dialler, answerer  string
	}{
		"cluster": {8, 0, 2, "belongs to cluster 8, this is 7", "belongs to cluster 7, this is 8"},
		"group":   {7, 9, 2, "serves group 9, this is 0", "serves group 0, this is 9"},
		"number":  {7, 0, 3, "node 2 answers where node 3 should be", "means node 3, this is 2: while the group has no leader (holdfast status), start each node with its own directory, and with the true addresses of all in --members"},
	} {
		x := &told{refused: map[uint64]error{}, met: map[uint64]uint64{}}
		a, b := x.startIn(t, 7, 0, 1, 11), x.startIn(t, c.cluster, c.group, 2, 22)
		if _, err := a.dial(&peer{id: c.as, addr: b.ln.Addr().String()}, forMessages); !errors.Is(err, ErrHandshake) {
			t.Errorf("%s: the dialler gets %v", name, err)
		}
		a.Close()
		b.Close()
		for id, want := range map[uint64]string{1: c.dialler, 2: c.answerer} {
			if why := x.refused[id]; why == nil || !strings.Contains(why.Error(), want) {
				t.Errorf("%s: node %d is told %v, want %q", name, id, why, want)
			}
		}
	}
}

// Two groups with one cluster id, of which one has an address of the other: nobody is told
// that it is itself the one that must not come, since neither is what the other knows.
func TestOtherGroupEndsNobody(t *testing.T) {
	for name, c := range map[string]struct {
		one, two map[uint64]uint64 // what each knows, of itself, too
	}{
		"both know both numbers":   {one: map[uint64]uint64{1: 11, 2: 99}, two: map[uint64]uint64{1: 98, 2: 22}},
		"the number was removed":   {one: map[uint64]uint64{1: 11, 2: 99}, two: map[uint64]uint64{1: Removed, 2: 22}},
		"both numbers were":        {one: map[uint64]uint64{1: 11, 2: Removed}, two: map[uint64]uint64{1: Removed, 2: 22}},
		"one is new to the other":  {one: map[uint64]uint64{1: 11}, two: map[uint64]uint64{1: 98, 2: 22}},
		"one was removed there":    {one: map[uint64]uint64{1: 11}, two: map[uint64]uint64{1: Removed, 2: 22}},
		"the answerer is new":      {one: map[uint64]uint64{1: 11, 2: 99}, two: map[uint64]uint64{2: 22}},
		"the answerer was removed": {one: map[uint64]uint64{1: 11, 2: Removed}, two: map[uint64]uint64{2: 22}},
		"one was added to both":    {one: map[uint64]uint64{1: 11, 2: 22}, two: map[uint64]uint64{1: 98, 2: 22}},
	} {
		x := &told{refused: map[uint64]error{}, met: map[uint64]uint64{}}
		a, b := x.start(t, 1, 11), x.start(t, 2, 22)
		a.Know(c.one)
		b.Know(c.two)
		if _, err := a.dial(&peer{id: 2, addr: b.ln.Addr().String()}, forMessages); !errors.Is(err, ErrHandshake) {
			t.Errorf("%s: the dialler gets %v", name, err)
		}
		a.Close()
		b.Close()
		for id := uint64(1); id <= 2; id++ {
			if why := x.refused[id]; why == nil || errors.Is(why, ErrStranger) {
				t.Errorf("%s: node %d is told %v", name, id, why)
			}
		}
	}
}

// A node with the state of a group of its own does not come into another: both are told. One that comes
// with nothing does, one that has been told of the group, and one of a group without directories, too.
func TestStatesOfTwoGroupsStayApart(t *testing.T) {
	for name, c := range map[string]struct {
		one, two map[uint64]uint64 // what each knows, of itself, too
		coming   []uint64          // as the first knows
		own      []uint64          // as the second knows
		empty    bool              // the second has no state
		apart    bool
	}{
		"a group of its own":    {one: map[uint64]uint64{1: 11, 2: 0}, coming: []uint64{2}, two: map[uint64]uint64{2: 22}, apart: true},
		"no member yet":         {one: map[uint64]uint64{1: 11}, two: map[uint64]uint64{2: 22}, apart: true},
		"with nothing":          {one: map[uint64]uint64{1: 11, 2: 0}, coming: []uint64{2}, empty: true},
		"has the group's state": {one: map[uint64]uint64{1: 11, 2: 0}, coming: []uint64{2}, two: map[uint64]uint64{1: 11, 2: 22}},
		"has a state of before": {one: map[uint64]uint64{1: 11, 2: 0}, coming: []uint64{2}, two: map[uint64]uint64{3: 33}},
		"has one that knows it": {one: map[uint64]uint64{1: 11, 2: 0}, coming: []uint64{2}, two: map[uint64]uint64{2: 0, 3: 33}, own: []uint64{2}},
		"not known to all yet":  {one: map[uint64]uint64{1: 11}, two: map[uint64]uint64{2: 0, 3: 33}, own: []uint64{2}},
		"was away":              {one: map[uint64]uint64{1: 11, 2: 22}, two: map[uint64]uint64{2: 22}},
		"no directories yet":    {one: map[uint64]uint64{1: 11, 2: 0}, two: map[uint64]uint64{1: 0, 2: 0}},
	} {
		x := &told{refused: map[uint64]error{}, met: map[uint64]uint64{}}
		a, b := x.start(t, 1, 11), x.start(t, 2, 22)
		a.cfg.Versions, b.cfg.Versions = Versions{2, 3}, Versions{2, 3}
		a.Know(c.one, c.coming...)
		b.Know(c.two, c.own...)
		a.Raise(3)
		if !c.empty {
			b.Raise(3)
		}
		one, err1 := a.dial(&peer{id: 2, addr: b.ln.Addr().String()}, forMessages)
		two, err2 := b.dial(&peer{id: 1, addr: a.ln.Addr().String()}, forMessages)
		for _, conn := range []net.Conn{one, two} {
			if conn != nil {
				conn.Close()
			}
		}
		a.Close()
		b.Close()
		if (err1 != nil) != c.apart || (err2 != nil) != c.apart || errors.Is(err1, ErrStranger) || errors.Is(err2, ErrStranger) {
			t.Errorf("%s: they get %v and %v", name, err1, err2)
		}
		if (x.refused[1] != nil && x.refused[2] != nil) != c.apart || c.apart && len(x.met) > 0 {
			t.Errorf("%s: they are told %v, and have met %v", name, x.refused, x.met)
		}
	}
}

// Until it has been told what its own state says, a node shows nobody that it has none, be it dialled or be others
// in its peers: a connection that stood before would stay, whatever the two are.
func TestNothingIsSaidBeforeTheState(t *testing.T) {
	x := &told{refused: map[uint64]error{}, met: map[uint64]uint64{}}
	a, calls := x.start(t, 1, 11), make(chan error, 10)
	a.Know(map[uint64]uint64{1: 11, 2: 0}, 2)
	a.Raise(3)
	b, err := New(Config{ID: 2, Cluster: 7, Dir: 22, Later: true, Unreachable: func(uint64) {},
		Refused: func(_ uint64, err error) { calls <- err }, Met: func(uint64, uint64, Versions) { calls <- nil }}, listen(t))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.SetPeers(map[uint64]string{1: a.ln.Addr().String()})
	early, err := net.Dial("tcp", b.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	_, _ = early.Write(a.hello(forMessages, 2).encode())
	_ = early.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if h, err := readHello(early); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a node that knows nothing yet says %+v, %v", h, err)
	}
	b.Know(map[uint64]uint64{2: 22})
	b.Raise(3)
	b.Begin()
	for range 2 { // the call that came early, and its own
		if err := <-calls; err == nil || !strings.Contains(err.Error(), "have each a state") {
			t.Errorf("two groups meet: %v", err)
		}
	}
}

// A node of a version that hears nothing on the connections that it has made is told nothing there.
func TestOldCallersAreNotAnswered(t *testing.T) {
	lost := make(chan uint64, 1)
	ln, heard := listen(t), make(chan string, 1)
	n, err := New(Config{ID: 2, Cluster: 7, Deliver: func(_ uint64, data []byte) { heard <- string(data) }, Unreachable: func(peer uint64) { lost <- peer }}, ln)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(appendFrame(hello{purpose: forMessages, cluster: 7, from: 1, to: 2}.encode(), []byte("x"))); err != nil {
		t.Fatal(err)
	}
	<-heard
	if _, err := readHello(c); err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	go func() {
		if _, err := readFrame(c); err == nil {
			close(told)
		}
	}()
	n.Send(1, []byte("answer"))
	select {
	case <-lost:
	case <-told:
		t.Error("the answer is not lost")
	}
}

// ofBefore are hellos of programs from before a group had a version, which are shorter: without the versions, and the first
// without the directories, too.
func ofBefore() map[string][]byte {
	old := map[string][]byte{}
	now := hello{purpose: forMessages, cluster: 7, group: 1, from: 1, to: 2, dir: 11}.encode()
	for version, size := range map[byte]int{1: 42, 2: 58} {
		b := append([]byte(nil), now[:size-4]...)
		b[4] = version
		old[fmt.Sprintf("version %d", version)] = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, table))
	}
	return old
}

// Nodes of programs from before there was a version are not heard by those of now, and hear nothing from them: neither hello is
// one for the other side, and the connection ends.
func TestProgramsOfBeforeAreNotHeard(t *testing.T) {
	for name, b := range ofBefore() {
		heard := make(chan string, 10)
		ln := listen(t)
		b2, err := New(Config{ID: 2, Cluster: 7, Group: 1, Timeout: 100 * time.Millisecond, Unreachable: func(uint64) {},
			Deliver: func(uint64, []byte) { heard <- "a message" }}, ln)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(appendFrame(b, []byte("a message of then, which is long enough for a hello of now")))
		if answer, _ := io.ReadAll(c); len(answer) > 0 || len(heard) > 0 {
			t.Errorf("%s is answered %x, and %d messages of it are heard", name, answer, len(heard))
		}
		c.Close()
		b2.Close()
		if _, err := decodeHello(append(b, make([]byte, helloSize-len(b))...)); err == nil || !strings.Contains(err.Error(), "run the same version on both nodes") {
			t.Errorf("%s is refused with %v", name, err)
		}
	}
}
