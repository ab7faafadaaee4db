package sim

import (
	"bytes"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

var errNoSpace error = syscall.ENOSPC

// cluster is everything in one run.
type cluster struct {
	*world
	opts    Options
	net     *network
	nodes   []*node
	clients []*client
	callers []*caller
	adders  []*adder
	watched []*simWatch
	check   *checker
	conns   map[replica.Caller]*conn
	nextID  uint64 // of the next node
	disks   uint64 // that took the place of others
	caller  replica.Caller
	reads   map[replica.Caller]*read
	asks    map[replica.Caller]func(replica.Answer)
	machine core.Config // the same on all nodes
	healing bool

	checkEvery time.Duration // between two state checks
	snapEvery  uint64        // entries between two snapshots of a node
	snapPace   int64         // the longest time between two chunks of one

	clusterID uint64 // grows with each restore
	wallOff   int64  // by how many seconds the wall clock is wrong
	backups   [][]byte
}

// conn is a client's connection to a node.
type conn struct {
	id     replica.Caller
	client *client
	node   uint64
	there  pipe
	back   pipe
	closed bool
}

func (c *cluster) newCaller() replica.Caller {
	c.caller++
	return c.caller
}

func (c *cluster) found(founders []uint64) replica.Recovered {
	var ends []replica.Endpoint
	for _, id := range founders {
		ends = append(ends, replica.Endpoint{ID: id, Peer: peersAt(endpoint(id)), Client: endpoint(id)})
	}
	return replica.Bootstrap(c.machine, ends)
}

// addNode makes a node with an empty disk.
func (c *cluster) addNode(id uint64, found replica.Recovered) *node {
	n := &node{c: c, id: id, cluster: c.clusterID, clock: c.clock(), found: found, files: simdisk.New()}
	n.addr, n.home = endpoint(id), id
	c.nodes = append(c.nodes, n)
	return n
}

// node is the one that a number belongs to.
func (c *cluster) node(id uint64) *node {
	for _, n := range c.nodes {
		if n.id == id && !n.mistaken() {
			return n
		}
	}
	return nil
}

// reached is the node to which a message for a number comes: what is at the address at which
// its sender looks for that, or what has a connection to the sender of its own; nil: none.
func (c *cluster) reached(h hello, to uint64) *node {
	for _, n := range c.nodes {
		if n.up && n.id == to && (h.addr == "" || h.addr == n.addr || n.dials(h)) {
			return n
		}
	}
	return nil
}

// deliver brings a message to a node.
func (c *cluster) deliver(from hello, to uint64, data []byte) {
	n := c.reached(from, to)
	if n == nil || !n.hears(from) {
		return
	}
	n.input(func() {
		if err := n.replica.Step(n.now(), data); err != nil && !n.ends(err) {
			c.violate("node %d refuses a message: %v", n.id, err)
		}
	})
}

// toClient sends what a node has for a stream.
func (c *cluster) toClient(id replica.Caller, data []byte) {
	if k := c.conns[id]; k != nil {
		data = bytes.Clone(data) // the node's own until it is asked again
		k.back.send(func() { c.arrive(k, data) })
	}
}

// arrive gives a client what has come over a connection; what comes over one that
// was given up is often late.
func (c *cluster) arrive(k *conn, data []byte) {
	if k.closed && c.chance(0.5) {
		c.after(c.between(0, 3*second), func() { k.client.receive(data) })
		return
	}
	k.client.receive(data)
}

// closeConn ends a connection; the client hears of it if it can.
func (c *cluster) closeConn(id replica.Caller) {
	k := c.conns[id]
	if k == nil {
		return
	}
	delete(c.conns, id)
	k.back.send(func() { k.client.disconnected(k) })
}

func (c *cluster) closeConnsOf(node uint64) {
	for _, k := range c.clients {
		if k.conn != nil && k.conn.node == node {
			c.closeConn(k.conn.id)
		}
	}
}

// leader is a node that leads, and serves; nil if none does.
func (c *cluster) leader() *node {
	for _, n := range c.nodes {
		if n.up && !n.paused && n.replica.Status().Serving {
			return n
		}
	}
	return nil
}
