package sim

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// founding is what the shell of a node knows about directories.
type founding struct {
	cfg      replica.Config
	founders []replica.Endpoint // it asks these on an empty disk; nil: none
	asking   bool               // it has yet to hear what it is
	proposal uint64
	dir      uint64 // 0: nobody looks at directories
	wipes    uint64
	wiped    bool // what it has promised is lost
	damaged  bool // files of it that were damaged are moved aside
	removed  []uint64
	upgraded bool    // by its second start
	addr     string  // where others find it, whatever its number is
	home     uint64  // the number of its command line
	flag     uint64  // the one by which it was started instead, by mistake; 0: none
	claim    string  // where it says that it is; "": where others find it
	older    *copied // of its disk
	aged     uint64  // what it had applied when an older copy was put back; 0: none was, or it has caught up
	swapped  bool    // its disk is that of another
}

// directory is that of a disk, in a run with operators.
func (c *cluster) directory(d *disk.Disk) uint64 {
	if !c.opts.Operators {
		return 0
	}
	return d.Directory()
}

// addFounder starts a founder. In a run with operators it asks the others first.
func (c *cluster) addFounder(id uint64, founders []uint64) {
	n := c.addNode(id, c.found(founders))
	n.upgraded = (c.opts.Seed+id)%3 == 0
	if c.opts.Operators && len(founders) > 1 {
		n.found = replica.Joining(c.machine)
		for _, f := range founders {
			n.founders = append(n.founders, replica.Endpoint{ID: f, Peer: peersAt(endpoint(f)), Client: endpoint(f)})
		}
	}
	n.start()
}

// hello is what a node says at a handshake: its number, what it knows of the other, and
// which versions it supports.
type hello struct {
	id, dir, known uint64
	shown          uint64 // the directory that counts as that of the number
	versions       replica.Versions
	from           *node
	life           int
	addr           string // where it looks for the other; "": anywhere
}

func (n *node) greet(to uint64) hello {
	return hello{id: n.id, dir: n.dir, known: n.known(to), versions: n.replica.Versions(), from: n, life: n.life, addr: n.address(to)}
}

// address is where a node looks for another, in a run with operators.
func (n *node) address(of uint64) string {
	if n.dir == 0 {
		return ""
	}
	members := n.replica.Word().Members
	return members.Address(of)
}

// newest is the newest version that a node supports. One founder of three, on the
// average, is upgraded when it is started for the second time.
func (n *node) newest() uint8 {
	if n.life == 0 && n.upgraded {
		return core.BaseVersion
	}
	return core.EntryVersion
}

// known is the directory that belongs to a number, as this node knows it.
func (n *node) known(id uint64) uint64 {
	if n.dir == 0 {
		return 0
	}
	members := n.replica.Word().Members
	dir := members.Directory(id)
	if dir == replica.Removed && !slices.Contains(n.removed, id) {
		return 0
	}
	return dir
}

// hears is a handshake: each side refuses a directory that its number does not
// belong to, and a node that is refused as a stranger stops.
func (n *node) hears(h hello) bool {
	if !n.up || n.asking {
		return false
	}
	back := hello{id: n.id, dir: n.dir, known: n.known(h.id), versions: n.replica.Versions(), from: n, life: n.life}
	if h.addr == n.addr { // else what is there comes by itself, and shows nothing
		back.shown = n.dir
	}
	refused := n.refuses(h)
	if h.from.up && h.from.life == h.life {
		refused = h.from.refuses(back) || refused
	}
	if refused || !n.up {
		return false
	}
	n.input(func() { n.replica.Met(n.now(), h.id, h.shown, h.versions) })
	if h.from.up && h.from.life == h.life {
		h.from.input(func() { h.from.replica.Met(h.from.now(), back.id, back.shown, back.versions) })
	}
	return n.up
}

// refuses is one side of a handshake. What is not the node that this one knows by its number
// is heard on nothing, also not on this one; and another group, which knows another node by
// this number, may be behind an address.
func (n *node) refuses(h hello) bool {
	known, self := n.known(h.id), n.known(n.id)
	switch {
	case known != 0 && known != h.dir:
		return true
	case h.known == 0 || h.known == n.dir:
		return false
	case known != 0 || self == 0 || self != n.dir: // believed
		n.strange(h.known)
	}
	return true
}

// strange stops a node that the group does not know by its directory. One that was
// removed is started again: those that it meets then may need its vote to learn of
// the removal themselves.
func (n *node) strange(known uint64) {
	n.c.res.Strangers++
	if n.dir != 0 && len(n.replica.Word().Members.Conf.GetVoters()) == 0 {
		n.plead() // it joins, and was wiped
		return
	}
	aged := n.behind()
	if n.crash(); aged {
		n.giveUpCopy()
		return
	}
	if n.gone = known != replica.Removed; !n.gone {
		n.c.after(n.c.between(second, 10*second), n.restart)
	}
}

// ask asks all other founders, and decides by what has come after a while.
func (n *node) ask() {
	words, life := map[uint64]replica.Word{}, n.life
	for _, e := range n.founders {
		i := slices.IndexFunc(n.c.nodes, func(o *node) bool { return peersAt(o.addr) == e.Peer })
		if i < 0 {
			continue
		}
		o := n.c.nodes[i]
		n.c.net.once(n.id, o.id, func() {
			if !o.up || o.paused {
				return
			}
			w := o.replica.Word()
			w.Proposal = o.proposal
			n.c.net.once(o.id, n.id, func() { words[e.ID] = w })
		})
	}
	n.c.after(n.c.between(10*millisecond, 300*millisecond), func() {
		if n.life == life && n.up {
			n.decide(words)
		}
	})
}

func (n *node) decide(words map[uint64]replica.Word) {
	f := replica.Found(replica.Endpoint{ID: n.id, Dir: n.dir}, n.founders, words)
	if n.damaged {
		f = f.Only("its files were damaged")
	}
	n.proposal = f.Proposal
	switch {
	case f.Stranger != nil:
		n.plead()
	case f.Join:
		n.asking = false
	case f.Found != nil:
		n.become(replica.Bootstrap(n.c.machine, f.Found))
	default:
		n.ask()
	}
}

// become makes the node a founder.
func (n *node) become(rec replica.Recovered) {
	n.add(disk.Job{Run: func(d *disk.Disk) error { return d.Found(rec) }, Then: n.must(func() {
		r, err := replica.New(n.cfg, rec)
		if err != nil {
			n.c.violate("node %d cannot found a group: %v", n.id, err)
			return
		}
		n.replica, n.asking, n.wiped = r, false, false
	})})
}

// plead asks the leader to let the node in under another number, until it is. A
// node that pleads hears nothing.
func (n *node) plead() {
	n.asking = true
	life := n.life
	if l := n.c.leader(); l != nil && l != n {
		n.c.net.once(n.id, l.id, func() { n.pleadTo(l, life) })
	}
	n.c.after(n.c.between(300*millisecond, 2*second), func() {
		if n.life == life && n.up {
			n.plead()
		}
	})
}

// pleadTo asks a leader, which looks first whether the node is where it says. The answer is to the life in which
// the node has asked.
func (n *node) pleadTo(l *node, life int) {
	addr := cmp.Or(n.claim, n.addr)
	if !n.c.sits(n, addr) {
		return
	}
	id := n.c.newCaller()
	n.c.asks[id] = func(a replica.Answer) {
		if a.Outcome != replica.Done {
			return
		}
		n.c.net.once(l.id, n.id, func() {
			if n.life == life && n.up {
				n.renumber(binary.LittleEndian.Uint64(a.Data))
			}
		})
	}
	at := replica.Endpoint{Peer: peersAt(addr), Client: addr}
	l.input(func() { l.replica.Place(l.now(), id, at, true) })
}

// renumber starts the node anew under the number that it was given.
func (n *node) renumber(number uint64) {
	n.c.res.Replaced++
	n.add(disk.Job{Run: func(d *disk.Disk) error { return d.Renumber(number) }, Then: func(err error) {
		if err != nil {
			n.failed(err)
			return
		}
		n.crash()
		if other := n.c.node(number); other != nil { // started by hand, and not added yet
			other.crash()
			other.gone, other.id = true, clientBase-number
		}
		n.c.nextID = max(n.c.nextID, number+1)
		n.id, n.flag, n.claim, n.found, n.wiped = number, 0, "", replica.Joining(n.c.machine), false
		n.restart()
	}})
}

// newDisk numbers the disks that take the place of others: no two have the same directory.
func (c *cluster) newDisk() uint64 {
	c.disks++
	return c.disks
}

// wipe takes a node's disk away and starts it by its usual command line.
func (c *cluster) wipe(n *node) {
	c.res.Wipes++
	n.crash()
	n.files, n.wiped, n.flipped, n.damaged, n.id = simdisk.New(), true, false, false, n.home
	n.flag, n.claim, n.older, n.aged = 0, "", nil, 0
	n.wipes = c.newDisk()
	c.after(c.between(10*millisecond, 2*second), n.restart)
}

// moveAside has a node with damaged files begin with nothing, as the server does.
func (c *cluster) moveAside(n *node) {
	if _, err := storage.MoveAside(n.files, "data"); err != nil {
		c.violate("node %d cannot move its damaged files aside: %v", n.id, err)
		return
	}
	n.wiped, n.flipped, n.damaged, n.id = true, false, true, cmp.Or(n.flag, n.home)
	n.older, n.aged = nil, 0
	n.wipes = c.newDisk()
	c.after(c.between(10*millisecond, 2*second), n.restart)
}

// wipeEarly takes a disk while the group is being founded, at most one.
func (c *cluster) wipeEarly() {
	if len(c.nodes) > 1 && c.chance(0.5) {
		n := c.nodes[c.rng.IntN(len(c.nodes))]
		c.after(c.between(0, 2*second), func() { c.takeDisk(n) })
	}
}

// takeDisk takes the disk of a node, and starts it by the right command line or by another's.
func (c *cluster) takeDisk(n *node) {
	if other := c.nodes[c.rng.IntN(len(c.nodes))]; other.home != n.home && c.chance(0.3) {
		c.mistake(n, other)
		return
	}
	c.wipe(n)
}

// loseDisk takes the disk of a node that the others can do without, often of one
// that has acknowledged what a third has not, and when the leader goes down too.
func (c *cluster) loseDisk(l *node) {
	n := c.nodes[c.rng.IntN(len(c.nodes))]
	if c.spare() < 1 || n.gone || n.swapped || n.moved() || !c.settledMembers(l) {
		return
	}
	c.takeDisk(n)
	if l != n && c.chance(0.5) {
		c.crash(l)
	}
}

// allIn: no node waits to be let in where the group expects one.
func (c *cluster) allIn(l *node) {
	if n := c.waits(l); n != nil {
		c.violate("node %d at %s still waits to be let in", n.id, n.addr)
	}
}

// waits is a node that waits to be let in where the group expects one; nil: none does.
func (c *cluster) waits(l *node) *node {
	members := l.replica.Word().Members
	for _, n := range c.nodes {
		expected := slices.ContainsFunc(members.Endpoints, func(e replica.Endpoint) bool { return e.Peer == peersAt(n.addr) })
		if n.up && n.asking && expected && n.finds() {
			return n
		}
	}
	return nil
}

// finds: a founder that the node can ask has a state.
func (n *node) finds() bool {
	return n.founders == nil || slices.ContainsFunc(n.c.nodes, func(o *node) bool {
		known := slices.ContainsFunc(n.founders, func(e replica.Endpoint) bool { return e.Peer == peersAt(o.addr) })
		return known && o.up && !o.asking
	})
}

// settledMembers: all voters that run have the leader's members, so that those that
// the others can do without are known.
func (c *cluster) settledMembers(l *node) bool {
	conf := l.replica.Word().Members.Conf
	for _, id := range conf.GetVoters() {
		if n := c.node(id); n == nil || !n.up || n.replica.Word().Members.Conf.String() != conf.String() {
			return false
		}
	}
	return true
}
