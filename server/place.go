package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/address"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// ErrReplaced is why a node stops that had lost its directory, and that its group
// has let in under another number: start it again, with the same Config.
var ErrReplaced = errors.New("the group has let this node in under another number: start it again")

// A request for a number is a byte, 1 if an old number may be taken out for it, and the
// node's addresses. The answer is a byte, 1 if there is a number, 2 if the group knows no
// node at that address, else 0; then the number, else a text.

func encodeNumberRequest(at replica.Endpoint, anew bool) []byte {
	b := []byte{0}
	if anew {
		b[0] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(at.Peer)))
	return append(append(b, at.Peer...), at.Client...)
}

func decodeNumberRequest(b []byte) (at replica.Endpoint, anew bool, err error) {
	if len(b) < 5 || b[0] > 1 || uint64(binary.LittleEndian.Uint32(b[1:])) > uint64(len(b)-5) {
		return at, false, errors.New("a question of unknown form: run the same version on all nodes")
	}
	size := int(binary.LittleEndian.Uint32(b[1:]))
	at.Peer, at.Client = string(b[5:5+size]), string(b[5+size:])
	return at, b[0] == 1, nil
}

// place answers the request for a number of a node with the directory dir.
func (s *Server) place(l *loop, dir uint64, question []byte) ([]byte, error) {
	at, anew, err := decodeNumberRequest(question)
	if err != nil {
		return nil, err
	}
	data, err := s.placeAt(l, dir, at, anew)
	mark := byte(0)
	if errors.Is(err, fs.ErrNotExist) {
		mark = 2
	}
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Err != nil {
		err = e.Err
	}
	if err != nil {
		return append([]byte{mark}, err.Error()...), nil
	}
	return append([]byte{1}, data...), nil
}

// placeAt has the group give a number to the node that asks, if it is at the address that it
// names: one that was started under the number of another would otherwise have that one
// taken out, which was only stopped, and could itself never be found there.
func (s *Server) placeAt(l *loop, dir uint64, at replica.Endpoint, anew bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	switch {
	case !s.leads(l):
		return nil, answerError(&replica.Answer{Outcome: replica.NotDone})
	case !l.sits(dir, at.Peer):
		return nil, fmt.Errorf("this node leads, and has not found at %s the node that asks from there: if that is its address, it has to be reached there from here; if it has another, it was started under the number of another node (--id, or the default, 1), and needs that of its own address in --members, on an empty directory", at.Peer)
	}
	return l.call(ctx, func(now int64, id replica.Caller) { l.node.Place(now, id, at, anew) })
}

// sits reports whether a node with the directory dir answers at an address.
func (l *loop) sits(dir uint64, addr string) bool {
	answer := make(chan uint64, 1)
	go func() {
		w, err := l.wordOf(0, addr)
		if err != nil {
			w.Dir = 0
		}
		answer <- w.Dir
	}()
	select {
	case there := <-answer:
		return there != 0 && there == dir
	case <-time.After(seenWithin):
		return false
	}
}

// replaced asks the group to let this node in under another number; true: nothing
// is left to ask, and the node stops.
func (s *Server) replaced(why error, words map[uint64]replica.Word) bool {
	asked, removed, led := s.mayKnow(words), why, false
	for _, addr := range slices.Sorted(maps.Keys(asked)) {
		number, err := s.requestNumber(asked[addr], addr)
		switch {
		case err == nil:
			s.loop.must(s.renumber(number))
			return true
		case errors.As(err, new(nowhere)) && errors.Is(removed, transport.ErrRemoved):
			s.loop.must(s.stranger(removed)) // for good: nothing took the place of its number
			return true
		}
		led = led || errors.As(err, new(nowhere)) || errors.As(err, new(denied)) && !strings.HasPrefix(err.Error(), ErrNotLeader.Error())
		why = fmt.Errorf("%w; %s says: %w", why, addr, err)
	}
	s.notice(fmt.Errorf("%w. This node does not vote, since it does not know what node %d has promised; it waits to be let in%s", why, s.cfg.ID, s.loop.founding.unled(led)))
	return false
}

// unledRounds are so many rounds of questions as a group with a majority needs no time to elect a leader.
const unledRounds = 20

// unled counts the rounds in which no leader was reached, and says what it may mean that none is there.
func (f *founding) unled(led bool) string {
	switch {
	case led:
		f.rounds.Store(0)
	case f.rounds.Add(1) >= unledRounds:
		return ". No node that it has asked leads: if the disks of a majority of the group are lost, none will, and what is left of one node has to become a new cluster (holdfast snapshot restore DIR --force-new-cluster; docs/operate.md, A lost majority)"
	}
	return ""
}

// askAgain asks the group to let this node in until it does: one that joins, has
// nothing, and is refused since the group knows its number by another directory. The members
// that it was told of may not lead; they know the others.
func (s *Server) askAgain(l *loop, why error) {
	for !s.replaced(why, s.words()) {
		select {
		case <-time.After(s.pause()):
		case <-l.stopped:
			return
		}
	}
}

// findPeers looks for the nodes at the addresses of a node that has nothing
// yet: their numbers may be others by now, and without knowing them it could not
// answer.
func (s *Server) findPeers() {
	l := s.loop
	for l.founding.empty.Load() {
		peers := s.peersOf(s.words())
		l.post(func(in *inbox) {
			in.todo = append(in.todo, func() {
				if l.founding.empty.Load() && !l.founding.asking.Load() {
					l.lookFor(peers)
				}
			})
		})
		select {
		case <-time.After(s.pause()):
		case <-l.stopped:
			return
		}
	}
}

// peersOf are the founders under the numbers that they say, where they have answered, and the members that
// they know: one of which nothing was heard is where they say, not where this node was told that it is. Where two of
// them differ, the one with the greater number counts, so that the answer is the same with each look.
func (s *Server) peersOf(words map[uint64]replica.Word) map[uint64]string {
	peers, answered := map[uint64]string{}, map[uint64]string{}
	for _, e := range s.cfg.Founders {
		if w, ok := words[e.ID]; ok {
			answered[w.Node] = e.Peer
		} else {
			peers[e.ID] = e.Peer
		}
	}
	for _, id := range slices.Sorted(maps.Keys(words)) {
		maps.Copy(peers, addresses(words[id].Members.Endpoints))
	}
	maps.Copy(peers, answered)
	return peers
}

// pause is how long a node waits that the group does not let in.
func (s *Server) pause() time.Duration { return 5 * s.cfg.Tick }

// mayKnow are the addresses that may lead to the leader, each with the number of a node there: as with peersOf.
func (s *Server) mayKnow(words map[uint64]replica.Word) map[string]uint64 {
	all := map[string]uint64{}
	for _, id := range slices.Sorted(maps.Keys(words)) {
		for _, e := range words[id].Members.Endpoints {
			all[e.Peer] = e.ID
		}
	}
	for _, e := range s.cfg.Founders {
		all[e.Peer] = e.ID
	}
	maps.DeleteFunc(all, func(addr string, _ uint64) bool { return addr == "" || address.Same(addr, s.cfg.at()) })
	return all
}

// nowhere is what a leader says if its group knows no node at the address of one that asks.
type nowhere string

func (n nowhere) Error() string { return string(n) }

// denied is what another node says that gives no number.
type denied string

func (d denied) Error() string { return string(d) }

func (s *Server) requestNumber(id uint64, addr string) (uint64, error) {
	b, err := s.loop.peers.Ask(id, addr, encodeNumberRequest(s.cfg.self().endpoint(), !s.cfg.NoReplace))
	switch {
	case err != nil:
		return 0, err
	case len(b) == 9 && b[0] == 1:
		return binary.LittleEndian.Uint64(b[1:]), nil
	case len(b) == 0:
		return 0, errors.New("an answer of unknown form")
	case b[0] == 2:
		return 0, nowhere(b[1:])
	}
	return 0, denied(b[1:])
}

// renumber makes the empty directory one of another number.
func (s *Server) renumber(number uint64) error {
	if err := s.loop.disk.do(func(d *disk.Disk) error { return d.Renumber(number) }); err != nil {
		return err
	}
	return fmt.Errorf("node %d had lost its directory and is node %d now: %w", s.cfg.ID, number, ErrReplaced)
}
