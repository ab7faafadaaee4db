package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/address"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// A directory that was copied makes two nodes of one: each would vote, and have the log
// taken for written, in the place of the other. A copy knows by itself that it is one, where files
// tell their copies apart (storage.Copied). Where they do not, as in the image of a machine, the
// two find each other: a node says to the others where it runs, and asks whether another runs with
// its directory. The one that began later stops.

// copyMark is the first byte of a question by which a node says where it runs.
const copyMark = 3

// presence is a process that runs with a directory.
type presence struct {
	Node uint64
	Run  uint64        // drawn at its start
	Age  time.Duration // since then
	At   string        // where it listens for other nodes
	Dir  string        // its path and machine, for people
}

// sighted is the answer to a presence.
type sighted struct {
	// Same: the node that answers has the same directory, and is another process, as old as Age.
	Same bool
	Age  time.Duration
	Dir  string
	// Others are where other processes have said that they run with it.
	Others []string
}

// sightings are where processes have said that they run, by directory.
type sightings struct {
	mu sync.Mutex
	at map[uint64]map[string]time.Time
}

const (
	// sightedFor is how long a sighting is remembered.
	sightedFor = 10 * time.Minute
	// maxSightings bounds the directories and the places of each that are remembered.
	maxSightings = 64
)

// note remembers a sighting, and returns the other places of the directory.
func (s *sightings) note(dir uint64, at string, now time.Time) (others []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil || len(s.at) > maxSightings {
		s.at = map[uint64]map[string]time.Time{}
	}
	if s.at[dir] == nil || len(s.at[dir]) > maxSightings {
		s.at[dir] = map[string]time.Time{}
	}
	for addr, seen := range s.at[dir] {
		switch {
		case now.Sub(seen) > sightedFor:
			delete(s.at[dir], addr)
		case !address.Same(addr, at):
			others = append(others, addr)
		}
	}
	s.at[dir][at] = now
	return others
}

// presence is this process.
func (s *Server) presence(age time.Duration) presence {
	dir, host := s.cfg.Dir, ""
	if s.cfg.host == nil || s.cfg.host.Files == nil {
		dir, _ = filepath.Abs(dir)
		host, _ = os.Hostname()
	}
	at := cmp.Or(findable(s.cfg.Listen), s.cfg.self().Peer)
	return presence{Node: s.cfg.ID, Run: s.run, Age: age, At: at, Dir: path(dir, host)}
}

// sighted answers a node that says where it runs, with the directory dir. If that is this one's, the two
// are told.
func (s *Server) sighted(l *loop, dir uint64, question []byte) ([]byte, error) {
	var p presence
	if err := json.Unmarshal(question, &p); err != nil {
		return nil, err
	}
	answer := sighted{Others: s.sightings.note(dir, p.At, time.Now())}
	if dir == s.disk.Directory() && p.Run != s.run {
		own := s.presence(time.Since(l.began))
		answer.Same, answer.Age, answer.Dir = true, own.Age, own.Dir
		if p.Age > own.Age {
			l.must(s.doubled(p.At, p.Dir))
		} else {
			s.notice(s.copied(p))
		}
	}
	return json.Marshal(answer)
}

// doubled is why this process stops.
func (s *Server) doubled(at, dir string) error {
	return fmt.Errorf("%w: a process that began before this one runs with the same directory, as node %d, in %s, and listens for other nodes at %s. Two cannot make promises under one number, so that this one stops, and promises nothing more. "+
		"If it is a copy, remove %s, and let another node join on an empty directory (holdfast serve --join, holdfast member add). If this one is to stay, stop the other for good, and start this one on an empty directory, to be let in anew", storage.ErrCopied, s.cfg.ID, dir, at, s.cfg.Dir)
}

// copied tells the operator of the process that stays.
func (s *Server) copied(p presence) error {
	return fmt.Errorf("node %d was started a second time, with a copy of the directory of this node, in %s, to listen for other nodes at %s: the copy is refused, and this node goes on. See that it is removed; another node joins on an empty directory (holdfast serve --join, holdfast member add)", s.cfg.ID, p.Dir, p.At)
}

// asker puts a question to the node at an address.
type asker func(id uint64, addr string, question []byte) ([]byte, error)

// seek looks for another process with this directory that began before this one, age ago: at addrs, and
// wherever the nodes there know of one.
func (s *Server) seek(ask asker, age time.Duration, addrs map[string]uint64) error {
	own := s.presence(age)
	question, err := json.Marshal(own)
	if err != nil {
		return err
	}
	question = append([]byte{copyMark}, question...)
	asked := map[string]bool{}
	for len(addrs) > 0 {
		next := map[string]uint64{}
		for addr, answer := range s.askAll(ask, addrs, asked, question) {
			if answer.Same && answer.Age >= own.Age {
				return s.doubled(addr, answer.Dir)
			}
			for _, other := range answer.Others {
				next[other] = s.cfg.ID
			}
		}
		addrs = next
	}
	return nil
}

// askAll asks the nodes at addrs that were not asked before; those that do not answer say nothing.
func (s *Server) askAll(ask asker, addrs map[string]uint64, asked map[string]bool, question []byte) map[string]sighted {
	answers := map[string]sighted{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for addr, id := range addrs {
		known := address.Canonical(addr)
		if addr == "" || asked[known] {
			continue
		}
		asked[known] = true
		wg.Go(func() {
			b, err := ask(id, addr, question)
			var answer sighted
			if err != nil || json.Unmarshal(b, &answer) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[addr] = answer
		})
	}
	wg.Wait()
	return answers
}

// whereabouts are where nodes of the group may be: this one, too.
func (s *Server) whereabouts(known []replica.Endpoint) map[string]uint64 {
	addrs := map[string]uint64{}
	for _, e := range append(s.cfg.founders(), known...) {
		addrs[e.Peer] = e.ID
	}
	return addrs
}

// seekCopies looks for others now and then, and when this node has met another, as long as it runs.
func (s *Server) seekCopies(l *loop) {
	for {
		if known := l.known(); len(known) > 0 {
			l.must(s.seek(l.peers.Ask, time.Since(l.began), s.whereabouts(known)))
		}
		select {
		case <-time.After(again):
		case <-s.meets:
		case <-l.stopped:
			return
		}
	}
}

// met tells that another node has shown itself: one that began just now knows of nobody.
func (s *Server) met(l *loop) func(peer, dir uint64, v transport.Versions) {
	return func(peer, dir uint64, v transport.Versions) {
		l.met(peer, dir, v)
		select {
		case s.meets <- struct{}{}:
		default: // it will look anyway
		}
	}
}

// known are the members of the group, as this node knows them.
func (l *loop) known() (members []replica.Endpoint) {
	told := make(chan []replica.Endpoint, 1)
	if !l.post(func(in *inbox) {
		in.todo = append(in.todo, func() { told <- l.node.Status().Members.Endpoints })
	}) {
		return nil
	}
	select {
	case members = <-told:
	case <-l.stopped:
	}
	return members
}

// soughtFor is how long a start waits for another node to be connected, to greet and to say whether it knows of one that
// runs with the directory, each: those that do not answer are asked again while it runs.
const soughtFor = 500 * time.Millisecond

// arrive decides, before the node takes part, about a directory with which another runs, or that is a copy or has been moved.
func (s *Server) arrive(rec *replica.Recovered) error {
	c, alone := s.disk.Copied(), rec.Alone(s.cfg.ID)
	if c != nil || !alone && rec.Snapshot.Index > 0 {
		if err := s.seek(s.outside, 0, s.whereabouts(rec.Snapshot.Conf.Endpoints)); err != nil {
			return err
		}
	}
	switch {
	case c == nil:
		return nil
	case !alone && !s.cfg.Moved:
		return s.cfg.uncertain(c)
	case !s.cfg.Moved:
		s.notice(fmt.Errorf("the directory %s was copied or moved from %s: if that is still there, see that it is not used any more, since two servers would grant the same. Tokens go on here beyond all that are given there", s.cfg.Dir, from(c)))
	}
	return s.disk.Settle(s.cfg.ID, rec, s.newest(), time.Now())
}

// outside asks as a node that does not run yet.
func (s *Server) outside(id uint64, addr string, question []byte) ([]byte, error) {
	if s.cfg.Listen == "" {
		return nil, errors.ErrUnsupported
	}
	versions := transport.Versions{Least: core.BaseVersion, Newest: s.newest()}
	return transport.Ask(transport.Config{Cluster: s.cfg.ClusterID, ID: s.cfg.ID, Dir: s.disk.Directory(), Versions: versions, Timeout: soughtFor, TLS: s.cfg.PeerTLS, CAs: s.cfg.PeerCAs, Dial: s.cfg.host.Dialer()}, id, addr, question)
}

// newest is the newest version of a group that this node supports.
func (s *Server) newest() uint8 { return cmp.Or(s.cfg.host.Version(), core.EntryVersion) }

// from is where a directory was before, for people.
func from(c *storage.Copied) string { return path(c.From.Dir, c.From.Host) }

func path(dir, host string) string {
	if host == "" {
		return dir
	}
	return dir + " on " + host
}

// uncertain is why a node of a group does not start on a directory that is a copy.
func (c *Config) uncertain(copied *storage.Copied) error {
	was, why := "had stopped", "if that is still there and is started again, two nodes make promises under one number"
	if !copied.Closed {
		was, why = "ran, or was killed", "it may have promised more since, which is not known here"
	}
	return fmt.Errorf("%w: it was copied or moved from %s, where node %d %s: %s. So the node does not take part, and has promised nothing here. "+
		"Empty %s and start the node by the same command line: the group lets it in anew. If nothing is left at the old place, and the node had stopped there before it was copied, start it with Config.Moved (holdfast serve --moved). If it is to be another node, let it join on an empty directory under a number of its own (holdfast serve --join, holdfast member add)",
		storage.ErrCopied, from(copied), c.ID, was, why, c.Dir)
}
