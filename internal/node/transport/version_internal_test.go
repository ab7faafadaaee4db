package transport

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// A node that does not support the version of the group is refused, whichever of the
// two dials and whichever knows the version; both are told which node to upgrade, and that
// node that it is itself.
func TestVersionsAreCompared(t *testing.T) {
	for name, c := range map[string]struct {
		one, two       Versions
		knows1, knows2 uint8 // the version of the group, as each knows it
		behind         uint64
	}{
		"both support it":           {one: Versions{2, 3}, two: Versions{2, 3}, knows1: 3, knows2: 3},
		"not raised yet":            {one: Versions{2, 3}, two: Versions{2, 2}, knows1: 2, knows2: 2},
		"nobody knows":              {one: Versions{2, 3}, two: Versions{2, 2}},
		"the answerer is behind":    {one: Versions{2, 3}, two: Versions{2, 2}, knows1: 3, knows2: 2, behind: 2},
		"the dialler is behind":     {one: Versions{2, 2}, two: Versions{2, 3}, knows1: 2, knows2: 3, behind: 1},
		"a new node is behind":      {one: Versions{2, 2}, two: Versions{2, 3}, knows2: 3, behind: 1},
		"the version is given up":   {one: Versions{3, 4}, two: Versions{2, 3}, knows2: 2, behind: 1},
		"a new node that is behind": {one: Versions{2, 3}, two: Versions{2, 2}, knows1: 3, behind: 2},
	} {
		x := &told{refused: map[uint64]error{}, met: map[uint64]uint64{}}
		a, b := x.start(t, 1, 11), x.start(t, 2, 22)
		a.cfg.Versions, b.cfg.Versions = c.one, c.two
		a.Raise(c.knows1)
		b.Raise(c.knows2)
		conn, err := a.dial(&peer{id: 2, addr: b.ln.Addr().String()}, forMessages)
		if err == nil {
			conn.Close()
		}
		a.Close()
		b.Close()
		if (err != nil) != (c.behind != 0) {
			t.Errorf("%s: the dialler gets %v", name, err)
		}
		for id := uint64(1); id <= 2; id++ {
			why := x.refused[id]
			if (why != nil) != (c.behind != 0) || errors.Is(why, ErrVersion) != (c.behind == id) {
				t.Errorf("%s: node %d is told %v; %d is behind", name, id, why, c.behind)
			}
			if why != nil && !strings.HasSuffix(why.Error(), []string{"", "upgrade node 1", "upgrade node 2"}[c.behind]) {
				t.Errorf("%s: node %d is not told what to do: %v", name, id, why)
			}
		}
	}
}

// When the version is raised, a peer that does not support it is sent away and told so
// when it comes back.
func TestRaiseEndsConnections(t *testing.T) {
	x := &told{refused: map[uint64]error{}, met: map[uint64]uint64{}}
	a, b := x.start(t, 1, 11), x.start(t, 2, 22)
	a.cfg.Versions, b.cfg.Versions = Versions{2, 2}, Versions{2, 3}
	conn, err := a.dial(&peer{id: 2, addr: b.ln.Addr().String()}, forMessages)
	if err != nil {
		t.Fatal(err)
	}
	b.Raise(2)
	b.Raise(3)
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of a node that is behind goes on: %v", err)
	}
	conn.Close()
	if _, err := a.dial(&peer{id: 2, addr: b.ln.Addr().String()}, forMessages); !errors.Is(err, ErrVersion) {
		t.Errorf("it is told %v", err)
	}
}

// The version of another group, into which an address leads, does not end a node that its
// own group knows; that of a peer which the group knows by its directory does.
func TestVersionOfAnotherGroup(t *testing.T) {
	for name, c := range map[string]struct {
		knows map[uint64]uint64
		ends  bool
	}{
		"never met": {knows: map[uint64]uint64{1: 11}},
		"a peer":    {knows: map[uint64]uint64{1: 11, 2: 22}, ends: true},
	} {
		x := &told{refused: map[uint64]error{}, met: map[uint64]uint64{}}
		a, b := x.start(t, 1, 11), x.start(t, 2, 22)
		a.cfg.Versions, b.cfg.Versions = Versions{2, 2}, Versions{2, 3}
		a.Know(c.knows)
		b.Raise(3)
		if _, err := a.dial(&peer{id: 2, addr: b.ln.Addr().String()}, forMessages); !errors.Is(err, ErrHandshake) || errors.Is(err, ErrVersion) != c.ends {
			t.Errorf("%s: it is told %v", name, err)
		}
	}
}
