package sim

import (
	"bytes"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// restoreWait is longer than any client can believe in a hold.
const restoreWait = 10 * time.Second

// wall is the wall clock, in Unix seconds. Only the revision that a cluster
// begins with depends on it.
func (c *cluster) wall() int64 { return 1_800_000_000 + c.now/second + c.wallOff }

// wallClock is the same to the nanosecond.
func (c *cluster) wallClock() time.Time { return time.Unix(c.wall(), c.now%second) }

// stepWall sets the wall clock, by at most ten days in either direction.
func (c *cluster) stepWall() {
	c.res.WallSteps++
	c.wallOff += c.between(-10*86400, 10*86400)
}

// backUp saves some node now and then, often what it has applied just then.
func (c *cluster) backUp() {
	c.after(c.between(2*second, 15*second), func() {
		n := c.nodes[c.rng.IntN(len(c.nodes))]
		if c.chance(0.5) {
			n.input(func() { n.replica.WantSnapshot(n.now()) })
		}
		c.after(c.between(0, second), func() { c.save(n) })
		if !c.healing {
			c.backUp()
		}
	})
}

// save keeps a node's newest snapshot, among the last few.
func (c *cluster) save(n *node) {
	if !n.up || n.paused {
		return
	}
	r, err := n.disk.OpenSnapshot(n.replica.Status().SnapshotIndex)
	if err != nil {
		return // a node that has yet to join has none
	}
	defer r.Close()
	var b bytes.Buffer
	if err := r.Save(&b); err != nil {
		c.violate("node %d cannot be saved: %v", n.id, err)
		return
	}
	c.backups = append(c.backups, b.Bytes())
	c.backups = c.backups[max(0, len(c.backups)-4):]
}

// restore begins anew from some backup.
func (c *cluster) restore() {
	if len(c.backups) == 0 {
		return
	}
	backup := c.backups[c.rng.IntN(len(c.backups))]
	wait := time.Duration(0)
	if c.chance(0.5) {
		wait = restoreWait
	}
	c.restoreFrom(backup, wait)
}

// restoreFrom stops all nodes for ever and begins anew from a backup on another,
// to which others are added then.
func (c *cluster) restoreFrom(backup []byte, wait time.Duration) {
	id := c.nextID
	files, from, err := c.restored(id, backup, wait)
	if err != nil {
		c.violate("a backup cannot be restored: %v", err)
		return
	}
	begins := uint64(c.wall())<<20 | uint64(c.now%second)<<20/uint64(second)
	if begins <= from.Revision {
		begins = from.Revision + 1<<40
	}
	if begins <= c.check.rev {
		return // the clock is behind what was done since the backup: nobody promises anything
	}
	c.res.Restores++
	c.nextID++
	c.clusterID++
	for _, n := range c.nodes {
		n.crash()
		n.gone = true
	}
	c.nodes = nil
	n := c.addNode(id, replica.Joining(c.machine))
	n.files = files
	c.check.forget(wait)
	n.start()
	if c.failed == "" {
		c.check.begin(n.replica.Machine())
		c.grow(c.clusterID)
	}
}

// restored makes the disk of a node that begins from a backup.
func (c *cluster) restored(id uint64, backup []byte, wait time.Duration) (*simdisk.Disk, disk.Origin, error) {
	files := simdisk.New()
	err := files.MkdirAll("backup")
	f, err2 := files.Create("backup/file")
	if err := errors.Join(err, err2); err != nil {
		return nil, disk.Origin{}, err
	}
	if _, err := f.WriteAt(backup, 0); err != nil {
		return nil, disk.Origin{}, err
	}
	from, err := disk.Restore(files, "backup/file", disk.Start{
		Dir: "data", Options: diskOptions(c.clusterID+1, id, 0),
		Self: replica.Endpoint{ID: id, Peer: peersAt(endpoint(id)), Client: endpoint(id)}, Clock: c.wallClock(), Wait: wait,
	})
	return files, from, err
}

func diskOptions(cluster, id, wipes uint64) storage.Options {
	return storage.Options{ClusterID: cluster, NodeID: id, Salt: id*0x9e37 + wipes<<32, SegmentSize: 64 << 10}
}

// grow adds nodes to a cluster that began anew until it is as large as the one
// before.
func (c *cluster) grow(cluster uint64) {
	c.after(c.between(100*millisecond, second), func() {
		if c.healing || c.clusterID != cluster {
			return
		}
		if l := c.leader(); l == nil || len(l.replica.Status().Members.Conf.GetVoters()) < c.opts.Nodes {
			c.changeMembers()
			c.grow(cluster)
		}
	})
}
