package replica

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Config says which node it is, and its measures.
type Config struct {
	// ID is the node's number; never reused, and never 0.
	ID uint64
	// Tick is how often the shell calls Tick; default 100 ms. ElectionTicks of
	// them without a leader begin an election; default 10.
	Tick          time.Duration
	ElectionTicks int
	// Peer and Client are the node's addresses, for a group that does not know
	// them: while it leads, it notes them in the membership. "": nothing to note.
	Peer, Client string
	// Dir tells the node's directory from every other; 0: it has none that counts.
	Dir uint64
	// Solo: the node has no way to others, so that it refuses to add any.
	Solo bool
	// Rounds is how many entries the leader may have proposed but not applied:
	// more only make smaller batches. Default 2.
	Rounds int
	// TableRows is how many rows of claim tables go to a stream before the client
	// has taken them; default 4,096, about 100 kB.
	TableRows int
	// MaxEntry bounds an entry in bytes; default 1 MiB.
	MaxEntry int
	// MaxQueue bounds in bytes, and MaxCommands in commands, what waits to be
	// proposed; more is refused, and what matters least is refused first, as
	// package admission says. Default 64 MiB and 16,384: more than one write takes,
	// and the work of less than a second on a slow machine.
	MaxQueue    int
	MaxCommands int
	// SnapshotEntries and SnapshotBytes say how much log is applied between two
	// snapshots; default 100,000 entries or 64 MiB.
	SnapshotEntries uint64
	SnapshotBytes   int
	// Trailing is how many entries are kept below a snapshot for followers that
	// lag a little, and TrailingBytes how many bytes of them: whichever is less.
	// Default 10,000 and 16 MiB.
	Trailing      uint64
	TrailingBytes int
	// MinTTL is the shortest session that Open may ask for; default as the members
	// are: 1 s for a node that is the only voter, five election timeouts in a group.
	MinTTL time.Duration
	// Seconds is the Unix time of the start. A new group that [Recovered.Begin] has not
	// moved begins at revision Seconds·2²⁰, so that one that was wiped and made again does
	// not repeat its tokens; 0: at 1.
	Seconds int64
	// Quota is what the machine allows while this node leads; what is 0 stays as
	// it is. A new leader with another Quota puts its own into the log.
	Quota core.Quota
	// Namespaces is how many there may be; no session is opened in another one.
	// A leader counts what it has applied, so that those under way can exceed it.
	// 0: no limit.
	Namespaces int
	// CheckEvery is how often the nodes of the group compare their machines while this
	// one leads; default 10 minutes.
	CheckEvery time.Duration
	// Newest is the newest version of the group that the node supports; 0: that of the
	// program, core.EntryVersion.
	Newest uint8
	// Machine bounds what the machine keeps.
	Machine core.Config
}

func (c Config) filled() (Config, error) {
	def(&c.Tick, 100*time.Millisecond)
	def(&c.ElectionTicks, 10)
	def(&c.Rounds, 2)
	def(&c.TableRows, 4096)
	def(&c.MaxEntry, 1<<20)
	def(&c.MaxQueue, 64<<20)
	def(&c.MaxCommands, 16_384)
	def(&c.SnapshotEntries, 100_000)
	def(&c.SnapshotBytes, 64<<20)
	def(&c.Trailing, 10_000)
	def(&c.TrailingBytes, 16<<20)
	def(&c.CheckEvery, 10*time.Minute)
	def(&c.Newest, core.EntryVersion)
	if c.ID == 0 || c.Tick < 0 || c.ElectionTicks < 2 || c.Rounds < 1 || c.MaxEntry < 1<<10 {
		return c, fmt.Errorf("replica: a node needs an ID, a positive Tick, at least 2 ElectionTicks, a Round and a MaxEntry of 1 KiB")
	}
	return c, nil
}

func (c *Config) electionTimeout() time.Duration { return time.Duration(c.ElectionTicks) * c.Tick }

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
