package sim

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// Promise: "an idle node with 100 live sessions writes no more than its renewals
// and due deadlines need": renewals that come within a tick share a write, and
// without any a bare stamp is written once a minute. A lull of a second costs two
// more syncs, by which the disk vouches for the last record.
func TestIdleNodeWritesLittle(t *testing.T) {
	const minutes = 10
	for _, ttl := range []time.Duration{8 * time.Second, 30 * time.Second, 10 * time.Minute, 24 * time.Hour} {
		c := story(t, 1, 100, ttl)
		c.await(t, "all sessions", func() bool { return c.opened() == 100 })
		c.res.Renewals = 0
		entries, syncs, lulls := c.idle(minutes)
		ticks := int(minutes * 60 * second / tick)
		most := min(c.res.Renewals, ticks)
		if most < minutes {
			most += minutes // nothing else tells the time
		}
		if entries > most {
			t.Errorf("TTL %s: %d entries in %d minutes, %d are needed", ttl, entries, minutes, most)
		}
		if rest := syncs - entries; rest < 0 || rest > 20*(entries/300+1)+2*lulls {
			t.Errorf("TTL %s: %d syncs for %d entries with %d lulls, and a snapshot after every 300", ttl, syncs, entries, lulls)
		}
		if c.opened() != 100 {
			t.Errorf("TTL %s: only %d sessions are left", ttl, c.opened())
		}
		t.Logf("proof: 100 sessions with a TTL of %s, idle for %d minutes: %d renewals, %d entries, %d syncs, %d lulls", ttl, minutes, c.res.Renewals, entries, syncs, lulls)
	}
}

// opened counts the sessions that the node knows.
func (c *cluster) opened() int {
	n := 0
	for _, k := range c.clients {
		if _, ok := c.leader().replica.Machine().Session(k.session.ID()); ok && k.session.Alive() {
			n++
		}
	}
	return n
}

// idle lets minutes pass, and counts entries, syncs, and the lulls: times in which
// nothing but the vote file was written for most of an election timeout.
func (c *cluster) idle(minutes int64) (entries, syncs, lulls int) {
	last := c.now
	wrote := func() {
		if c.now-last > 8*tick {
			lulls++
		}
		last = c.now
	}
	c.nodes[0].faults.Check = func(op simdisk.Op) error {
		if op.Kind == "sync" {
			syncs++
		}
		if op.Kind == "write" && op.Name != "data/vote" {
			wrote()
		}
		return nil
	}
	before := len(c.check.hashes)
	c.run(c.now + minutes*60*second)
	wrote()
	return len(c.check.hashes) - before, syncs, lulls
}

// A deadline costs one write when it is due, and none before.
func TestDeadlineIsOneWrite(t *testing.T) {
	c := story(t, 1, 1, 24*time.Hour)
	call := c.clients[0].ask(core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Value: []byte("x"), Expire: 30 * second}}})
	c.await(t, "the key", answered(call))
	if entries, _, _ := c.idle(1); entries != 1 {
		t.Errorf("%d entries in the minute in which a key expires, want one", entries)
	}
	if r := c.leader().replica.Machine().Read("", &core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyGet, Key: "k"}}}); len(r.Keys) != 1 || len(r.Keys[0].Keys) != 0 {
		t.Errorf("the key is still there: %+v", r)
	}
}
