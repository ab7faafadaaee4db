package replica_test

import (
	"cmp"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
)

const tick = int64(100e6)

// trio is three nodes with perfect disks, and messages that go where the test
// lets them.
type trio struct {
	t       *testing.T
	nodes   map[uint64]*replica.Node
	mail    []replica.Message
	out     map[uint64]replica.Output // of the last round, for the leader's frames
	made    map[uint64][][]byte       // the newest snapshot of each node
	sent    []replica.SendSnapshot    // that arrived
	more    []replica.Caller          // streams that have to ask for their next page
	replied []replica.Answer          // of node 1
	now     int64
	hold    bool   // messages stay in mail
	deaf    uint64 // this node gets no message, and is heard by all
	stuck   uint64 // the disk of this node does nothing
	gone    uint64 // this node has stopped
	drop    func(replica.Message) bool
	park    bool // snapshots of node 1 stay in parked
	parked  []replica.SendSnapshot
	only    map[uint64]bool // nodes that made a snapshot in the place of all others
	doubts  map[uint64]bool // nodes of which the next start is to know that they differ
}

func newTrio(t *testing.T) *trio { return newTrioOf(t, replica.Config{}) }

func newTrioOf(t *testing.T, cfg replica.Config, each ...func(*replica.Config)) *trio {
	t.Helper()
	return newTrioFrom(t, func(ends []replica.Endpoint) replica.Recovered { return replica.Bootstrap(core.Config{}, ends) }, cfg, each...)
}

func newTrioFrom(t *testing.T, from func([]replica.Endpoint) replica.Recovered, cfg replica.Config, each ...func(*replica.Config)) *trio {
	t.Helper()
	x := &trio{t: t, nodes: map[uint64]*replica.Node{}, out: map[uint64]replica.Output{}, made: map[uint64][][]byte{}, only: map[uint64]bool{}, doubts: map[uint64]bool{}}
	ends := []replica.Endpoint{{ID: 1, Client: "client 1"}, {ID: 2, Client: "client 2"}, {ID: 3, Client: "client 3"}}
	for _, e := range ends {
		cfg.ID, cfg.MinTTL = e.ID, 1
		own := cfg
		for _, f := range each {
			f(&own)
		}
		n, err := replica.New(own, from(ends))
		if err != nil {
			t.Fatal(err)
		}
		x.nodes[e.ID] = n
	}
	for range 60 {
		x.now += tick
		x.nodes[1].Tick(x.now)
		x.settle()
	}
	if !x.nodes[1].Status().Serving {
		t.Fatal("node 1 does not lead")
	}
	return x
}

// settle delivers and writes until nothing is left to do. It returns what node 1
// sent to streams.
func (x *trio) settle() (frames []session.Message) {
	x.t.Helper()
	for busy := true; busy; {
		busy = false
		for id := uint64(1); id <= 3; id++ {
			out := x.nodes[id].Output()
			x.mail = append(x.mail, out.Messages...)
			if id == 1 {
				x.replied = append(x.replied, out.Answers...)
			}
			for _, f := range out.Frames {
				frames = append(frames, x.decode(f.Data)...)
				if f.More {
					x.more = append(x.more, f.Stream)
				}
			}
			if len(out.Writes) > 0 {
				x.nodes[id].Written(x.now, out.Writes[len(out.Writes)-1].ID)
				busy = true
			}
		}
		if x.hold {
			continue
		}
		mail := x.mail
		x.mail = nil
		for _, m := range mail {
			busy = true
			if err := x.nodes[m.To].Step(x.now, m.Data); err != nil && x.nodes[m.To].Err() == nil {
				x.t.Fatal(err)
			}
		}
	}
	return frames
}

func (x *trio) decode(data []byte) (all []session.Message) {
	for len(data) > 0 {
		m, rest, err := session.DecodeMessage(data)
		if err != nil {
			x.t.Fatal(err)
		}
		all, data = append(all, m), rest
	}
	return all
}

func kinds(frames []session.Message) (all []session.MessageKind) {
	for _, m := range frames {
		all = append(all, m.Kind)
	}
	return all
}

func attach(id core.SessionID, stream uint64) []byte {
	return session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: id, Stream: stream})
}

func frame(id core.SessionID, stream uint64, cmds ...core.Command) []byte {
	body := core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: cmds})
	return session.AppendMessage(nil, &session.Message{Kind: session.KindFrame, Session: id, Stream: stream, Body: body})
}

func open() core.Command { return core.Command{Op: core.OpOpen, TTL: 30e9} }

func count() core.Command {
	return core.Command{Op: core.OpCount, Seq: 1, Name: "n", Count: core.CountAdd, A: 1}
}

// A reply that is older than the claim table must not follow it: the client
// would take its old news for the newest.
func TestFramesWaitForTheTable(t *testing.T) {
	x := newTrio(t)
	lead, id := x.nodes[1], core.SessionID{7}
	x.hold = true
	for _, m := range [][]byte{attach(id, 1), frame(id, 1, open(), count())} {
		if err := lead.Receive(x.now, 5, m); err != nil {
			t.Fatal(err)
		}
	}
	if early := x.settle(); len(early) > 0 {
		t.Errorf("before the quorum was asked the client got %v", kinds(early))
	}
	if s := lead.Status(); s.Flying+s.Waiting > 0 {
		t.Errorf("%d proposals fly and %d frames wait although the table has not been sent", s.Flying, s.Waiting)
	}
	x.hold = false
	got := kinds(x.settle())
	if len(got) != 2 || got[0] != session.KindTable || got[1] != session.KindReply {
		t.Errorf("the client got %v, want the table and then the reply", got)
	}
}

// A long answer comes in several replies, each with whole results and none left out.
func TestLongReplyComesInPieces(t *testing.T) {
	x := newTrio(t)
	id, value := core.SessionID{7}, make([]byte, 60<<10)
	put := core.Command{Op: core.OpTxn, Seq: 1, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Value: value}}}
	x.receive(5, attach(id, 1), frame(id, 1, open(), put))
	var gets []core.Command
	for seq := uint64(2); seq <= 60; seq++ {
		gets = append(gets, core.Command{Op: core.OpTxn, Seq: seq, Then: []core.KeyOp{{Kind: core.KeyGet, Key: "k"}}})
	}
	next := uint64(2)
	for _, m := range x.receive(5, frame(id, 1, gets...)) {
		var r core.Reply
		if err := core.DecodeReply(m.Body, &r); err != nil {
			t.Fatal(err)
		}
		if len(m.Body) > 1<<20 || r.Session != id || r.Attempt != 1 || r.Deadline == 0 {
			t.Errorf("a reply of %d bytes to attempt %d, deadline %d", len(m.Body), r.Attempt, r.Deadline)
		}
		for i := range r.Results {
			if r.Results[i].Seq != next || len(r.Results[i].Keys) != 1 {
				t.Fatalf("result %d with %d keys, want %d", r.Results[i].Seq, len(r.Results[i].Keys), next)
			}
			next++
		}
	}
	if next != 61 {
		t.Errorf("results up to %d, want all 59", next-1)
	}
}

// What came over an older stream of the session is void.
func TestOlderStreamIsVoid(t *testing.T) {
	x := newTrio(t)
	lead, id := x.nodes[1], core.SessionID{7}
	for caller, m := range map[replica.Caller][]byte{5: attach(id, 2)} {
		if err := lead.Receive(x.now, caller, m); err != nil {
			t.Fatal(err)
		}
	}
	x.settle()
	for _, m := range [][]byte{attach(id, 1), frame(id, 1, open(), count())} {
		if err := lead.Receive(x.now, 6, m); err != nil {
			t.Fatal(err)
		}
	}
	if got := kinds(x.settle()); len(got) > 0 {
		t.Errorf("an older stream was answered with %v", got)
	}
	if _, known := lead.Machine().Session(id); known {
		t.Error("a frame of an older stream opened the session")
	}
}

// Callers of a leader that is deposed are told apart: what waited did not
// happen; what flew is settled when its fate is known.
func TestDeposedLeaderTellsCallersApart(t *testing.T) {
	x := newTrio(t)
	old := x.nodes[1]
	x.hold = true
	cmd := core.AppendFrame(nil, &core.Frame{Session: core.SessionID{9}, Attempt: 1, Mark: 1, Commands: []core.Command{open()}})
	var answers []replica.Answer
	for caller := replica.Caller(1); caller <= 3; caller++ {
		old.Submit(x.now, caller, cmd)
		answers = append(answers, old.Output().Answers...)
	}
	x.mail = nil // nobody hears of it
	for range 30 {
		x.now += tick
		old.Tick(x.now)
		out := old.Output()
		answers = append(answers, out.Answers...)
	}
	if old.Status().Leading {
		t.Fatal("a leader without a quorum still leads")
	}
	waited, flew := 0, 0
	for _, a := range answers {
		if a.Outcome != replica.NotDone {
			t.Errorf("caller %d was answered %d", a.Caller, a.Outcome)
		}
		waited++
	}
	flew = old.Status().Flying
	if waited+flew != 3 || flew == 0 || waited == 0 {
		t.Errorf("%d callers were answered and %d proposals are undecided, of 3", waited, flew)
	}
	x.hold = false
	x.electAnother()
	for _, a := range x.answersOf(old) {
		if a.Outcome != replica.NotDone {
			t.Errorf("caller %d, whose proposal was overruled, was answered %d", a.Caller, a.Outcome)
		}
		flew--
	}
	if flew != 0 {
		t.Errorf("%d callers never got an answer", flew)
	}
}

// electAnother lets node 2 take over.
func (x *trio) electAnother() {
	for range 60 {
		x.now += tick
		x.nodes[2].Tick(x.now)
		x.nodes[3].Tick(x.now)
		for _, id := range []uint64{2, 3} {
			x.pump(id)
		}
	}
}

// pump writes and sends for one node; node 1's answers are kept.
func (x *trio) pump(id uint64) {
	out := x.nodes[id].Output()
	kept := x.out[id]
	kept.Answers, kept.Reads = append(kept.Answers, out.Answers...), append(kept.Reads, out.Reads...)
	kept.Notice, kept.Jumped = cmp.Or(out.Notice, kept.Notice), kept.Jumped || out.Jumped
	x.out[id] = kept
	if slices.ContainsFunc(out.Writes, func(w replica.Write) bool { return w.Doubt }) {
		x.doubts[id] = true
	}
	if len(out.Writes) > 0 && id != x.stuck {
		x.nodes[id].Written(x.now, out.Writes[len(out.Writes)-1].ID)
		defer x.pump(id)
	}
	for _, m := range out.Messages {
		if m.To == x.deaf || m.To == x.gone || x.nodes[m.To] == nil || x.drop != nil && x.drop(m) {
			continue
		}
		if err := x.nodes[m.To].Step(x.now, m.Data); err != nil {
			x.t.Fatal(err)
		}
		x.pump(m.To)
	}
	x.snapshots(x.nodes[id], &out)
}

func (x *trio) answersOf(n *replica.Node) []replica.Answer {
	x.pump(n.Status().ID)
	return x.out[n.Status().ID].Answers
}

// A bad frame is refused before anything is proposed.
func TestSubmitRefuses(t *testing.T) {
	n, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	settle(n)
	n.Submit(0, 1, []byte("garbage"))
	n.Submit(0, 2, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{1}, Attempt: 1, Mark: 1, Commands: []core.Command{{Op: core.OpOpen, TTL: 1e9 - 1}}}))
	n.SetFull(true)
	n.Submit(0, 3, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{1}, Attempt: 1, Mark: 1, Commands: []core.Command{{Seq: 1, Op: core.OpAcquire, Name: "m"}}}))
	answers := settle(n)
	want := []core.Code{core.CodeInvalid, core.CodeInvalid, core.CodeFull}
	if len(answers) != 3 {
		t.Fatalf("%d answers, want 3", len(answers))
	}
	for i, a := range answers {
		if a.Outcome != replica.NotDone || a.Code != want[i] || a.Text == "" {
			t.Errorf("caller %d: outcome %d, code %d, %q", a.Caller, a.Outcome, a.Code, a.Text)
		}
	}
	if err := n.Step(0, []byte("garbage")); err == nil {
		t.Error("garbage from a peer was taken")
	}
	if err := n.Receive(0, 1, []byte("garbage")); err == nil {
		t.Error("garbage from a client was taken")
	}
}

func FuzzDecodeMembership(f *testing.F) {
	m := replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1, Peer: "a:1", Client: "b:2"}, {ID: 2}}).Snapshot.Conf
	b, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := replica.DecodeMembership(b)
		if err != nil {
			return
		}
		if _, err := m.Encode(); err != nil {
			t.Errorf("%x decodes to what does not encode: %v", b, err)
		}
	})
}

// FuzzReplay applies any bytes as a log entry: an error, and no change.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{1, 1})
	f.Add(append([]byte{1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, core.AppendEntry(nil, &core.Entry{Now: 5})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := core.New(core.Config{})
		before := m.Hash()
		if err := replica.Replay(m, &raftpb.Entry{Data: b}); err != nil && (m.Hash() != before || m.Now() != 0) {
			t.Errorf("%x is refused as %v, and changed the machine", b, err)
		}
	})
}
