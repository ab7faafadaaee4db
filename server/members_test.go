package server_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

// A node without an address for others refuses to add one, before anything is
// written: it goes on, and starts again.
func TestNodeWithoutPeersAddsNobody(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	c := newClient(t, 1, one(s))
	c.do(add())
	_, err := s.Members(within(t), replica.Change{Add: []replica.Endpoint{{ID: 2, Peer: "127.0.0.1:1"}}})
	if e, ok := errors.AsType[*driver.Error](err); !ok || !errors.Is(err, fs.ErrInvalid) || e.Outcome != driver.NotDone || !strings.Contains(err.Error(), "--peer") {
		t.Errorf("adding a node gives %v, want it refused with what to do", err)
	}
	if r := c.do(add()); r.Number != 2 {
		t.Errorf("the counter is %d, want 2", r.Number)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, cfg)
	if st, err := s.Status(within(t)); err != nil || len(st.Members.Endpoints) != 1 {
		t.Errorf("after a restart the members are %v (%v)", st.Members, err)
	}
}

// A directory of a group with other nodes starts without an address for them with
// an error that says what is missing; with one it goes on.
func TestGroupNeedsAnAddress(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir(), Listen: services.Addr(t)}
	s := start(t, cfg)
	other := services.Addr(t)
	for ctx := within(t); ; time.Sleep(time.Millisecond) {
		if _, err := s.Members(ctx, replica.Change{Add: []replica.Endpoint{{ID: 2, Peer: other}}}); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lone := cfg
	lone.Listen = ""
	s, err := server.New(lone)
	if err == nil {
		<-s.Done()
		err = s.Err()
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "node 2 at "+other) || !strings.Contains(err.Error(), "--peer") {
		t.Errorf("without an address the node says %v, want what is missing", err)
	}
	s = start(t, cfg)
	if r := newClient(t, 1, one(s)).do(add()); r.Number != 1 {
		t.Errorf("the counter is %d, want 1", r.Number)
	}
}

// A server that was founded alone and without addresses gets some later, and grows.
func TestLoneServerGrows(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	newClient(t, 1, one(s)).do(add())
	if got := s.MinTTL(); got != time.Second {
		t.Errorf("the least TTL of a lone node is %s, want 1 s", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Listen, cfg.Client = services.Addr(t), "client:1"
	s = start(t, cfg)
	addr := services.Addr(t)
	second := start(t, server.Config{Dir: t.TempDir(), ID: 2, Join: true, Listen: addr, Founders: []server.Member{{ID: 1, Peer: cfg.Listen}}})
	ctx := within(t)
	for _, ch := range []replica.Change{{Add: []replica.Endpoint{{ID: 2, Peer: addr}}}, {Promote: []uint64{2}}} {
		var why error
		for _, err := s.Members(ctx, ch); err != nil; _, err = s.Members(ctx, ch) {
			if ctx.Err() != nil {
				t.Fatal(why)
			}
			why = err
			time.Sleep(time.Millisecond)
		}
	}
	if r := newClient(t, 2, one(s)).do(add()); r.Number != 2 {
		t.Errorf("the counter of two nodes is %d, want 2", r.Number)
	}
	for ; ; time.Sleep(time.Millisecond) {
		st, err := second.Status(ctx)
		if err == nil && st.Members.Address(1) == "client:1" && len(st.Members.Conf.GetVoters()) == 2 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the second node knows %v", st.Members)
		}
	}
	// However each was started, the least TTL is that of a group.
	if one, two := s.MinTTL(), second.MinTTL(); one != 5*time.Second || two != one {
		t.Errorf("the least TTL of two nodes is %s and %s, want 5 s", one, two)
	}
}

// A node of two gets a new address only if it answers there: at a wrong one the group would
// stand still for ever.
func TestUpdateAsksAtTheNewAddress(t *testing.T) {
	g := newGroup(t, 2)
	newClient(t, 1, g.up).do(add())
	at := g.leader()
	other := g.cfgs[1-at]
	for name, wrong := range map[string]string{"nobody": services.Addr(t), "the leader": services.Proxy(t, g.cfgs[at].Listen).Addr()} {
		g.until("the address where "+name+" is is refused", func(ctx context.Context) bool { // the leader may change meanwhile
			_, err := g.nodes[g.leader()].Members(ctx, replica.Change{Update: []replica.Endpoint{{ID: other.ID, Peer: wrong}}})
			if err == nil {
				t.Fatalf("an address where %s is is taken", name)
			}
			return errors.Is(err, driver.ErrConflict) && strings.Contains(err.Error(), "new address")
		})
	}
	elsewhere := services.Proxy(t, other.Listen).Addr()
	g.until("the node has its new address", func(ctx context.Context) bool {
		_, err := g.nodes[g.leader()].Members(ctx, replica.Change{Update: []replica.Endpoint{{ID: other.ID, Peer: elsewhere}}})
		return err == nil
	})
	newClient(t, 2, g.up).do(add())
}

// A node that is to join and knows nobody could answer nobody: it says so. One that has a
// state knows its group.
func TestJoinNeedsMembers(t *testing.T) {
	_, err := server.New(server.Config{Dir: t.TempDir(), ID: 4, Join: true, Listen: services.Addr(t)})
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "--members") {
		t.Errorf("without members: %v", err)
	}
	cfg := server.Config{Dir: t.TempDir(), Listen: services.Addr(t)}
	if err := start(t, cfg).Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Join = true
	if err := start(t, cfg).Close(); err != nil {
		t.Error(err)
	}
}
