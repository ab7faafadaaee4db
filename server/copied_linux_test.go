package server_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

// copied is a configuration for a copy of a directory as it is now, elsewhere.
func copied(t *testing.T, cfg server.Config) server.Config {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if cfg.Dir = to; cfg.Listen != "" {
		cfg.Listen = services.Addr(t)
	}
	return cfg
}

// refusesCopy: a node does not start on a directory, and says why.
func refusesCopy(t *testing.T, cfg server.Config, texts ...string) {
	t.Helper()
	s, err := server.New(cfg)
	if err == nil {
		s.Close()
		t.Fatalf("a node starts on the copy %s", cfg.Dir)
	}
	for _, text := range texts {
		if !errors.Is(err, storage.ErrCopied) || !strings.Contains(err.Error(), text) {
			t.Errorf("the copy is refused with %v, want %q", err, text)
		}
	}
}

// stopsAsCopy: a node stops by itself, and says why.
func stopsAsCopy(t *testing.T, s *server.Server, text string) {
	t.Helper()
	select {
	case <-s.Done():
	case <-within(t).Done():
		t.Fatal("it goes on")
	}
	if err := s.Close(); !errors.Is(err, storage.ErrCopied) || !strings.Contains(err.Error(), text) {
		t.Errorf("it stops with %v, want %q", err, text)
	}
}

// A copy of the directory of a running node takes no part, under whichever address and also by the word
// that it was moved: its operator is told where the node runs, and the node's own where the copy is.
func TestCopyOfARunningNode(t *testing.T) {
	cfgs, told := founderConfigs(t, 3), make(chan string, 1000)
	for i := range cfgs {
		cfgs[i].Notice = func(err error) { told <- err.Error() }
	}
	g := started(t, cfgs)
	c := newClient(t, 1, g.up)
	c.do(add())
	i := (g.leader() + 1) % 3
	again := copied(t, g.cfgs[i])
	for want := uint64(2); want <= 10; want++ {
		c.do(add())
	}
	refusesCopy(t, again, "began before this one", g.cfgs[i].Dir, g.cfgs[i].Listen, again.Dir)
	hear(t, told, "with a copy of the directory of this node, in "+again.Dir)
	again.Moved = true
	refusesCopy(t, again, "began before this one")
	if r := c.do(add()); r.Number != 11 {
		t.Errorf("the counter is %d, want 11", r.Number)
	}
	g.sameState()
}

// While its node is away, a copy of its directory does not vote in its place: what the two others have
// acknowledged since, of which one is lost then, could be lost with that. The original comes back as before.
func TestCopyOfANodeThatIsAway(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	g.sameState()
	third := (g.leader() + 1) % 3
	early := copied(t, g.cfgs[third])
	c.do(add())
	g.sameState()
	if err := g.nodes[third].Close(); err != nil {
		t.Fatal(err)
	}
	late := copied(t, g.cfgs[third])
	refusesCopy(t, early, "ran, or was killed", "--moved", early.Dir)
	refusesCopy(t, late, "had stopped", "--moved")
	refusesCopy(t, late, g.cfgs[third].Dir) // also the second time
	g.nodes[third] = start(t, g.cfgs[third])
	if r := c.do(add()); r.Number != 3 {
		t.Errorf("the counter is %d, want 3", r.Number)
	}
	g.sameState()
}

// A directory that was moved goes on by the word of the operator. Should the original come back all the same, it
// stops when it hears of the node that runs, and the operator of that is told.
func TestMovedDirectory(t *testing.T) {
	g, c, i := followerAway(t)
	moved, told := noticed(copied(t, g.cfgs[i]))
	moved.Moved = true
	g.nodes[i] = start(t, moved)
	c.do(add())
	g.sameState()
	refusesCopy(t, g.cfgs[i], "began before this one", moved.Dir)
	hear(t, told, "with a copy of the directory of this node, in "+g.cfgs[i].Dir)
	if err := g.nodes[i].Close(); err != nil {
		t.Fatal(err)
	}
	moved.Moved = false
	g.nodes[i] = start(t, moved) // it is at its place now
	c.do(add())
	g.sameState()
}

// A directory that was renamed is none that was copied: nothing is left at the old place.
func TestRenamedDirectory(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	i := (g.leader() + 1) % 3
	if err := g.nodes[i].Close(); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "renamed")
	if err := os.Rename(g.cfgs[i].Dir, to); err != nil {
		t.Fatal(err)
	}
	g.cfgs[i].Dir = to
	g.nodes[i] = start(t, g.cfgs[i])
	g.sameState()
}

// A server alone goes on from a copy, since nobody else has its state, and says so. Tokens of the two never
// meet, whichever grants more, and the copy of a copy is one, too. With an address for other nodes it finds the original, if
// that runs, and does not start.
func TestCopyOfAServerAlone(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	original := start(t, cfg)
	c := newClient(t, 1, one(original))
	held := c.do(lock()).Token
	first, told := noticed(copied(t, cfg))
	second := copied(t, cfg)
	for range 100 {
		c.do(add())
	}
	last := c.do(core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "n", Kind: core.Mutex}}}).Token
	for _, cfg := range []server.Config{first, second, copied(t, first)} {
		fork := newClient(t, 2, one(start(t, cfg)))
		token := fork.do(core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "n", Kind: core.Mutex}}}).Token
		if token <= last || held == 0 {
			t.Errorf("the copy grants token %d after %d", token, last)
		}
		last = token
	}
	hear(t, told, "was copied or moved from "+cfg.Dir)

	with := server.Config{Dir: t.TempDir(), Listen: services.Addr(t)}
	newClient(t, 3, one(start(t, with))).do(add())
	refusesCopy(t, copied(t, with), "began before this one", with.Listen)
}

// inPlace has a copy of a directory, and what puts that back at the path of the directory when this is used no more.
func inPlace(t *testing.T, dir string) (putBack func()) {
	t.Helper()
	p, err := storage.OS{}.Place(filepath.Join(dir, "place"))
	if err != nil || !p.Lasts || p.Born == 0 {
		t.Fatalf("a file system that does not keep inodes and times of birth: TMPDIR names another (%v)", err)
	}
	backup := copied(t, server.Config{Dir: dir}).Dir
	return func() {
		if err := errors.Join(os.Rename(dir, dir+".old"), os.Rename(backup, dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// A copy at the path of its original is one, too: a server alone that is taken back to a backup of its files says so, and grants greater
// tokens than were given before.
func TestCopyAtItsPath_ServerAlone(t *testing.T) {
	cfg, told := noticed(server.Config{Dir: filepath.Join(t.TempDir(), "node")})
	try := func(s *server.Server, id byte) uint64 {
		return newClient(t, id, one(s)).do(core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "n", Kind: core.Mutex}}}).Token
	}
	close := func(s *server.Server) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, cfg)
	newClient(t, 1, one(s)).do(add())
	close(s)
	putBack := inPlace(t, cfg.Dir)
	s = start(t, cfg)
	last := try(s, 2)
	close(s)
	putBack()
	s = start(t, cfg)
	if token := try(s, 3); token <= last {
		t.Fatalf("the copy grants token %d after %d", token, last)
	}
	hear(t, told, cfg.Dir+" is a copy of the one that was there before")
	close(s)
	close(start(t, cfg))
	if len(told) > 0 {
		t.Errorf("by its second start it is its own, and says %s", <-told)
	}
}

// All nodes of a group are taken back to a backup of their files, at the paths where they were: none starts, and each says how to go on.
func TestCopyAtItsPath_WholeGroup(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	g.sameState()
	var putBack []func()
	for i, n := range g.nodes {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		putBack = append(putBack, inPlace(t, g.cfgs[i].Dir))
	}
	c.hangUp()
	for i := range g.nodes {
		g.nodes[i] = start(t, g.cfgs[i])
	}
	c.do(add())
	g.sameState()
	for i, n := range g.nodes {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		putBack[i]()
		refusesCopy(t, g.cfgs[i], "at the same path, "+g.cfgs[i].Dir, "may have promised more since", "snapshot restore", "--moved")
	}
}

// imaged is a node at an address that the group does not know, and a configuration for another that cannot be told from it by its
// directory, as by the image of a machine.
func (g *group) imaged(i int) (told chan string, image server.Config) {
	g.t.Helper()
	image = copied(g.t, g.cfgs[i])
	if err := errors.Join(os.Remove(filepath.Join(image.Dir, "place")), g.nodes[i].Close()); err != nil {
		g.t.Fatal(err)
	}
	g.cfgs[i], told = noticed(g.cfgs[i])
	g.cfgs[i].Listen = services.Addr(g.t)
	g.nodes[i] = start(g.t, g.cfgs[i])
	return told, image
}

// Of a running node there is a second one that cannot be told from it by its directory: the other nodes know of the first, also if
// neither is at an address that the group knows. The second does not start, and the first's operator is told.
func TestImageOfARunningNode(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	g.sameState()
	i := (g.leader() + 1) % 3
	told, image := g.imaged(i)
	c.do(add())
	g.sameState()
	refusesCopy(t, image, "began before this one", g.cfgs[i].Dir)
	hear(t, told, "with a copy of the directory of this node, in "+image.Dir)
	c.do(add())
	g.sameState()
}

// The second was cut off from all others when it was started, so that nobody told it of the first: it stops as soon as it meets
// another node.
func TestImageIsFoundLater(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	g.sameState()
	i := (g.leader() + 1) % 3
	told, image := g.imaged(i)
	g.sameState()
	var met atomic.Bool
	host.Put(&image, &host.Host{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		if !met.Load() {
			return nil, errors.New("cut off")
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}})
	second := start(t, image)
	met.Store(true)
	stopsAsCopy(t, second, g.cfgs[i].Dir)
	hear(t, told, "with a copy of the directory of this node, in "+image.Dir)
	if r := c.do(add()); r.Number != 2 {
		t.Errorf("the counter is %d, want 2", r.Number)
	}
	g.sameState()
}

// All nodes of a group are moved while they are stopped: by the word of the operator they are the group that they were.
func TestWholeGroupMoves(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	g.sameState()
	for i, n := range g.nodes {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		at := g.cfgs[i].Listen
		old := g.cfgs[i].Dir
		g.cfgs[i] = copied(t, g.cfgs[i])
		g.cfgs[i].Listen, g.cfgs[i].Moved = at, true
		if err := os.RemoveAll(old); err != nil {
			t.Fatal(err)
		}
	}
	c.hangUp()
	for i := range g.nodes {
		g.nodes[i] = start(t, g.cfgs[i])
	}
	if r := c.do(add()); r.Number != 2 {
		t.Errorf("the counter is %d, want 2", r.Number)
	}
	g.sameState()
}
