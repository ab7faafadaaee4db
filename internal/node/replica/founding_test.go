package replica_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

var founders = []replica.Endpoint{{ID: 1, Peer: "a"}, {ID: 2, Peer: "b"}, {ID: 3, Peer: "c"}}

// vacant is the word of a node with an empty directory.
func vacant(id, dir, proposal uint64) replica.Word {
	return replica.Word{Node: id, Dir: dir, Proposal: proposal, Members: replica.Joining(core.Config{}).Snapshot.Conf}
}

func words(list ...replica.Word) map[uint64]replica.Word {
	all := map[uint64]replica.Word{}
	for _, w := range list {
		all[w.Node] = w
	}
	return all
}

// proposes is what node 1 with directory 11 proposes to nodes with these.
func proposes(t *testing.T, two, three uint64) uint64 {
	t.Helper()
	f := replica.Found(replica.Endpoint{ID: 1, Dir: 11}, founders, words(vacant(2, two, 0), vacant(3, three, 0)))
	if f.Proposal == 0 || f.Found != nil {
		t.Fatalf("among empty nodes that propose nothing: %+v", f)
	}
	return f.Proposal
}

// A founder begins only when all are there, all are empty, and all propose the
// same directories.
func TestFoundersAgree(t *testing.T) {
	self := replica.Endpoint{ID: 1, Dir: 11}
	p := proposes(t, 22, 33)
	if p == proposes(t, 22, 34) {
		t.Error("another directory makes no other proposal")
	}
	if f := replica.Found(self, founders, words(vacant(2, 22, p))); f.Found != nil || !strings.Contains(f.Waiting, "node 3 does not answer at c") {
		t.Errorf("without node 3: %+v", f)
	}
	if f := replica.Found(self, founders, nil); !strings.Contains(f.Waiting, "node 2 does not answer at b, node 3 does not answer at c: a new group") {
		t.Errorf("alone: %+v", f)
	}
	if f := replica.Found(self, founders, words(vacant(2, 22, p), vacant(3, 33, p+1))); f.Found != nil || !strings.Contains(f.Waiting, "node 3") {
		t.Errorf("node 3 proposes something else: %+v", f)
	}
	f := replica.Found(self, founders, words(vacant(2, 22, p), vacant(3, 33, p)))
	if len(f.Found) != 3 || f.Found[0].Dir != 11 || f.Found[2] != (replica.Endpoint{ID: 3, Peer: "c", Dir: 33}) {
		t.Errorf("all agree: %+v", f)
	}
	if got := replica.Bootstrap(core.Config{}, f.Found).Snapshot.Conf.Founding; got != p {
		t.Errorf("the group begins with founding %x, want %x", got, p)
	}
}

// A founder that meets a state founds with it, joins, or is a stranger.
func TestFounderMeetsAState(t *testing.T) {
	f := replica.Found(replica.Endpoint{ID: 1, Dir: 11}, founders, words(vacant(2, 22, proposes(t, 22, 33)), vacant(3, 33, proposes(t, 22, 33))))
	state := replica.Word{Node: 2, Dir: 22, Members: replica.Bootstrap(core.Config{}, f.Found).Snapshot.Conf}
	meets := func(dir uint64) replica.Founding {
		b, err := state.Encode()
		if err != nil {
			t.Fatal(err)
		}
		w, err := replica.DecodeWord(b)
		if err != nil {
			t.Fatal(err)
		}
		return replica.Found(replica.Endpoint{ID: 1, Dir: dir}, founders, words(w))
	}
	if got := meets(11); len(got.Found) != 3 || got.Found[0].Dir != 11 {
		t.Errorf("the founding that it agreed to: %+v", got)
	}
	if got := meets(12); !errors.Is(got.Stranger, replica.ErrStranger) || !strings.Contains(got.Stranger.Error(), "node 1 by another directory") {
		t.Errorf("with another directory: %+v", got)
	}
	state.Members.Endpoints = state.Members.Endpoints[:2]
	if got := meets(11); !got.Join {
		t.Errorf("the group has changed since: %+v", got)
	}
	state.Members.Endpoints, state.Members.Used = state.Members.Endpoints[1:], []uint64{1}
	if got := meets(11); !errors.Is(got.Stranger, replica.ErrStranger) || !strings.Contains(got.Stranger.Error(), "was removed") {
		t.Errorf("it was removed: %+v", got)
	}
	state.Members.Used = nil
	if got := meets(11); !errors.Is(got.Stranger, replica.ErrStranger) {
		t.Errorf("a group of before, which knows no directories: %+v", got)
	}
}

// A word that is cut off or of a newer program is an error.
func TestDecodeWord(t *testing.T) {
	w := vacant(2, 22, 5)
	b, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(b) - 1 {
		if _, err := replica.DecodeWord(b[:i]); err == nil && i < 36 {
			t.Errorf("%d bytes of %d decode", i, len(b))
		}
	}
	b[0]++
	if _, err := replica.DecodeWord(b); err == nil {
		t.Error("a word of a newer form decodes")
	}
}

// A node without a state does not vote.
func TestEmptyNodeDoesNotVote(t *testing.T) {
	n, err := replica.New(replica.Config{ID: 2}, replica.Joining(core.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []raftpb.MessageType{raftpb.MsgPreVote, raftpb.MsgVote} {
		m := &raftpb.Message{Type: kind.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(5)), LogTerm: new(uint64(4)), Index: new(uint64(9))}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Step(1, b); err != nil {
			t.Fatal(err)
		}
		if out := n.Output(); len(out.Messages) > 0 || len(out.Writes) > 0 {
			t.Errorf("a %s is answered: %+v", kind, out)
		}
	}
}

// A node on an older copy of its directory stops when a leader has its word for more.
func TestOlderCopyStops(t *testing.T) {
	n, err := replica.New(replica.Config{ID: 2}, replica.Bootstrap(core.Config{}, founders))
	if err != nil {
		t.Fatal(err)
	}
	m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(5)), Commit: new(uint64(9))}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Step(1, b); !errors.Is(err, replica.ErrStranger) || !strings.Contains(err.Error(), "entry 9, and its log ends at 1") {
		t.Errorf("the node says %v", err)
	}
}

// A removed node is refused only when the removal is known to be committed on disk.
func TestRemovalIsToldWhenDurable(t *testing.T) {
	c := grown(t)
	c.done(removing(3))
	if len(c.removed) > 0 {
		t.Errorf("%v are refused before anything was written after the removal", c.removed)
	}
	c.ticks(4)
	for id := uint64(1); id <= 2; id++ {
		if got := c.removed[id]; !slices.Equal(got, []uint64{3}) {
			t.Errorf("%v are refused by node %d in the end, want node 3", got, id)
		}
	}
}

// A change of any kind is soon known to be committed on the disks of all, also where nobody asks for anything: a node that
// crashes goes by the members that its disk knows, and may need the vote of one that is lost since.
func TestChangesAreKnownOnAllDisks(t *testing.T) {
	c := newCouple(t, replica.Config{Dir: 11})
	c.ticks(2)
	c.start(2, replica.Config{Dir: 22}, replica.Joining(core.Config{}))
	c.done(adding(2))
	c.nodes[1].Met(c.now, 2, 22, replica.Versions{})
	c.ticks(20)
	c.done(promoting(2))
	if !c.nodes[1].Status().Changing {
		t.Error("a change is told to be known on the disk before anything was written after it")
	}
	c.ticks(4)
	for id := uint64(1); id <= 2; id++ {
		if c.nodes[id].Status().Changing {
			t.Errorf("after a crash node %d would not know that node 2 votes", id)
		}
	}
}

// A directory that comes with a new node is noted once, and belongs to its number
// from then on.
func TestDirectoriesAreNoted(t *testing.T) {
	c := newCouple(t, replica.Config{Dir: 11})
	c.ticks(2)
	c.start(2, replica.Config{Dir: 22}, replica.Joining(core.Config{}))
	c.done(adding(2))
	c.ticks(20)
	c.refused(promoting(2), core.CodeConflict, "yet to note the directory")
	for _, dir := range []uint64{22, 23} {
		c.nodes[1].Met(c.now, 2, dir, replica.Versions{})
		c.ticks(2)
	}
	c.done(replica.Change{Update: []replica.Endpoint{{ID: 2, Peer: "moved", Dir: 24}}})
	c.ticks(2)
	for id := uint64(1); id <= 2; id++ {
		m := c.nodes[id].Status().Members
		if m.Directory(1) != 11 || m.Directory(2) != 22 || m.Endpoints[1].Peer != "moved" {
			t.Errorf("node %d knows %+v", id, m.Endpoints)
		}
	}
	c.done(promoting(2))
	c.done(removing(2))
	if m := c.nodes[1].Status().Members; m.Directory(2) != replica.Removed {
		t.Errorf("of a removed node %x is known", m.Directory(2))
	}
}
