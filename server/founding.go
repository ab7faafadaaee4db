package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// founding is the part of a node that asks the other founders, as long as its
// directory is empty: until then it hears no message and takes no snapshot, so that
// it votes for nobody.
type founding struct {
	asking   atomic.Bool
	empty    atomic.Bool // the directory has no state
	proposal atomic.Uint64
	rounds   atomic.Int64 // of questions in a row that reached no leader
	wg       sync.WaitGroup
}

// asks reports whether a node has to ask the other founders what it is.
func (c *Config) asks(rec *replica.Recovered) bool {
	return !c.Join && len(c.Founders) > 1 && rec.Snapshot.Index == 0
}

// askFounders asks until it is clear what this node is: a founder, a member that the
// group waits for, or a stranger, which asks to be let in under a new number.
func (s *Server) askFounders() {
	self := replica.Endpoint{ID: s.cfg.ID, Dir: s.disk.Directory()}
	for {
		words := s.words()
		f, pause := replica.Found(self, s.cfg.founders(), words), s.cfg.Tick
		if s.damaged {
			f = f.Only(s.foundsNone())
		}
		s.loop.founding.proposal.Store(f.Proposal)
		switch {
		case f.Stranger != nil:
			if s.replaced(f.Stranger, words) {
				return
			}
			pause = s.pause()
		case f.Join:
			s.loop.founding.asking.Store(false)
			s.findPeers()
			return
		case f.Found != nil:
			s.loop.must(s.found(f.Found, words))
			return
		}
		if f.Waiting != "" {
			s.notice(errors.New(f.Waiting))
		}
		select {
		case <-time.After(pause):
		case <-s.loop.stopped:
			return
		}
	}
}

// foundsNone says why a node with damaged files founds no group, and the ways out.
func (s *Server) foundsNone() string {
	return fmt.Sprintf("the files of this node were damaged and are moved aside in %[1]s, as damaged-*: it founds no new group, since they may hold what was acknowledged, and waits for its group to let it in. "+
		"If no majority of that is left: begin anew from a node that is whole (holdfast snapshot restore DIR --force-new-cluster --data NEW), from a backup, or from what can be read of the damaged files, under their old names in a directory of their own (--accept-loss). "+
		"To begin with nothing, remove them", s.cfg.Dir)
}

// words are what the other founders say; those that do not answer say nothing.
func (s *Server) words() map[uint64]replica.Word {
	words := map[uint64]replica.Word{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, e := range s.cfg.Founders {
		if e.ID == s.cfg.ID {
			continue
		}
		wg.Go(func() {
			w, err := s.loop.wordOf(e.ID, e.Peer)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			words[e.ID] = w
		})
	}
	wg.Wait()
	return words
}

// wordOf is what the node at an address says of itself.
func (l *loop) wordOf(id uint64, addr string) (replica.Word, error) {
	b, err := l.peers.Ask(id, addr, nil)
	if err != nil {
		return replica.Word{}, err
	}
	return replica.DecodeWord(b)
}

// reply answers another node: with this node's word, to its request for a number, or
// to the order of an operator that it passes on.
func (s *Server) reply(l *loop) func(dir uint64, question []byte) ([]byte, error) {
	return func(dir uint64, question []byte) ([]byte, error) {
		switch {
		case len(question) == 0:
			return l.word()
		case question[0] == orderMark:
			return s.takeOrder(l, question[1:])
		case question[0] == copyMark:
			answer, stop := s.sighted(s.outside, dir, question[1:])
			l.must(stop)
			return answer, nil
		}
		return s.place(l, dir, question)
	}
}

func (l *loop) word() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var w replica.Word
	if err := l.do(ctx, func() { w = l.node.Word() }); err != nil {
		return nil, err
	}
	w.Proposal = l.founding.proposal.Load()
	return w.Encode()
}

// stranger says what to do with a directory that is not of the group.
func (s *Server) stranger(err error) error {
	if errors.Is(err, transport.ErrRemoved) {
		return fmt.Errorf("%w. Its number is never used again. If the group has another one at its address by now (holdfast member ls), as after holdfast member replace: empty this directory and start it by the same command line, and it is let in under that. "+
			"Else, to let it in once more, empty this directory and start it under a number that is new (holdfast serve --id NUMBER --join …, holdfast member add, holdfast member promote)", err)
	}
	return fmt.Errorf("%w. This node does not vote, since it does not know what node %[2]d has promised. If the disk of node %[2]d was lost: "+
		"empty this directory and start the node by the command line of its founding, and the group lets it in under another number; "+
		"or remove that number (holdfast member remove %[2]d) and let the node join under a new one (holdfast serve --id NUMBER --join …, holdfast member add, holdfast member promote)", err, s.cfg.ID)
}

// found makes this node a founder of a group; words are what the others have said.
func (s *Server) found(founders []replica.Endpoint, words map[uint64]replica.Word) error {
	rec := replica.Bootstrap(core.Config{}, founders)
	if err := s.loop.disk.do(func(d *disk.Disk) error { return d.Found(rec) }); err != nil {
		return err
	}
	node, err := replica.New(s.node(), rec)
	if err != nil {
		return err
	}
	for id, w := range words {
		node.Met(0, id, w.Dir, w.Versions)
	}
	s.loop.post(func(in *inbox) { in.todo = append(in.todo, func() { s.loop.become(node) }) })
	return nil
}

// become goes on with a node that has a state, in the place of one that had none and
// that could do nothing for anybody.
func (l *loop) become(node *replica.Node) {
	for c := range l.streams {
		l.drop(c)
	}
	for c := range l.reads {
		l.answer(replica.Answer{Caller: c, Outcome: replica.NotDone})
	}
	for c := range l.calls {
		l.answer(replica.Answer{Caller: c, Outcome: replica.NotDone})
	}
	l.node = node
	l.founding.empty.Store(false)
	l.founding.asking.Store(false)
}

// hear takes a message from a peer.
func (s *Server) hear(l *loop) func(peer uint64, m []byte) {
	return func(_ uint64, m []byte) {
		if s.twin.hears() && !l.founding.asking.Load() {
			l.post(func(in *inbox) { in.messages = append(in.messages, m) })
		}
	}
}

// receiveSnapshot takes a snapshot from a peer.
func (s *Server) receiveSnapshot(l *loop) func(peer uint64, head []byte, next func() ([]byte, error)) error {
	return func(peer uint64, head []byte, next func() ([]byte, error)) error {
		if !s.twin.hears() {
			return errors.New("this node has yet to hear whether another runs with its directory")
		}
		return l.receiveSnapshot(peer, head, next)
	}
}

// met notes the directory and the versions with which a peer has shown itself.
func (l *loop) met(peer, dir uint64, v transport.Versions) {
	l.post(func(in *inbox) {
		in.todo = append(in.todo, func() { l.node.Met(l.now(), peer, dir, replica.Versions(v)) })
	})
}

// refused is told why a handshake failed. A node that the group does not know by its
// directory stops, since nothing it does can be right, unless it is empty: then it
// asks to be let in, also if its number was removed, since the group may have given it
// another that its directory was lost with.
func (s *Server) refused(l *loop) func(peer uint64, err error) {
	return func(_ uint64, err error) {
		f := &l.founding
		switch {
		case errors.Is(err, transport.ErrVersion):
			l.must(err) // nothing that the group writes could be applied here
		case !errors.Is(err, transport.ErrStranger):
			s.notice(err)
		case f.asking.Load():
		case !f.empty.Load():
			l.must(s.stranger(err))
		case f.asking.CompareAndSwap(false, true):
			l.post(func(in *inbox) { // the loop runs when the node is complete
				in.todo = append(in.todo, func() { f.wg.Go(func() { s.askAgain(l, err) }) })
			})
		}
	}
}

// notices are what an operator was told, and when.
type notices struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// again is how long a notice is not repeated.
const again = time.Minute

// notice tells the operator something that no call returns.
func (s *Server) notice(err error) {
	if s.cfg.Notice == nil {
		return
	}
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	now := time.Now()
	for text, at := range s.notices.last {
		if now.Sub(at) >= again {
			delete(s.notices.last, text)
		}
	}
	if _, told := s.notices.last[err.Error()]; told {
		return
	}
	if s.notices.last == nil {
		s.notices.last = map[string]time.Time{}
	}
	s.notices.last[err.Error()] = now
	s.cfg.Notice(err)
}
