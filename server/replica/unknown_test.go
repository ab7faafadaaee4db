package replica_test

import (
	"math"
	"testing"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/server/replica"
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
			x.nodes[id].Tick(x.now)
			x.pump(id)
		}
	}
}

// snapshots makes and carries what a node asks for, at once.
func (x *trio) snapshots(n *replica.Node, out *replica.Output) {
	id := n.Status().ID
	if out.Snapshot != nil {
		x.made[id] = nil
		for done := false; !done; {
			var chunk []byte
			chunk, done = n.SnapshotNext(nil, 1<<20)
			x.made[id] = append(x.made[id], chunk)
		}
		n.SnapshotSaved(x.now, true)
		x.pump(id)
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

// carry brings a node's newest snapshot to another.
func (x *trio) carry(from uint64, s replica.SendSnapshot) {
	x.t.Helper()
	r := core.NewRestorer()
	for _, chunk := range x.made[from] {
		if err := r.Write(chunk); err != nil {
			x.t.Fatal(err)
		}
	}
	m, err := r.Machine()
	if err == nil {
		err = x.nodes[s.To].Arrived(x.now, s.Message, m)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.pump(s.To)
}
