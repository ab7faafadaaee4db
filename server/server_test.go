package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/internal/watch"
	"github.com/holdfast-io/holdfast/server"
)

// patience bounds every wait; nothing here takes as long.
const patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// client drives a session over streams to whichever node answers.
type client struct {
	t     *testing.T
	nodes func() []*server.Server
	s     *session.Session
	began time.Time
	st    *server.Stream
	in    chan []byte
	next  int
	calls map[*session.Call]bool
}

func newClient(t *testing.T, id byte, nodes func() []*server.Server) *client {
	c := &client{t: t, nodes: nodes, began: time.Now(), in: make(chan []byte, 1000), calls: map[*session.Call]bool{}}
	c.s = session.New(session.Config{ID: core.SessionID{id}, TTL: 30 * time.Second, Owner: "test"})
	return c
}

func (c *client) now() int64 { return int64(time.Since(c.began)) + 1 }

func (c *client) dial() {
	nodes := c.nodes()
	c.next++
	in := make(chan []byte, 1000)
	c.in = in
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	st, err := nodes[c.next%len(nodes)].Stream(ctx, func(b []byte, _ func()) { in <- bytes.Clone(b) }, func() { in <- nil })
	if err != nil {
		return
	}
	c.st = st
	c.act(c.s.Connect(c.now()))
}

func (c *client) act(actions []session.Action) {
	redial := false
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case session.Send:
			if c.st != nil {
				c.st.Send(session.AppendMessage(nil, &a.Message))
			}
		case session.Done:
			c.calls[a.Call] = true
		case session.Redial, session.Silent:
			redial = true
		}
	}
	if redial {
		c.hangUp()
	}
}

func (c *client) hangUp() {
	if c.st != nil {
		c.st.Close()
		c.st = nil
		c.act(c.s.Disconnect(c.now()))
	}
}

// do runs a command to its answer.
func (c *client) do(cmd core.Command) core.Result {
	c.t.Helper()
	call := &session.Call{Command: cmd}
	c.act(c.s.Submit(c.now(), call))
	for deadline := time.Now().Add(patience); !c.calls[call]; {
		if time.Now().After(deadline) {
			c.t.Fatal("no answer")
		}
		if c.st == nil {
			<-time.After(time.Millisecond) // a node without a leader hangs up at once
			c.dial()
		}
		c.act(c.s.Flush(c.now()))
		select {
		case b := <-c.in:
			c.receive(b)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if call.Outcome != session.Answered {
		c.t.Fatalf("the outcome of %+v is %d", cmd, call.Outcome)
	}
	return call.Result
}

func (c *client) receive(b []byte) {
	if b == nil {
		c.hangUp()
		return
	}
	for len(b) > 0 {
		m, rest, err := session.DecodeMessage(b)
		if err != nil {
			c.t.Fatal(err)
		}
		c.act(c.s.Receive(c.now(), &m))
		b = rest
	}
}

func add() core.Command {
	return core.Command{Op: core.OpCount, Name: "cnt", Count: core.CountAdd, Unsigned: true, A: 1}
}

func one(s *server.Server) func() []*server.Server {
	return func() []*server.Server { return []*server.Server{s} }
}

// What was answered is there after a restart, and so are the holders.
func TestDurable(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	c := newClient(t, 1, one(s))
	held := c.do(core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "m", Kind: core.Mutex}}})
	for range 10 {
		c.do(add())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, cfg)
	other := newClient(t, 2, one(s))
	if r := other.do(add()); r.Number != 11 {
		t.Errorf("the counter went on at %d, want 11", r.Number)
	}
	r := other.do(core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "m", Kind: core.Mutex}}})
	if r.Code != core.CodeHeld || r.Holders[0].Token != held.Token {
		t.Errorf("after the restart a try got code %d, holders %+v, want the hold with token %d", r.Code, r.Holders, held.Token)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, server.Config{Dir: dir})
	_, err := server.New(server.Config{Dir: dir})
	if !errors.Is(err, storage.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want an error that names %s as in use", err, dir)
	}
}

func TestBadConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	start(t, server.Config{Dir: foreign, ClusterID: 9}).Close()
	for name, cfg := range map[string]server.Config{
		"no directory":      {},
		"a file":            {Dir: file},
		"another cluster":   {Dir: foreign, ClusterID: 8},
		"founder twice":     {Dir: t.TempDir(), Founders: []server.Member{{ID: 1}, {ID: 1}}},
		"not among them":    {Dir: t.TempDir(), ID: 3, Founders: []server.Member{{ID: 1}, {ID: 2}}},
		"no way to others":  {Dir: t.TempDir(), Founders: []server.Member{{ID: 1}, {ID: 2}}},
		"unsecured address": {Dir: t.TempDir(), Founders: []server.Member{{ID: 1, Peer: "192.0.2.1:1"}}, Listen: "0.0.0.0:0"},
		"number too great":  {Dir: t.TempDir(), ID: 1 << 32, Founders: []server.Member{{ID: 1 << 32}}},
		"senseless tick":    {Dir: t.TempDir(), Tick: 1},
	} {
		if s, err := server.New(cfg); err == nil {
			s.Close()
			t.Errorf("%s: started", name)
		}
	}
	for _, listen := range []string{":0", "0.0.0.0:7421", "[::]:7421"} {
		_, err := server.New(server.Config{Dir: t.TempDir(), Listen: listen})
		if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "at which no other node could find this one") {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

// group is three nodes on loopback.
type group struct {
	t     *testing.T
	cfgs  []server.Config
	nodes []*server.Server
}

func newGroup(t *testing.T, n int) *group {
	t.Helper()
	return started(t, founderConfigs(t, n))
}

// inBubble runs a test of a group in fake time: there a busy machine elects no other leader.
func inBubble(t *testing.T, n int, test func(t *testing.T, g *group)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, onWires(t, n)) })
}

// onWires is a new group in a bubble, on a network of its own.
func onWires(t *testing.T, n int) *group {
	t.Helper()
	cfgs, wires := founderConfigs(t, n), &host.Pipes{}
	for i := range cfgs {
		host.Put(&cfgs[i], &host.Host{Listen: wires.Listen, Dial: wires.Dial})
	}
	return started(t, cfgs)
}

func started(t *testing.T, cfgs []server.Config) *group {
	t.Helper()
	g := &group{t: t, cfgs: cfgs}
	for _, cfg := range g.cfgs {
		g.nodes = append(g.nodes, start(t, cfg))
	}
	return g
}

func founderEndpoints(t *testing.T, n int) (all []server.Member) {
	t.Helper()
	for i := range n {
		all = append(all, server.Member{ID: uint64(i + 1), Peer: services.Addr(t)})
	}
	return all
}

func (g *group) up() []*server.Server { return g.nodes }

// leader waits for a node that serves.
func (g *group) leader() int {
	g.t.Helper()
	ctx := within(g.t)
	for ; ; time.Sleep(time.Millisecond) {
		for i, n := range g.nodes {
			if st, err := n.Status(ctx); err == nil && st.Serving {
				return i
			}
		}
		if ctx.Err() != nil {
			g.t.Fatal("no leader")
		}
	}
}

// A group goes on without its leader, and takes it back.
func TestFailover(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	for want := uint64(1); want <= 30; want++ {
		if want%10 == 0 {
			old := g.leader()
			if err := g.nodes[old].Close(); err != nil {
				t.Fatal(err)
			}
			c.hangUp()
			if r := c.do(add()); r.Number != want {
				t.Fatalf("without node %d the counter is %d, want %d", old+1, r.Number, want)
			}
			g.nodes[old] = start(t, g.cfgs[old])
			continue
		}
		if r := c.do(add()); r.Number != want {
			t.Fatalf("the counter is %d, want %d", r.Number, want)
		}
	}
	g.sameState()
}

// sameState waits until all nodes have applied the same, and compares.
func (g *group) sameState() {
	g.t.Helper()
	ctx := within(g.t)
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		hashes := map[string]bool{}
		for _, n := range g.nodes {
			st, err := n.Status(ctx)
			if err != nil {
				g.t.Fatal(err)
			}
			hashes[fmt.Sprintf("%d:%x", st.Applied, st.Hash)] = true
		}
		if len(hashes) == 1 {
			return
		}
	}
	g.t.Error("the nodes never agreed")
}

// members changes the members. On a busy machine the leader may change too, and
// with it the answer may be lost: what counts is the members of then.
func (g *group) members(c replica.Change, changed func(replica.Membership) bool) {
	g.t.Helper()
	for ctx := within(g.t); ; time.Sleep(time.Millisecond) {
		leader := g.nodes[g.leader()]
		_, err := leader.Members(ctx, c)
		if err == nil {
			return
		}
		if st, e := leader.Status(ctx); e == nil && changed(st.Members) {
			return
		}
		if ctx.Err() != nil {
			g.t.Fatal(err)
		}
	}
}

// A new node catches up by a snapshot and becomes a voter; an old one goes.
func TestMembership(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	for range 60 {
		c.do(add())
	}
	addr := services.Addr(t)
	cfg := server.Config{Dir: t.TempDir(), ID: 4, Join: true, Founders: g.cfgs[0].Founders, Listen: addr, Tick: 20 * time.Millisecond, SnapshotEntries: 20}
	fourth := start(t, cfg)
	ctx := within(t)
	g.members(replica.Change{Add: []replica.Endpoint{{ID: 4, Peer: addr}}}, func(m replica.Membership) bool { return slices.Contains(m.Conf.GetLearners(), 4) })
	caughtUp := func() bool {
		lead, err1 := g.nodes[g.leader()].Status(ctx)
		st, err2 := fourth.Status(ctx)
		return err1 == nil && err2 == nil && st.Applied >= lead.Applied && st.Applied > 0
	}
	for ; !caughtUp(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("the new node does not catch up")
		}
	}
	old := (g.leader() + 1) % 3
	g.members(replica.Change{Promote: []uint64{4}, Remove: []uint64{uint64(old + 1)}}, func(m replica.Membership) bool { return slices.Contains(m.Conf.GetVoters(), 4) })
	g.nodes[old].Close()
	g.nodes[old], g.cfgs[old] = fourth, cfg
	if r := c.do(add()); r.Number != 61 {
		t.Errorf("the counter is %d, want 61", r.Number)
	}
	g.sameState()
}

// A node that waits to be let in has nothing to save, and says so at once.
func TestBackupWithoutAState(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir(), ID: 4, Join: true, Founders: []server.Member{{ID: 1, Peer: services.Addr(t)}}, Listen: services.Addr(t)})
	if err := s.Backup(within(t), io.Discard); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "no state yet") {
		t.Errorf("a backup of nothing: %v", err)
	}
}

// The leader is removed by one command, whichever node is asked: it hands over, and the
// order goes to its successor.
func TestRemoveTheLeader(t *testing.T) {
	for _, asked := range []int{0, 1} {
		inBubble(t, 3, func(t *testing.T, g *group) { removeTheLeader(t, g, asked) })
	}
}

func removeTheLeader(t *testing.T, g *group, asked int) {
	newClient(t, 1, g.up).do(add())
	old := g.leader()
	if _, err := g.nodes[(old+asked)%3].Members(within(t), replica.Change{Remove: []uint64{uint64(old + 1)}}); err != nil {
		t.Errorf("the node %d after the leader is asked to remove it: %v", asked, err)
	}
	g.nodes[old].Close()
	g.nodes, g.cfgs = slices.Delete(g.nodes, old, old+1), slices.Delete(g.cfgs, old, old+1)
	st, err := g.nodes[g.leader()].Status(within(t))
	if err != nil || len(st.Members.Conf.GetVoters()) != 2 {
		t.Errorf("voters %v, %v", st.Members.Conf.GetVoters(), err)
	}
}

func TestLookAndWatch(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir()})
	w, _, err := s.Watch(watch.Filter{Namespace: "default", Patterns: []string{"counter:*"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := newClient(t, 1, one(s))
	c.do(add())
	events, resync, err := w.Next(within(t), nil, 10)
	if err != nil || resync != 0 || len(events) != 1 || events[0].Number != 1 {
		t.Errorf("watched %+v, resync %d, %v", events, resync, err)
	}
	var got uint64
	if err := s.Look(within(t), func(m *core.Machine, _ int64) {
		cmd := core.Command{Op: core.OpCount, Name: "cnt", Unsigned: true}
		got = m.Read("", &cmd).Number
	}); err != nil || got != 1 {
		t.Errorf("looked at %d, %v", got, err)
	}
	s.Close()
	if err := s.Look(within(t), func(*core.Machine, int64) {}); err == nil {
		t.Error("a stopped node was looked at")
	}
	if _, _, err := w.Next(within(t), nil, 10); err == nil {
		t.Error("a stopped node was watched")
	}
}

// A node that has restarted tells what happened before.
func TestHistoryAfterRestart(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	filter := watch.Filter{Namespace: "default", Patterns: []string{"counter:*"}}
	w, first, err := s.Watch(filter, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	c := newClient(t, 1, one(s))
	for range 3 {
		c.do(add())
	}
	s.Close()
	s = start(t, cfg)
	if w, _, err = s.Watch(filter, first); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var seen []core.Event
	for len(seen) < 3 {
		if seen, _, err = w.Next(within(t), seen, 3); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range seen {
		if e.Number != uint64(i+1) {
			t.Errorf("event %d tells of %d", i+1, e.Number)
		}
	}
}

// A node in the program itself: what it holds and counts is on disk.
func ExampleServer_Space() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "holdfast")
	defer os.RemoveAll(dir)
	for range 2 { // the second node finds what the first one kept
		srv, err := server.New(server.Config{Dir: dir})
		if err != nil {
			fmt.Println(err)
			return
		}
		space, err := srv.Space(holdfast.Owner("example"))
		if err != nil {
			fmt.Println(err)
			return
		}
		err = space.Mutex("jobs/nightly").Do(ctx, func(ctx context.Context, h *holdfast.Hold) error {
			n, err := space.Counter("runs").Add(ctx, 1)
			fmt.Println("run", n, "held:", h.Err() == nil)
			return err
		})
		fmt.Println(err, space.Close(), srv.Close())
	}
	// Output:
	// run 1 held: true
	// <nil> <nil> <nil>
	// run 2 held: true
	// <nil> <nil> <nil>
}

func Example() {
	dir, _ := os.MkdirTemp("", "holdfast")
	defer os.RemoveAll(dir)
	srv, err := server.New(server.Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	st, err := srv.Status(context.Background())
	fmt.Println("node", st.ID, "of", len(st.Members.Endpoints), err)
	// Output: node 1 of 1 <nil>
}
