package sim

import (
	"slices"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// copied is a copy of the disk of a node, as it was at some moment.
type copied struct {
	id    uint64
	conf  string // the members that it knows
	files *simdisk.Disk
}

// copyDisk copies the disk of a node that runs.
func (c *cluster) copyDisk() {
	if n := c.nodes[c.rng.IntN(len(c.nodes))]; n.up && !n.asking && !n.wiped && !n.swapped && n.aged == 0 {
		n.older = &copied{n.id, n.replica.Word().Members.Conf.String(), n.files.Clone()}
	}
}

// putBack starts a node with an older copy of its disk. What it has promised since then it
// does not know, and only a leader that remembers more of it can tell: that is the limit of
// the promise. So the others have to be able to do without it, a majority of the voters beside
// it has all of what it had, and the members are those of the copy.
func (c *cluster) putBack(l *node) {
	conf := l.replica.Word().Members.Conf
	n := c.withCopy(conf.String())
	if n == nil || len(conf.GetVotersOutgoing()) > 0 || c.spare() < 1 || !c.settledMembers(l) {
		return
	}
	applied := n.replica.Status().Applied
	n.crash()
	if c.holders(n, conf.GetVoters()) > len(conf.GetVoters())/2 {
		c.res.Copies++
		n.aged = max(applied, n.kept().last, 1) // it has told others that it has its log to the end
		n.files = n.older.files.Clone()
	}
	c.after(c.between(10*millisecond, 2*second), n.restart)
}

// withCopy is some node of which there is a copy with these members; nil: there is none.
func (c *cluster) withCopy(conf string) *node {
	fit := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool {
		return !n.up || n.wiped || n.flipped || n.aged != 0 || n.older == nil || n.older.id != n.id || n.older.conf != conf
	})
	if len(fit) == 0 {
		return nil
	}
	return fit[c.rng.IntN(len(fit))]
}

// holders are the voters beside a node that have on their disks what it has on its own, and
// something of the term that it has seen, so that they elect nobody in that again.
func (c *cluster) holders(n *node, voters []uint64) (count int) {
	had := n.kept()
	for _, id := range voters {
		if o := c.node(id); o == nil || o == n || o.gone || o.wiped || o.flipped || o.swapped || o.behind() {
			continue
		} else if has := o.kept(); has.term >= had.seen && (has.term > had.term || has.last >= had.last) {
			count++
		}
	}
	return count
}

// kept is what of the log would survive a loss of power.
type kept struct{ last, term, seen uint64 } // seen is the newest term that the node knows

func (n *node) kept() (k kept) {
	s, rec, err := storage.Open(n.files.Crash(func(int) int { return 0 }), "data", diskOptions(n.cluster, n.id, n.wipes))
	if err != nil {
		return k // the disk is full, or damaged
	}
	defer s.Close()
	k = kept{rec.Snapshot.Index, rec.Snapshot.Term, rec.HardState.Term}
	for e, err := range s.Replay(max(rec.First, rec.Last)) {
		if err == nil {
			k.last, k.term = e.Index, e.Term
		}
	}
	return k
}

// behind: the node runs on an older copy of its disk, and has yet to get what it had.
func (n *node) behind() bool {
	if n.aged != 0 && n.up && n.replica.Status().Applied >= n.aged {
		n.aged = 0
	}
	return n.aged != 0
}

// giveUpCopy wipes the node, since it was found out to run on an older copy.
func (n *node) giveUpCopy() {
	n.c.res.Older++
	n.c.after(n.c.between(10*millisecond, 5*second), func() {
		if !n.gone && n.aged != 0 {
			n.c.wipe(n)
		}
	})
}
