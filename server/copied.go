package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	random "math/rand/v2"
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
// its directory. Of two the later one stops (twin), and neither hears anything before somebody has
// answered it.

// copyMark is the first byte of a question by which a node says where it runs.
const copyMark = 3

// sighted is the answer to a presence.
type sighted struct {
	// Self: it is the process that answers.
	Self bool
	// Same is the one that answers, if it is another with the same directory.
	Same *presence
	// Others are where other processes have said that they run with it, and Passed those of them that have answered
	// the node that answers: they may be out of reach for the node that asks.
	Others []string
	Passed []presence
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

// appear makes this process one that runs with the directory that is open.
func (s *Server) appear() {
	dir, host := s.cfg.Dir, ""
	if s.cfg.host == nil || s.cfg.host.Files == nil {
		dir, _ = filepath.Abs(dir)
		host, _ = os.Hostname()
	}
	s.twin.self = presence{
		Node: s.cfg.ID, Of: s.disk.Directory(), Run: random.Uint64(), Began: time.Now().UnixNano(), Stage: starts,
		At: cmp.Or(findable(s.cfg.Listen), s.cfg.self().Peer), Dir: path(dir, host),
	}
}

// sighted answers a node that says where it runs, with the directory dir, or passes on where another does. If that is
// another process with this one's directory, the operators of both are told, or this one stops.
func (s *Server) sighted(ask asker, dir uint64, question []byte) (b []byte, stop error) {
	var p presence
	if err := json.Unmarshal(question, &p); err != nil {
		return nil, nil
	}
	var answer sighted
	if !p.Passed {
		p.Of = dir
		answer.Others = s.sightings.note(dir, p.At, time.Now())
		answer.Passed = s.passOn(ask, p, answer.Others)
	}
	own := s.twin.shows()
	switch {
	case p.Run == own.Run:
		answer.Self = true
	case p.Of == own.Of:
		answer.Same, stop = s.meet(&p)
	}
	b, err := json.Marshal(answer)
	return b, errors.Join(stop, err)
}

// meet is to be told of another process with this directory: it stops, or the operator is told.
func (s *Server) meet(p *presence) (own *presence, stop error) {
	self, stops := s.twin.meet(p)
	if stops {
		return &self, s.doubled(p)
	}
	s.notice(s.copied(p))
	return &self, nil
}

// passedFor is how long a node waits for others to which it passes a presence on, less than it is waited for itself.
const passedFor = soughtFor * 4 / 5

// passOn asks at other places for a process, which may not reach them.
func (s *Server) passOn(ask asker, p presence, others []string) (found []presence) {
	p.Passed = true
	addrs := map[string]uint64{}
	for _, addr := range others {
		addrs[addr] = p.Node
	}
	answers := make(chan map[string]sighted, 1)
	go func() { answers <- askAll(ask, addrs, map[string]bool{}, &p) }()
	select {
	case all := <-answers:
		for _, a := range all {
			if a.Same != nil {
				found = append(found, *a.Same)
			}
		}
	case <-time.After(passedFor):
	}
	return found
}

// doubled is why this process stops.
func (s *Server) doubled(p *presence) error {
	return fmt.Errorf("%w: a process that began before this one runs with the same directory, as node %d, in %s, and listens for other nodes at %s. Two cannot make promises under one number, so that this one stops, and promises nothing more. "+
		"If it is a copy, remove %s, and let another node join on an empty directory (holdfast serve --join, holdfast member add). If this one is to stay, stop the other for good, and start this one on an empty directory, to be let in anew", storage.ErrCopied, p.Node, p.Dir, p.At, s.cfg.Dir)
}

// copied tells the operator of the process that stays.
func (s *Server) copied(p *presence) error {
	return fmt.Errorf("node %d was started a second time, with a copy of the directory of this node, in %s, to listen for other nodes at %s: the copy is refused, and this node goes on. See that it is removed; another node joins on an empty directory (holdfast serve --join, holdfast member add)", s.cfg.ID, p.Dir, p.At)
}

// asker puts a question to the node at an address.
type asker func(id uint64, addr string, question []byte) ([]byte, error)

// seek looks for other processes with this directory: at addrs, and wherever the nodes there know of one. It fails if this
// one stops; answered: another node has answered, so that nobody else runs with the directory as far as it knows.
func (s *Server) seek(ask asker, addrs map[string]uint64) (answered bool, err error) {
	asked := map[string]bool{}
	for own := s.twin.shows(); len(addrs) > 0; {
		next := map[string]uint64{}
		for _, answer := range askAll(ask, addrs, asked, &own) {
			answered = answered || !answer.Self
			if err := s.stopFor(answer); err != nil {
				return answered, err
			}
			for _, other := range answer.Others {
				next[other] = own.Node
			}
		}
		addrs = next
	}
	return answered, nil
}

// stopFor is why this process stops for one of those of which an answer tells.
func (s *Server) stopFor(a sighted) error {
	found := a.Passed
	if a.Same != nil {
		found = append(found, *a.Same)
	}
	for i := range found {
		if _, stops := s.twin.meet(&found[i]); stops {
			return s.doubled(&found[i])
		}
	}
	return nil
}

// askAll asks for a process the nodes at addrs that were not asked before; those that do not answer say nothing, but
// one that hangs up, as a program does that does not know the question, answers that it knows of nobody.
func askAll(ask asker, addrs map[string]uint64, asked map[string]bool, p *presence) map[string]sighted {
	text, _ := json.Marshal(p) // which has nothing that cannot be encoded
	question := append([]byte{copyMark}, text...)
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
			unknown := errors.Is(err, io.EOF) && !errors.Is(err, transport.ErrHandshake)
			if !unknown && (err != nil || json.Unmarshal(b, &answer) != nil) {
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

// seekEvery is how often a node that takes part looks for others: it may have stood still when one was started.
const seekEvery = 10 * time.Second

// seekCopies looks for others now and then, and when this node has met another, as long as it runs.
func (s *Server) seekCopies(l *loop) {
	for {
		if known := l.known(); len(known) > 0 {
			s.seekOnce(l, known)
		}
		pause := seekEvery
		if !s.twin.takesPart() {
			pause = soughtFor
		}
		select {
		case <-time.After(pause):
		case <-s.meets:
		case <-l.stopped:
			return
		}
	}
}

// seekOnce looks for others, and has this node take part once somebody has answered. As long as it does not it waits for
// nobody long.
func (s *Server) seekOnce(l *loop, known []replica.Endpoint) {
	ask := s.outside
	if s.twin.takesPart() {
		ask = l.peers.Ask
	}
	answered, err := s.seek(ask, s.whereabouts(known))
	if l.must(err); err == nil && answered {
		s.twin.reach(takesPart)
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
	s.appear()
	c, alone := s.disk.Copied(), rec.Alone(s.cfg.ID)
	next, group := takesPart, !alone && rec.Snapshot.Index > 0
	if c != nil || group {
		answered, err := s.seek(s.outside, s.whereabouts(rec.Snapshot.Conf.Endpoints))
		if err != nil {
			return err
		}
		if group && !answered {
			next = listens
		}
	}
	s.twin.reach(next)
	switch {
	case c == nil:
		return nil
	case !alone && !s.cfg.Moved:
		return s.cfg.uncertain(c)
	case !s.cfg.Moved:
		s.notice(s.cfg.forked(c))
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

// forked tells the operator of a server alone that it goes on from a copy.
func (c *Config) forked(copied *storage.Copied) error {
	if copied.Here {
		return fmt.Errorf("the directory %s is a copy of the one that was there before, as when a backup of files is put back: what was done after the copy was made is not known here. "+
			"See that the original is not used any more, since two servers would grant the same. Tokens go on here beyond all that are given there. To go on from a backup without holders of before: holdfast snapshot restore", c.Dir)
	}
	return fmt.Errorf("the directory %s was copied or moved from %s: if that is still there, see that it is not used any more, since two servers would grant the same. Tokens go on here beyond all that are given there", c.Dir, from(copied))
}

// uncertain is why a node of a group does not start on a directory that is a copy.
func (c *Config) uncertain(copied *storage.Copied) error {
	return fmt.Errorf("%w: %s. So the node does not take part, and has promised nothing here. "+
		"If the other nodes run, empty %s and start the node by the same command line: the group lets it in anew. If the node had stopped before it was copied, has not run since, and nothing is left of the original, start it with Config.Moved (holdfast serve --moved). "+
		"If a backup of files was put back at all nodes, make a new cluster of one of them (holdfast snapshot restore DIR --force-new-cluster --data NEW). If it is to be another node, let it join on an empty directory under a number of its own (holdfast serve --join, holdfast member add)",
		storage.ErrCopied, c.doubt(copied), c.Dir)
}

// doubt is what is not known of a copy.
func (c *Config) doubt(copied *storage.Copied) string {
	came, was, why := "it was copied or moved from", "had stopped", "if that is still there and is started again, two nodes make promises under one number"
	if copied.Here {
		came, why = "it is a copy of the one that was at the same path,", "that may have promised more since, which is not known here"
	}
	if !copied.Closed {
		was, why = "ran, or was killed", "it may have promised more since, which is not known here"
	}
	return fmt.Sprintf("%s %s, where node %d %s: %s", came, from(copied), c.ID, was, why)
}
