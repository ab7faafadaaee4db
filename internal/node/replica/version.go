package replica

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A group has a version, that of its machine. Everything that its nodes write into
// the log and into snapshots is of it, so that a node that knows no more can go on,
// and an operator can go back to the program of before. A leader raises it with an
// entry of a newer version, as soon as every member has shown that it supports that.

// Versions are the cluster versions that a node supports.
type Versions struct{ Least, Newest uint8 }

// ErrVersion is the kind of the refusal of what is of a version that a node does not
// support.
var ErrVersion = errors.New("upgrade this node")

// Versions are those that this node supports.
func (n *Node) Versions() Versions { return n.cfg.versions() }

func (c *Config) versions() Versions { return Versions{core.BaseVersion, c.Newest} }

// version is that of the group, as far as this node has applied it; 0: it knows no
// group.
func (n *Node) version() uint8 {
	if len(n.members.Conf.GetVoters()) == 0 {
		return 0
	}
	return n.machine.Version()
}

// supported refuses a machine, or an entry, of a version that is too new.
func (c *Config) supported(what string, version uint8) error {
	if version <= c.Newest {
		return nil
	}
	return fmt.Errorf("replica: %s is of version %d, and node %d supports versions %d to %d: %w", what, version, c.ID, core.BaseVersion, c.Newest, ErrVersion)
}

// Met tells that a peer has shown itself, with its versions and, at the address that the
// group has of it, with its directory; 0: it came from anywhere.
func (n *Node) Met(now int64, id, dir uint64, v Versions) {
	if n.begin(now) && n.members.has(id) {
		n.met[id] = meeting{cmp.Or(dir, n.met[id].dir), v}
	}
}

// meeting is how a member showed itself last.
type meeting struct {
	dir      uint64
	versions Versions
}

// common is the newest version that all members have shown to support; 0: there is one
// that has not shown itself.
func (n *Node) common() uint8 {
	least := n.cfg.Newest
	for _, id := range n.members.all() {
		if id != n.cfg.ID {
			least = min(least, n.met[id].versions.Newest)
		}
	}
	return least
}

// proposeRaise raises the version of the group to the newest that all members
// support. They have to answer now: one that is away may come back as it was before.
func (n *Node) proposeRaise() {
	version := n.common()
	if !n.serving || n.transfer != 0 || version <= n.machine.Version() || n.raised == (raise{n.currentTerm(), version}) || !n.allAnswer() {
		return
	}
	n.number++
	if n.fly(proposal{number: n.number, term: n.currentTerm()}, kindCore, 64, &core.Entry{Now: n.clock.sample(n.now), Version: version}) {
		n.raised = raise{n.currentTerm(), version}
	}
}

// raise is a version that a leader has proposed in its term.
type raise struct {
	term    uint64
	version uint8
}

func (n *Node) allAnswer() bool {
	return !slices.ContainsFunc(n.members.all(), func(id uint64) bool { return !n.answering(id) })
}

// early reports a frame of a newer version that the group is about to take: all members
// support it, or this leader has just begun and has yet to meet them, or another node
// leads. Its caller asks again, as when there is no leader: a group that has just begun is
// of its first version for a moment. That moment ends, since all else in the frame waits
// with it.
func (n *Node) early(f *core.Frame) bool {
	since := f.Since()
	switch {
	case since <= n.machine.Version():
		return false
	case !n.serving:
		return true
	case n.now-n.began <= 2*int64(n.cfg.electionTimeout()):
		return len(n.behind(since, false)) == 0
	}
	return n.common() >= since && n.allAnswer()
}

// behind are the members that are known not to support a version, in order; with unseen
// also those that have not shown themselves yet.
func (n *Node) behind(version uint8, unseen bool) []uint64 {
	list := slices.DeleteFunc(n.members.all(), func(id uint64) bool {
		newest := n.met[id].versions.Newest
		if id == n.cfg.ID {
			newest = n.cfg.Newest
		}
		return newest >= version || newest == 0 && !unseen
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// tooNew refuses what is of a newer version than the group, and says what to do.
func (n *Node) tooNew(since uint8) string {
	text := fmt.Sprintf("this needs version %d, and the group is of version %d: ", since, n.machine.Version())
	behind := n.behind(since, true)
	if len(behind) == 0 {
		return text + "all nodes support it, and the group is about to take it; try again in a moment"
	}
	return text + "upgrade node " + numbers(behind)
}

// tellVersion tells the shell when the version has changed.
func (n *Node) tellVersion() {
	if v := n.version(); v != n.told {
		n.told, n.out.Version = v, v
	}
}
