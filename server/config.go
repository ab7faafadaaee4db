package server

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/address"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// Config says what to run. Only Dir is needed for a single node.
type Config struct {
	// Dir is where the node keeps its state; made if it is not there.
	Dir string
	// ClusterID is the group's number, the same on all its nodes; default: the
	// one that Dir is of, 1 if that is new.
	ClusterID uint64
	// ID is the node's number, never reused in a group; default: the one that
	// Dir is of, 1 if that is new.
	ID uint64
	// Founders are the members that a new group begins with, this node among
	// them; none: this node alone. A new group begins when all of them are there:
	// none of them votes before. Once Dir has a state it knows better.
	Founders []Member
	// Join: a new node waits to be added to a group that exists; Founders are
	// the members that it can answer to until it knows them all.
	Join bool
	// Listen is the address for other nodes; "": there are none.
	Listen string
	// Client is where clients find this node, for a group that does not know: it
	// tells the other nodes, which pass calls on to it. "": nothing to tell.
	Client string
	// PeerTLS authenticates nodes to each other, in both directions. nil: only
	// loopback addresses are allowed.
	PeerTLS *tls.Config
	// PeerCAs are the authorities that sign the nodes' certificates, asked with each connection,
	// so that it can change while the node runs; nil: ClientCAs and RootCAs of
	// PeerTLS.
	PeerCAs func() *x509.CertPool
	// Tick is the unit of the node's clock, default 100 ms; an election begins
	// after ten of them without a leader, and no session may have a TTL of less
	// than MinTTL, default five election timeouts (1 s as long as the node is the
	// only voter). Give a MinTTL to all nodes of a group or to none: the leader's counts.
	Tick   time.Duration
	MinTTL time.Duration
	// SoftLimit is how many bytes Dir may take before nothing new is accepted;
	// 0: no limit. The log and two snapshots are part of it: give several times the state,
	// and not less than 256 MiB.
	SoftLimit int64
	// Reserve is how many bytes have to be free on the disk of Dir, beside those of
	// another snapshot, or nothing new is accepted; default 64 MiB, negative: none.
	// Releases, keepalives, the ends of sessions and reads go on, and everything else as
	// soon as there is room again.
	Reserve int64
	// Limits bound what clients may take up.
	Limits Limits
	// NoReplace: a node that lost its directory waits until an operator replaces it
	// (holdfast member replace), and one with damaged files does not start. Default: it
	// moves damaged files aside and asks the group for a new number itself, which then
	// forgets the old one.
	NoReplace bool
	// Moved: Dir was moved here, its node had stopped before and has not run since, and nothing of it is left at the old place. A
	// node of a group does not start without that on a copy of its directory, such as one that was moved to another disk, also
	// if that is at the same path.
	//
	// Danger: if the other directory is used again, what was acknowledged can be lost.
	Moved bool
	// Notice is told what an operator should know and no call returns: a peer that
	// was refused, a founder that is missing, nodes that differ while a third is away, a disk that is nearly full. It
	// must not block; the same text comes at most once a minute. nil: it is dropped.
	Notice func(error)
	// CheckEvery is how often the nodes of the group compare their states while this one
	// leads; 0: every 10 minutes. One that differs from the majority gets the state of
	// another; without a majority nothing is granted until an operator ends that.
	CheckEvery time.Duration
	// SnapshotEntries is how many log entries lie between two snapshots; default
	// 100,000. After 64 MiB of log there is one in any case.
	SnapshotEntries uint64

	host   *host.Host // nil: the real machine
	former uint64     // the number that Dir was started with, if its group gave it another; else 0
}

func init() { host.Accept(func(c *Config, h *host.Host) { c.host = h }) }

// files is where Dir is.
func (c *Config) files() storage.FS {
	if c.host == nil || c.host.Files == nil {
		return storage.OS{}
	}
	return c.host.Files.(storage.FS)
}

// options are those of the node's directory.
func (c *Config) options(salt uint64) storage.Options {
	o := storage.Options{ClusterID: c.ClusterID, NodeID: c.ID, Salt: salt, SoftLimit: c.SoftLimit, Reserve: max(0, c.Reserve)}
	if c.host != nil {
		o.SegmentSize = c.host.SegmentSize
	}
	return o
}

func (c Config) filled() (Config, error) {
	if c.Dir == "" {
		return c, driver.Errorf("start server", "", fs.ErrInvalid, "Config.Dir is empty: name a directory for the node's state")
	}
	if c.host == nil {
		c.host = host.Here
	}
	limits, err := c.Limits.filled()
	if err != nil {
		return c, err
	}
	c.Limits = limits
	// What is wrong with Dir is told when it is opened.
	cluster, id, _ := storage.Owner(c.files(), c.Dir)
	c.ClusterID = cmp.Or(c.ClusterID, cluster, 1)
	former, _ := storage.Former(c.files(), c.Dir)
	if err := c.transplanted(id, former); err != nil {
		return c, err
	}
	c.former = former
	if former != 0 && (c.ID == former || c.ID == 0) {
		c.ID, c.Join = id, true // it was started as one, and the group let it in as another
	}
	if c.Join && c.ID == 0 && id == 0 {
		return c, driver.Errorf("start server", c.Dir, fs.ErrInvalid, "a node that is to join (--join) needs a number that no node of its group has, or had: Config.ID (--id)")
	}
	c.ID = cmp.Or(c.ID, id, 1)
	if err := cmp.Or(c.misplaced(), c.lonesome()); id == 0 && err != nil {
		return c, err
	}
	c.Reserve = cmp.Or(c.Reserve, storage.DefaultReserve)
	if c.Tick == 0 {
		c.Tick = 100 * time.Millisecond
	}
	if c.Tick < time.Millisecond || c.MinTTL < 0 || c.CheckEvery < 0 {
		return c, driver.Errorf("start server", c.Dir, fs.ErrInvalid, "a Tick of %s, a MinTTL of %s or a CheckEvery of %s makes no sense", c.Tick, c.MinTTL, c.CheckEvery)
	}
	if len(c.Founders) == 0 && !c.Join {
		c.Founders = []Member{{ID: c.ID, Peer: c.Listen, Client: c.Client}}
	}
	return c, c.checkFounders()
}

// Member is a node of a group: its number, and where other nodes and clients find it.
type Member struct {
	ID           uint64
	Peer, Client string
}

// founders are the members that a new group begins with, as the group knows them.
func (c *Config) founders() []replica.Endpoint {
	all := make([]replica.Endpoint, len(c.Founders))
	for i, m := range c.Founders {
		all[i] = m.endpoint()
	}
	return all
}

func (m Member) endpoint() replica.Endpoint {
	return replica.Endpoint{ID: m.ID, Peer: m.Peer, Client: m.Client}
}

// self is this node as its founders are told of it.
func (c *Config) self() Member {
	self := Member{ID: c.ID}
	for _, e := range c.Founders {
		if e.ID == c.ID {
			self = e
		}
	}
	self.Peer, self.Client = cmp.Or(self.Peer, c.Listen), cmp.Or(self.Client, c.Client)
	return self
}

// findable is an address if others can find the node there, else "".
func findable(addr string) string {
	if address.Findable(addr) {
		return addr
	}
	return ""
}

// itself reports whether a number is this very node's: under the one that it had before its group gave it another, it
// would be found by itself, and told that it is not that node.
func (c *Config) itself(id uint64) bool { return id == c.ID || id == c.former }

// here reports whether this node is at an address: what is looked for there is not found.
func (c *Config) here(addr string) bool { return address.Same(addr, c.Listen) }

// elsewhere are the addresses at which operators say that the other nodes are.
func (c *Config) elsewhere() map[uint64]string {
	at := addresses(c.founders())
	maps.DeleteFunc(at, func(id uint64, addr string) bool { return c.itself(id) || c.here(addr) })
	return at
}

// at is the address at which this node answers others: Listen, or if that stands for all of a machine, the address that
// Founders have for its number. Of a node that was started with the number of another, that is the address of the other.
func (c *Config) at() string { return cmp.Or(findable(c.Listen), c.self().Peer) }

// alone reports whether the node needs nobody's vote but its own.
func (c *Config) alone() bool { return len(c.Founders) == 1 && !c.Join }

// checkFounders refuses lists of members that make no sense, also of a node that joins: what it
// cannot use it would wait for without a word.
func (c *Config) checkFounders() error {
	if self := c.self(); !c.Join && self.Peer != "" && !address.Findable(self.Peer) {
		return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "this node would be at %s (--peer, or --members), at which no other node could find this one: name one of its addresses there, with a port", self.Peer)
	}
	seen, at := map[uint64]bool{}, map[string]uint64{}
	for _, e := range c.Founders {
		other, taken := at[address.Canonical(e.Peer)]
		switch {
		case e.ID == 0 || e.ID > replica.MaxNumber || seen[e.ID]:
			return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "member %d: every member needs a number of its own, from 1 to %d", e.ID, replica.MaxNumber)
		case e.Peer != "" && !address.Findable(e.Peer):
			return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "member %d would be at %s, at which no other node could find it: name one of its addresses, with a port", e.ID, e.Peer)
		case e.Peer != "" && taken:
			return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "members %d and %d would both be at %s: name the address of each", other, e.ID, e.Peer)
		}
		seen[e.ID], at[address.Canonical(e.Peer)] = true, e.ID
	}
	switch {
	case !seen[c.ID] && !c.Join:
		return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "node %d is not among the founders: if it is to join their group, start it with --join (Config.Join), else name it among them (--members, Config.Founders)", c.ID)
	case (len(seen) > 1 || c.Join) && c.Listen == "":
		return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "a node of a group needs an address for the others: Config.Listen (--peer)")
	}
	return c.crossed()
}

// crossed refuses an address for clients at which a node listens for the others.
func (c *Config) crossed() error {
	for _, e := range append(slices.Clone(c.Founders), c.self()) {
		for _, other := range append(slices.Clone(c.Founders), c.self()) {
			if address.Same(e.Client, other.Peer) {
				return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "at %s clients would find node %d, and other nodes node %d: a node has two addresses, one for each", e.Client, e.ID, other.ID)
			}
		}
	}
	return nil
}

// misplaced refuses to begin as one founder at the address of another: the group would take
// this node for the one that has the number, and might take that one out.
func (c *Config) misplaced() error {
	for _, e := range c.Founders {
		if !c.Join && e.ID != c.ID && address.Same(e.Peer, c.Listen) && !address.Same(c.self().Peer, c.Listen) {
			return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "this node would be number %d, and listen for other nodes at %s, which --members has for node %d: is it node %[3]d (--id %[3]d), or is --peer wrong?", c.ID, c.Listen, e.ID)
		}
	}
	return nil
}

// transplanted refuses to start the directory of node id where --members has another: the group would look for each
// of the two where the other is. To which number the group has given another, former, its command line stays as it was. One
// that joins may be told of a node that was at its address before.
func (c *Config) transplanted(id, former uint64) error {
	i := slices.IndexFunc(c.Founders, func(e Member) bool { return address.Same(e.Peer, c.Listen) })
	elsewhere := slices.ContainsFunc(c.Founders, func(e Member) bool { return e.ID == id })
	switch {
	case id == 0 || c.ID != 0 && c.ID != id && c.ID != former: // that is refused when it is opened
	case i < 0 || c.Founders[i].ID == id || c.Founders[i].ID == former || c.Join && !elsewhere:
	default:
		return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "this is the directory of node %d, and --members has %s, where it would listen for other nodes (--peer), for node %d: name the directory of node %[3]d (--data), "+
			"or node %[1]d at its address in --members. What was restored (snapshot restore) is a new cluster: start it without the --members of the old one", id, c.Listen, c.Founders[i].ID)
	}
	return nil
}

// lonesome refuses to join a group of which no other node is known.
func (c *Config) lonesome() error {
	if !c.Join || c.knowsOthers() {
		return nil
	}
	return driver.Errorf("start server", c.Dir, fs.ErrInvalid, "a node that is to join (--join) needs members, beside itself, that it can answer to until it knows them all: name some in Config.Founders (--members)")
}

// name is the node in errors.
func (c *Config) name() string { return fmt.Sprintf("node %d in %s", c.ID, c.Dir) }
