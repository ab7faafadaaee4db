package sim

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// story is a cluster without chance: what happens is told by the test.
func story(t *testing.T, nodes, clients int, ttl time.Duration) *cluster {
	t.Helper()
	t.Cleanup(seedRaft(1))
	c := newCluster(Options{Seed: 1, Nodes: nodes, Clients: clients})
	c.net.loss = 0
	c.nextID = uint64(nodes) + 1
	var founders []uint64
	for id := range uint64(nodes) {
		founders = append(founders, id+1)
	}
	for _, id := range founders {
		c.addNode(id, c.found(founders)).start()
	}
	for id := range uint64(clients) {
		k := &client{c: c, id: id, ttl: ttl, keeps: true}
		c.clients = append(c.clients, k)
		k.input(k.open)
	}
	c.await(t, "a leader", func() bool { return c.leader() != nil })
	return c
}

// await lets time pass until something is so, at most half a minute.
func (c *cluster) await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := c.now + 30*second; !so(); c.run(c.now + 10*millisecond) {
		if c.now > end || c.failed != "" {
			t.Fatalf("waited for %s in vain %s", what, c.failed)
		}
	}
}

// ask submits a command and returns its call.
func (k *client) ask(cmd core.Command) *session.Call {
	o := &op{name: "told by the test"}
	k.input(func() { k.submit(o, cmd) })
	return o.call
}

func answered(c *session.Call) func() bool {
	return func() bool { return c.Outcome == session.Answered }
}

// Promise: 000 "test_lock_survives_leader_failover": "Lock should still be valid".
func TestLockSurvivesLeaderFailover(t *testing.T) {
	c := story(t, 3, 2, 8*time.Second)
	lock := core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "test_lock", Kind: core.Mutex}}}
	first := c.clients[0].ask(lock)
	c.await(t, "the lock", answered(first))
	if first.Result.Code != core.CodeOK {
		t.Fatalf("the first client got code %d", first.Result.Code)
	}
	old := c.leader()
	old.crash()
	c.await(t, "another leader", func() bool { l := c.leader(); return l != nil && l != old })
	second := c.clients[1].ask(lock)
	c.await(t, "an answer from it", answered(second))
	if second.Result.Code != core.CodeHeld || len(second.Result.Holders) != 1 || second.Result.Holders[0].Token != first.Result.Token {
		t.Errorf("the second client got code %d and holders %+v, want the first one's hold with token %d", second.Result.Code, second.Result.Holders, first.Result.Token)
	}
}

// Promise: 000 "Minority should not be able to increment (no quorum)" and
// "Majority can continue".
func TestMinorityOfFiveCannotCountMajorityReachesEleven(t *testing.T) {
	c := story(t, 5, 2, 8*time.Second)
	add := core.Command{Op: core.OpCount, Name: "cnt", Count: core.CountAdd, Unsigned: true, A: 1}
	for range 10 {
		call := c.clients[0].ask(add)
		c.await(t, "a count", answered(call))
	}
	c.partition(map[uint64]bool{4: true, 5: true, c.clients[1].party(): true})
	lost := c.clients[1].ask(add)
	c.run(c.now + 5*second)
	if lost.Outcome == session.Answered {
		t.Errorf("the minority counted to %d", lost.Result.Number)
	}
	call := c.clients[0].ask(add)
	c.await(t, "the majority's count", answered(call))
	if call.Result.Number != 11 {
		t.Errorf("the majority counted to %d, want 11", call.Result.Number)
	}
}

// partition cuts everything between those named and the rest.
func (c *cluster) partition(some map[uint64]bool) {
	var all []uint64
	for _, n := range c.nodes {
		all = append(all, n.id)
	}
	for _, k := range c.clients {
		all = append(all, k.party())
	}
	for _, a := range all {
		for _, b := range all {
			if some[a] != some[b] {
				c.net.sever(simLink{a, b}, 1000*second)
			}
		}
	}
}
