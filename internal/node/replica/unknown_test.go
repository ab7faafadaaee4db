package replica_test

import (
	"math"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// A leader whose proposals go out but that hears nothing is overruled; its
// successor commits the proposals, makes a snapshot and frees the log. What the
// old leader gets is the snapshot, which does not tell whose proposals it holds:
// their callers hear that nobody knows, and never that nothing was done.
func TestInstalledSnapshotLeavesOutcomesUnknown(t *testing.T) {
	add := replica.Change{Add: []replica.Endpoint{{ID: 4, Client: "client 4"}}}
	for what, ask := range map[string]func(*trio, *replica.Node, replica.Caller){
		"a frame": func(x *trio, n *replica.Node, c replica.Caller) { n.Submit(x.now, c, opening(9)) },
		"a renewal": func(x *trio, n *replica.Node, c replica.Caller) {
			n.Renew(x.now, c, core.Renewal{Session: core.SessionID{8}})
		},
		"a membership change": func(x *trio, n *replica.Node, c replica.Caller) { n.ChangeMembers(x.now, c, add) },
	} {
		t.Run(what, func(t *testing.T) {
			x := newTrioOf(t, replica.Config{SnapshotEntries: 20, Trailing: 1})
			old := x.nodes[1]
			x.deaf = 1
			ask(x, old, 77)
			x.pump(1)
			x.electAnother()
			x.fillLog(60)
			if got := x.answersOf(old); len(got) > 0 {
				t.Fatalf("before the link heals the caller is told %+v", got)
			}
			x.deaf = 0
			x.tickAll(20)
			if old.Status().SnapshotIndex < 20 {
				t.Fatal("the old leader got no snapshot, so that this test shows nothing")
			}
			got := x.answersOf(old)
			if len(got) != 1 || got[0].Caller != 77 || got[0].Outcome != replica.Unknown {
				t.Errorf("the caller is told %+v, want that the outcome is unknown", got)
			}
			if n := old.Status().Flying; n != 0 {
				t.Errorf("%d proposals of the old leader are still waited for", n)
			}
		})
	}
}

// opening is a frame that opens a session.
func opening(id byte) []byte {
	return core.AppendFrame(nil, &core.Frame{Session: core.SessionID{id}, Attempt: 1, Mark: 1, Commands: []core.Command{open()}})
}

// fillLog has node 2 or 3, whichever leads, commit a number of entries.
func (x *trio) fillLog(entries int) {
	x.t.Helper()
	id := uint64(2)
	if !x.nodes[id].Status().Serving {
		id = 3
	}
	if !x.nodes[id].Status().Serving {
		x.t.Fatal("neither node 2 nor node 3 leads")
	}
	for range entries {
		x.nodes[id].Submit(x.now, math.MaxUint64, opening(8))
		x.pump(id)
	}
}

// tickAll lets time pass on all nodes.
func (x *trio) tickAll(ticks int) {
	for range ticks {
		x.now += tick
		for id := uint64(1); id <= 3; id++ {
			if id == x.gone {
				continue
			}
			x.nodes[id].Tick(x.now)
			x.pump(id)
		}
	}
}

// snapshots makes and carries what a node asks for, at once.
func (x *trio) snapshots(n *replica.Node, out *replica.Output) {
	id := n.Status().ID
	if out.Snapshot != nil {
		x.made[id], x.only[id] = chunksOf(n, out.Snapshot.Index), out.Snapshot.Only
		n.SnapshotSaved(x.now, out.Snapshot.Index, true)
		x.pump(id)
	}
	if x.park {
		x.parked, out.SendSnapshots = append(x.parked, out.SendSnapshots...), nil
	}
	for _, s := range out.SendSnapshots {
		ok := x.nodes[s.To] != nil && s.To != x.deaf
		if ok {
			x.carry(id, s)
		}
		n.SnapshotSent(x.now, s.To, ok)
		x.pump(id)
	}
}

// A snapshot that raft does not want is dropped: it would take as much memory as
// the whole state, and nobody would ever ask for it.
func TestUnwantedSnapshotIsDropped(t *testing.T) {
	x := newTrioOf(t, replica.Config{SnapshotEntries: 20, Trailing: 1})
	x.deaf = 1
	x.electAnother()
	x.fillLog(60)
	x.deaf = 0
	x.tickAll(20)
	old := x.nodes[1]
	if len(x.sent) == 0 || old.Arrivals() != 0 {
		t.Fatalf("%d snapshots were sent to node 1, which keeps %d", len(x.sent), old.Arrivals())
	}
	for _, s := range x.sent { // once more
		wanted, err := old.Arrived(x.now, s.Message, core.New(core.Config{}))
		if wanted || err != nil || old.Arrivals() != 0 {
			t.Errorf("the second copy is wanted: %v, %v; %d machines are kept", wanted, err, old.Arrivals())
		}
	}
}

// The chunks of a snapshot are its own: once another has been installed and a
// later one is being made, it has no more.
func TestChunksAreOfOneSnapshot(t *testing.T) {
	x := newTrioOf(t, replica.Config{SnapshotEntries: 20, Trailing: 1})
	n := x.nodes[1]
	before := n.WantSnapshot(x.now)
	out := n.Output()
	if out.Snapshot == nil || out.Snapshot.Index != before {
		t.Fatalf("no snapshot is begun, %+v", out.Snapshot)
	}
	x.deaf = 1
	x.electAnother()
	x.fillLog(60)
	x.deaf = 0
	x.tickAll(20)
	n.WantSnapshot(x.now)
	if out = n.Output(); out.Snapshot == nil {
		t.Fatal("no later snapshot is begun")
	}
	if c := n.SnapshotNext(before, nil, 1<<20); !c.Last || len(c.Data) > 0 || c.Index != before {
		t.Errorf("the void snapshot goes on with %d bytes", len(c.Data))
	}
	n.SnapshotSaved(x.now, before, true)
	if got := n.Status().SnapshotIndex; got <= before || got >= out.Snapshot.Index {
		t.Errorf("the newest snapshot is at %d", got)
	}
	if c := n.SnapshotNext(out.Snapshot.Index, nil, 1<<20); len(c.Data) == 0 {
		t.Error("the later snapshot has ended with the void one")
	}
}

// carry brings a node's newest snapshot to another.
func (x *trio) carry(from uint64, s replica.SendSnapshot) {
	x.t.Helper()
	x.sent = append(x.sent, s)
	r := core.NewRestorer()
	for _, chunk := range x.made[from] {
		if err := r.Write(chunk); err != nil {
			x.t.Fatal(err)
		}
	}
	m, err := r.Machine()
	if err == nil {
		_, err = x.nodes[s.To].Arrived(x.now, s.Message, m)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.pump(s.To)
}
