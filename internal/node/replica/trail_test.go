package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// couple is a node alone, and one that may join it, with perfect disks. What
// snapshots hold goes the way it goes between machines.
type couple struct {
	t       *testing.T
	nodes   map[uint64]*replica.Node
	now     int64
	seq     uint64
	making  uint64 // the newest snapshot that a node asked for
	slow    bool   // a snapshot is begun and not finished
	chunks  [][]byte
	sent    int // snapshots
	told    []replica.Answer
	silent  uint64 // this node gets nothing and says nothing
	fail    int    // so many snapshots do not get through
	failed  int
	guess   int                 // appends that a node refused after that
	removed map[uint64][]uint64 // the numbers that each node refuses
}

func newCouple(t *testing.T, cfg replica.Config) *couple {
	t.Helper()
	c := &couple{t: t, nodes: map[uint64]*replica.Node{}, removed: map[uint64][]uint64{}}
	c.start(1, cfg, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	return c
}

func (c *couple) start(id uint64, cfg replica.Config, rec replica.Recovered) {
	c.t.Helper()
	cfg.ID = id
	n, err := replica.New(cfg, rec)
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[id] = n
	c.settle()
}

// put has node 1 apply entries of about 1 KiB.
func (c *couple) put(entries int) {
	c.t.Helper()
	put := core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Value: make([]byte, 1000)}}}
	for range entries {
		c.seq++
		put.Seq = c.seq
		f := core.Frame{Session: core.SessionID{7}, Attempt: c.seq, Mark: c.seq, Commands: []core.Command{put}}
		if c.seq == 1 {
			f.Commands = []core.Command{open(), put}
		}
		c.nodes[1].Submit(c.now, 5, core.AppendFrame(nil, &f))
		c.settle()
	}
}

// settle writes and delivers until nothing is left to do.
func (c *couple) settle() {
	c.t.Helper()
	for busy := true; busy; {
		busy = false
		for id := range uint64(len(c.nodes)) {
			n := c.nodes[id+1]
			busy = c.act(n, n.Output()) || busy
			if err := n.Err(); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func (c *couple) act(n *replica.Node, out replica.Output) (busy bool) {
	c.told = append(c.told, out.Answers...)
	if len(out.Removed) > 0 {
		c.removed[n.ID()] = out.Removed
	}
	if len(out.Writes) > 0 {
		n.Written(c.now, out.Writes[len(out.Writes)-1].ID)
		busy = true
	}
	for _, m := range out.Messages {
		if to := c.nodes[m.To]; to != nil && m.To != c.silent && n.ID() != c.silent {
			busy = true
			if c.failed > 0 && refusal(m.Data) {
				c.guess++
			}
			if err := to.Step(c.now, m.Data); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	if out.Snapshot != nil {
		c.making = out.Snapshot.Index
	}
	if out.Snapshot != nil && !c.slow {
		c.save(n, c.making)
		busy = true
	}
	for _, s := range out.SendSnapshots {
		c.send(s)
		busy = true
	}
	return busy
}

func (c *couple) save(n *replica.Node, index uint64) {
	c.chunks = chunksOf(n, index)
	n.SnapshotSaved(c.now, index, true)
}

// refusal says whether a message is the answer to an append that did not fit.
func refusal(data []byte) bool {
	m := &raftpb.Message{}
	return proto.Unmarshal(data, m) == nil && m.GetType() == raftpb.MsgAppResp && m.GetReject()
}

func (c *couple) send(s replica.SendSnapshot) {
	c.t.Helper()
	if c.failed < c.fail {
		c.failed++
		c.nodes[1].SnapshotSent(c.now, s.To, false)
		return
	}
	restorer := core.NewRestorer()
	for _, chunk := range c.chunks {
		if err := restorer.Write(chunk); err != nil {
			c.t.Fatal(err)
		}
	}
	machine, err := restorer.Machine()
	if err == nil {
		_, err = c.nodes[s.To].Arrived(c.now, s.Message, machine)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.sent++
	c.nodes[1].SnapshotSent(c.now, s.To, true)
}

// A node alone has no other that could want what is applied, so it keeps little of
// the log in memory, however far the next snapshot is.
func TestLogOfANodeAlone(t *testing.T) {
	c := newCouple(t, replica.Config{})
	c.put(2000)
	if kept := c.nodes[1].InMemory(); kept > 300 {
		t.Errorf("%d of 2000 entries of 1 KiB are kept in memory, want at most 300", kept)
	}
}

// While a snapshot is made, raft will want to know the term where it was begun,
// and what came since is let go of when it is done.
func TestLogWhileASnapshotIsMade(t *testing.T) {
	c := newCouple(t, replica.Config{SnapshotBytes: 100 << 10, TrailingBytes: 10 << 10})
	c.slow = true
	c.put(2000)
	n := c.nodes[1]
	if kept := n.InMemory(); kept < 1000 {
		t.Errorf("%d of 2000 entries are in memory while a snapshot is made, want those since it was begun", kept)
	}
	c.slow = false
	c.save(n, c.making)
	c.settle()
	c.put(1000)
	if kept := n.InMemory(); kept > 300 {
		t.Errorf("%d entries of 1 KiB are kept in memory after the snapshot, want at most 300", kept)
	}
}

// A node that joins one that was alone gets a snapshot made after it was added, and
// the log from there on.
func TestJoinAfterTheLogIsGone(t *testing.T) {
	c := newCouple(t, replica.Config{})
	c.put(2000)
	c.start(2, replica.Config{}, replica.Joining(core.Config{}))
	c.nodes[1].ChangeMembers(c.now, 9, replica.Change{Add: []replica.Endpoint{{ID: 2}}})
	c.ticks(20)
	c.put(1000)
	one, two := c.nodes[1].Status(), c.nodes[2].Status()
	if c.sent != 1 || two.Applied != one.Applied || two.Hash != one.Hash {
		t.Errorf("after %d snapshots node 2 is at %d, node 1 at %d; want one snapshot, and both at the same", c.sent, two.Applied, one.Applied)
	}
	if kept := c.nodes[1].InMemory(); kept < 1000 {
		t.Errorf("%d entries are in memory, want the 1000 that a slow follower may still want", kept)
	}
}

// A snapshot that did not get through is sent again, as often as need be, and nothing is
// sent meanwhile that would only fit behind it.
func TestFailedSnapshotIsSentAgain(t *testing.T) {
	for _, fail := range []int{1, 20} {
		c := newCouple(t, replica.Config{})
		c.fail = fail
		c.put(2000)
		c.start(2, replica.Config{}, replica.Joining(core.Config{}))
		c.nodes[1].ChangeMembers(c.now, 9, replica.Change{Add: []replica.Endpoint{{ID: 2}}})
		c.ticks(10 * (fail + 1))
		one, two := c.nodes[1].Status(), c.nodes[2].Status()
		if c.failed != fail || c.sent != 1 || two.Hash != one.Hash {
			t.Errorf("%d snapshots failed, %d were sent, node 2 is at %d, node 1 at %d; want %d, one, and both at the same", c.failed, c.sent, two.Applied, one.Applied, fail)
		}
		if c.guess > 0 {
			t.Errorf("after a snapshot that failed node 2 was sent %d appends that only fit behind it", c.guess)
		}
	}
}

func (c *couple) ticks(n int) {
	for range n {
		c.now += tick
		for id := range uint64(len(c.nodes)) {
			c.nodes[id+1].Tick(c.now)
		}
		c.settle()
	}
}
