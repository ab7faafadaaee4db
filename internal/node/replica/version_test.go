package replica_test

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// supports are the versions of a node that supports up to one.
func supports(newest uint8) replica.Versions {
	return replica.Versions{Least: core.BaseVersion, Newest: newest}
}

// round lets a tick pass on node 1.
func (x *trio) round() {
	x.now += tick
	x.nodes[1].Tick(x.now)
	x.settle()
}

// The version of a group is raised when all its members have shown that they support
// it, and answer; not before.
func TestVersion_IsRaisedByAll(t *testing.T) {
	x := newTrio(t)
	lead := x.nodes[1]
	want := func(when string, version uint8) {
		t.Helper()
		x.round()
		x.round()
		if got := lead.Status().Version; got != version {
			t.Errorf("%s the group is of version %d, want %d", when, got, version)
		}
	}
	lead.Submit(x.now, 7, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{9}, Commands: []core.Command{open(), count()}}))
	want("with nodes that have not shown themselves", 2)
	lead.Met(x.now, 2, 22, supports(core.EntryVersion))
	want("with one of them", 2)
	lead.Met(x.now, 3, 33, supports(2))
	want("with a node of before", 2)
	x.hold = true
	for range 30 { // nobody answers any more, and the leader has yet to notice
		lead.Met(x.now, 3, 33, supports(core.EntryVersion))
		x.now += tick / 2
	}
	x.round()
	x.hold = false
	x.mail = nil
	if st := lead.Status(); st.Flying != 0 || st.Version != 2 {
		t.Errorf("with nodes that do not answer %d proposals fly", st.Flying)
	}
	for range 60 {
		x.round()
	}
	for id, n := range x.nodes {
		if st := n.Status(); st.Version != core.EntryVersion {
			t.Errorf("node %d has version %d, want %d", id, st.Version, core.EntryVersion)
		}
	}
	if got := lead.Status().Versions[3]; got != supports(core.EntryVersion) {
		t.Errorf("node 3 supports %v", got)
	}
}

// A group of one is of its node's newest version from its first entry on.
func TestVersion_OfOne(t *testing.T) {
	for _, newest := range []uint8{core.BaseVersion, core.EntryVersion} {
		n, err := replica.New(replica.Config{ID: 1, Newest: newest, Seconds: 1e9}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
		if err != nil {
			t.Fatal(err)
		}
		told := uint8(0)
		for out := n.Output(); len(out.Writes) > 0; out = n.Output() {
			told = max(told, out.Version)
			n.Written(0, out.Writes[len(out.Writes)-1].ID)
		}
		st := n.Status()
		if st.Version != newest || told != newest || !st.Serving || st.Applied > 3 {
			t.Errorf("a node that supports version %d: the group is of version %d, the shell is told %d, after %d entries", newest, st.Version, told, st.Applied)
		}
	}
}

// What is above the version of the group is refused, and the refusal names the nodes
// to upgrade. Once the group has been raised it is taken.
func TestVersion_AboveIsRefused(t *testing.T) {
	since := core.OpSince[core.OpCount]
	core.OpSince[core.OpCount] = 3
	defer func() { core.OpSince[core.OpCount] = since }()
	x := newTrio(t)
	lead := x.nodes[1]
	lead.Met(x.now, 2, 22, supports(3))
	lead.Met(x.now, 3, 33, supports(2))
	x.round()
	frame := core.AppendFrame(nil, &core.Frame{Session: core.SessionID{9}, Commands: []core.Command{open(), count()}})
	ask := func() replica.Answer {
		lead.Submit(x.now, 7, frame)
		x.round()
		x.round()
		if len(x.replied) != 1 {
			t.Fatalf("%d answers", len(x.replied))
		}
		defer func() { x.replied = nil }()
		return x.replied[0]
	}
	a := ask()
	if a.Outcome != replica.NotDone || a.Code != core.CodeUnsupported || !strings.HasSuffix(a.Text, "version 2: upgrade node 3") {
		t.Errorf("a command of version 3 is answered %v %d %q", a.Outcome, a.Code, a.Text)
	}
	lead.Met(x.now, 3, 33, supports(3))
	x.round()
	x.round()
	if a := ask(); a.Outcome != replica.Done {
		t.Errorf("a command of version 3 in a group of version 3 is answered %v %q", a.Outcome, a.Text)
	}
}

// A node that does not support the version of what comes stops before it is applied:
// an entry, a snapshot, or its own directory.
func TestVersion_NodeStops(t *testing.T) {
	x := newTrioOf(t, replica.Config{}, func(c *replica.Config) {
		if c.ID != 1 {
			c.Newest = 2
		}
	})
	lead, old := x.nodes[1], x.nodes[3]
	lead.Met(x.now, 2, 22, supports(3)) // both are downgraded in this moment
	lead.Met(x.now, 3, 33, supports(3))
	x.round()
	err := old.Err()
	if !errors.Is(err, replica.ErrVersion) || !strings.Contains(err.Error(), "is of version 3, and node 3 supports versions 2 to 2") {
		t.Errorf("a node that finds an entry of the next version says: %v", err)
	}
	if st := old.Status(); st.Version != 2 || lead.Err() != nil {
		t.Errorf("it has version %d; the leader says %v", st.Version, lead.Err())
	}
	m := &raftpb.Message{Type: raftpb.MsgSnap.Enum(), From: new(uint64(1)), To: new(uint64(2)),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(9)), Term: new(uint64(9))}}}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	joining, err := replica.New(replica.Config{ID: 2, Newest: 2}, replica.Joining(core.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	if wanted, err := joining.Arrived(x.now, data, raisedMachine(t)); wanted || !errors.Is(err, replica.ErrVersion) || !errors.Is(joining.Err(), replica.ErrVersion) {
		t.Errorf("a snapshot of the next version: %v, %v, %v", wanted, err, joining.Err())
	}
	rec := replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}})
	rec.Machine = raisedMachine(t)
	if _, err := replica.New(replica.Config{ID: 1, Newest: 2}, rec); !errors.Is(err, replica.ErrVersion) {
		t.Errorf("a directory of the next version: %v", err)
	}
}

func raisedMachine(t *testing.T) *core.Machine {
	t.Helper()
	m := core.New(core.Config{})
	if err := m.Apply(core.AppendEntry(nil, &core.Entry{Version: 3}), nil); err != nil {
		t.Fatal(err)
	}
	return m
}

// A quota that only a newer version knows is in force before anything else of that
// version: no tick lies between.
func TestVersion_QuotaComesWithIt(t *testing.T) {
	x := newTrioOf(t, replica.Config{Quota: core.Quota{LimitKeys: 2}})
	for id := uint64(2); id <= 3; id++ {
		x.nodes[1].Met(x.now, id, 0, supports(core.EntryVersion))
	}
	for x.nodes[1].Status().Version < 3 {
		x.round()
	}
	if q := x.nodes[1].Machine().Quota(); q.LimitKeys != 2 {
		t.Errorf("the quota is %+v", q)
	}
}

// What a group cannot take while a member is away is refused, and not put off for ever:
// what is in the same frame would wait with it.
func TestVersion_MemberThatIsAway(t *testing.T) {
	x := newTrio(t)
	lead := x.nodes[1]
	lead.Met(x.now, 2, 22, supports(core.EntryVersion))
	for range 60 {
		x.round()
	}
	x.replied = nil
	take := core.Command{Op: core.OpLimit, Name: "l", Ask: &core.LimitAsk{Op: core.LimitTake, Cost: 1}}
	lead.Submit(x.now, 8, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{9}, Attempt: 1, Mark: 1, Commands: []core.Command{open(), take}}))
	x.settle()
	if len(x.replied) != 1 || x.replied[0].Code != core.CodeUnsupported || !strings.Contains(x.replied[0].Text, "upgrade node 3") {
		t.Errorf("with a member that was never seen a limiter is answered %+v", x.replied)
	}
}
