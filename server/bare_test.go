//go:build unix

package server_test

import (
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/transport"
	"github.com/holdfast-io/holdfast/server"
)

// bare is the baseline of the benchmarks: etcd's raft on the node's own log and
// transport, with group commit and a state machine that does nothing.
type bare struct {
	raft  *raft.RawNode
	log   *raft.MemoryStorage
	store *storage.Store
	peers *transport.Transport // nil: alone

	mu    sync.Mutex
	inbox []proposed
	mail  [][]byte
	stop  bool
	wake  chan struct{}
	ended chan struct{}

	waiting []proposed // taken from the inbox
	flying  map[uint64][]chan<- struct{}
	number  uint64
	rounds  int
}

type proposed struct {
	data []byte
	done chan<- struct{}
}

func init() { roles["bare"] = bareChild }

// bareChild is one of a group that does not lead.
func bareChild() error {
	go untilOrphaned()
	cfg, err := childConfig()
	if err != nil {
		return err
	}
	n, err := openBare(cfg)
	if err != nil {
		return err
	}
	<-n.ended
	return nil
}

// newBare starts one and returns when it leads.
func newBare(b *testing.B, cfg server.Config) *bare {
	b.Helper()
	n, err := openBare(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(n.close)
	led := make(chan struct{}, 1)
	n.post(func() { n.inbox = append(n.inbox, proposed{nil, led}) })
	select {
	case <-led:
	case <-time.After(2 * patience):
		b.Fatal("the first node does not lead")
	}
	return n
}

// openBare starts one as a node with this configuration would be. The first one
// leads, since it has the shortest election.
func openBare(cfg server.Config) (*bare, error) {
	store, _, err := storage.Open(storage.OS{}, cfg.Dir, storage.Options{ClusterID: 1, NodeID: cfg.ID})
	if err != nil {
		return nil, err
	}
	n := &bare{store: store, log: raft.NewMemoryStorage(), wake: make(chan struct{}, 1), ended: make(chan struct{}), flying: map[uint64][]chan<- struct{}{}}
	if err := errors.Join(n.begin(cfg.Founders), n.listen(&cfg)); err != nil {
		return nil, err
	}
	id := cfg.ID
	n.raft, err = raft.NewRawNode(&raft.Config{ID: id, ElectionTick: int(10 * id * id * id), HeartbeatTick: 1, Storage: n.log, Applied: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256, Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}})
	if err != nil {
		return nil, err
	}
	go n.run(id == 1)
	return n, nil
}

// begin gives it a log with these voters.
func (n *bare) begin(voters []server.Member) error {
	conf := &raftpb.ConfState{}
	for _, e := range voters {
		conf.Voters = append(conf.Voters, e.ID)
	}
	meta := &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}
	return errors.Join(n.log.ApplySnapshot(&raftpb.Snapshot{Metadata: meta}), storeBegin(n.store))
}

func (n *bare) listen(cfg *server.Config) error {
	if cfg.Listen == "" {
		return nil
	}
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	n.peers, err = transport.New(transport.Config{Cluster: 1, ID: cfg.ID,
		Deliver:     func(_ uint64, m []byte) { n.post(func() { n.mail = append(n.mail, m) }) },
		Unreachable: func(uint64) {},
		Snapshot:    func(uint64, []byte, func() ([]byte, error)) error { return errors.ErrUnsupported },
	}, ln)
	if err != nil {
		return err
	}
	addrs := map[uint64]string{}
	for _, e := range cfg.Founders {
		addrs[e.ID] = e.Peer
	}
	n.peers.SetPeers(addrs)
	return nil
}

// storeBegin makes index 1 the beginning of the log.
func storeBegin(s *storage.Store) error {
	w, err := s.NewSnapshot(storage.SnapshotMeta{Index: 1, Term: 1})
	if err != nil {
		return err
	}
	return s.InstallSnapshot(w, storage.Batch{HardState: storage.HardState{Term: 1, Commit: 1}})
}

func (n *bare) close() {
	n.post(func() { n.stop = true })
	<-n.ended
	if n.peers != nil {
		n.peers.Close()
	}
	n.store.Close()
}

func (n *bare) post(f func()) {
	n.mu.Lock()
	f()
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// propose returns when the command is applied.
func (n *bare) propose(data []byte, done chan struct{}) {
	n.post(func() { n.inbox = append(n.inbox, proposed{data, done}) })
	<-done
}

func (n *bare) run(campaign bool) {
	defer close(n.ended)
	if campaign {
		_ = n.raft.Campaign()
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for n.process(); ; n.process() {
		select {
		case <-n.wake:
		case <-ticker.C:
			n.raft.Tick()
		}
		n.mu.Lock()
		n.waiting = append(n.waiting, n.inbox...)
		mail, stop := n.mail, n.stop
		n.inbox, n.mail = nil, nil
		n.mu.Unlock()
		if stop {
			return
		}
		for _, data := range mail {
			m := &raftpb.Message{}
			if proto.Unmarshal(data, m) == nil {
				_ = n.raft.Step(m)
			}
		}
	}
}

// process writes, sends and applies until there is nothing left to do.
func (n *bare) process() {
	for {
		n.batch()
		if !n.raft.HasReady() {
			return
		}
		rd := n.raft.Ready()
		leads := n.raft.BasicStatus().RaftState == raft.StateLeader
		if leads { // a leader may send before it has written
			n.send(rd.Messages)
		}
		n.write(&rd)
		if !leads {
			n.send(rd.Messages)
		}
		for _, e := range rd.CommittedEntries {
			n.apply(e)
		}
		n.raft.Advance(rd)
	}
}

// batch proposes all that waits as one entry, two at a time.
func (n *bare) batch() {
	if len(n.waiting) == 0 || n.rounds >= 2 {
		return
	}
	n.number++
	data := binary.LittleEndian.AppendUint64(nil, n.number)
	waits := make([]chan<- struct{}, 0, len(n.waiting))
	for _, p := range n.waiting {
		data = append(binary.AppendUvarint(data, uint64(len(p.data))), p.data...)
		waits = append(waits, p.done)
	}
	if n.raft.Propose(data) == nil {
		n.flying[n.number] = waits
		n.waiting = n.waiting[:0]
		n.rounds++
	}
}

func (n *bare) send(messages []*raftpb.Message) {
	for _, m := range messages {
		if data, err := proto.Marshal(m); err == nil {
			n.peers.Send(m.GetTo(), data)
		}
	}
}

func (n *bare) write(rd *raft.Ready) {
	var b storage.Batch
	if h := rd.HardState; !raft.IsEmptyHardState(h) {
		b.HardState = storage.HardState{Term: h.GetTerm(), Vote: h.GetVote(), Commit: h.GetCommit()}
		_ = n.log.SetHardState(h)
	}
	for _, e := range rd.Entries {
		b.Entries = append(b.Entries, storage.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: uint8(e.GetType()), Data: e.GetData()})
	}
	_ = n.log.Append(rd.Entries)
	if b.HardState == (storage.HardState{}) && len(b.Entries) == 0 {
		return
	}
	if err := n.store.Append(b); err != nil {
		panic(err)
	}
}

// apply wakes the proposers of an entry, and drops the log behind it now and
// then.
func (n *bare) apply(e *raftpb.Entry) {
	if data := e.GetData(); len(data) >= 8 {
		number := binary.LittleEndian.Uint64(data)
		if waits := n.flying[number]; waits != nil {
			delete(n.flying, number)
			n.rounds--
			for _, w := range waits {
				w <- struct{}{}
			}
		}
	}
	if i := e.GetIndex(); i%10_000 == 0 {
		_ = n.log.Compact(i - 1000)
	}
}
