package edge

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/limit"
)

// Stats counts what has happened since Open.
type Stats struct {
	// Sent and SendErrors are messages given to the link, and those it refused. What a
	// [Keeper] refuses later counts with the next state.
	Sent, SendErrors uint64
	// Received are all messages that came: also Own ones, Repeated ones and Garbage,
	// which are ignored.
	Received, Own, Repeated, Garbage uint64
	// Skewed are keys' counts from a window too far ahead, which were ignored: the
	// sender's clock or this one is wrong.
	Skewed uint64
	// Mismatched are keys' counts of a limiter that has other windows on the sender,
	// which were ignored.
	Mismatched uint64
	// Full are counts that found no room: see [MaxCounters], [LimiterConfig.MaxKeys]; and those of actors
	// beyond the 10,000 that a key has in a window.
	Full uint64
	// Evicted are idle keys that were forgotten.
	Evicted uint64
	// Conflicts are calls of [Config.OnConflict].
	Conflicts uint64
}

type tally struct {
	sent, sendErrors, received, own, repeated, garbage, skewed, mismatched, full, evicted, conflicts atomic.Uint64
}

// Stats are the counts of this moment.
func (n *Node) Stats() Stats {
	t := &n.tally
	return Stats{
		Sent: t.sent.Load(), SendErrors: t.sendErrors.Load(),
		Received: t.received.Load(), Own: t.own.Load(), Repeated: t.repeated.Load(), Garbage: t.garbage.Load(),
		Skewed: t.skewed.Load(), Mismatched: t.mismatched.Load(), Full: t.full.Load(),
		Evicted: t.evicted.Load(), Conflicts: t.conflicts.Load(),
	}
}

// LimiterStats counts what a limiter has decided.
type LimiterStats struct {
	// Allowed and Denied are decisions here, of any cost.
	Allowed, Denied uint64
	// Over is what all nodes together have admitted above the rate, as it became
	// known here: what the limit costs for asking nobody.
	Over uint64
}

type limiterTally struct{ allowed, denied, over atomic.Uint64 }

// Stats are the counts of this moment.
func (l *Limiter) Stats() LimiterStats {
	return LimiterStats{l.tally.allowed.Load(), l.tally.denied.Load(), l.tally.over.Load()}
}

// note counts a decision and tells it.
func (l *Limiter) note(key string, d *limit.Decision) {
	if d.Allowed {
		l.tally.allowed.Add(1)
	} else {
		l.tally.denied.Add(1)
	}
	if l.node.config.Observe != nil {
		l.node.config.Observe(l.name, key, *d)
	}
}

// Total is a sum over all that this node knows: the values of its counters, and what
// was taken in the present windows of its limiters. Nodes that agree have the same
// total if they have the same limiters.
func (n *Node) Total() (sum uint64) {
	counted, limited := n.all()
	for _, c := range counted {
		sum = addCapped(sum, c.Value())
	}
	now := n.config.Now().UnixNano()
	for _, l := range limited {
		sum = addCapped(sum, uint64(l.total(now)))
	}
	return sum
}

func (l *Limiter) total(now int64) (sum int64) {
	epoch := l.rule.epoch(now)
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		if s.epoch == epoch {
			sum += s.sum
		}
		s.mu.Unlock()
	}
	return sum
}

// Divergence is the greatest [Peer.Differs] of the nodes that run: of those heard in the
// last three times Config.State.
func (n *Node) Divergence() (most uint64) {
	now := n.config.Now()
	for _, p := range n.Peers() {
		if now.Sub(p.Heard) <= absence*n.config.State {
			most = max(most, p.Differs)
		}
	}
	return most
}

// SyncAge is how long ago the last message of another node came; without one, how
// long the node has been open. A node that has nothing to tell says so every Config.State.
func (n *Node) SyncAge() time.Duration { return n.config.Now().Sub(n.peers.last(n.opened)) }

// Peer is another node.
type Peer struct {
	Actor crdt.Actor
	// Heard is when its last message came, or when it was sent if a [Keeper] kept it.
	Heard time.Time
	// Lag is how long its last message was on its way, with what the two clocks
	// differ by; messages that a Keeper kept do not count.
	Lag time.Duration
	// Total is what [Node.Total] was there when it sent its last message.
	Total uint64
	// Differs is by how much that differs from the total here, while something is taken also by
	// what is on its way: of up to three times Flush, as large groups stretch it, and a message's
	// time. 0 also if the total was sent before a present
	// window of a limiter here began, and cannot be compared.
	Differs uint64
}

// Peers are the nodes heard in the last hour, in order: the latest incarnation of each,
// without those that were closed.
func (n *Node) Peers() []Peer {
	now := n.config.Now()
	return n.peers.list(now, n.windowsSince(now), n.Total())
}

// windowsSince is when the latest of the present windows began.
func (n *Node) windowsSince(now time.Time) (since time.Time) {
	_, limited := n.all()
	for _, l := range limited {
		if begin := time.Unix(0, l.rule.epoch(now.UnixNano())*l.rule.span); begin.After(since) {
			since = begin
		}
	}
	return since
}

const (
	// maxPeers bounds what is remembered of senders.
	maxPeers = 10_000
	// absence is after how many states without a word a node is taken to be gone.
	absence = 3
	// peerTime is how long a sender is remembered.
	peerTime = time.Hour
)

// peers remembers senders, to find repeated messages and second actors of one name.
type peers struct {
	mu     sync.Mutex
	known  map[crdt.Actor]*peer
	latest map[string]incarnation // by node
}

// incarnation is one of a node, and since when it is known.
type incarnation struct {
	number uint64
	since  time.Time
}

// learn notes an incarnation of a node; mu is held.
func (p *peers) learn(a crdt.Actor, now time.Time) {
	if p.latest == nil {
		p.latest = map[string]incarnation{}
	}
	if last, ok := p.latest[a.Node]; !ok || a.Incarnation > last.number {
		p.latest[a.Node] = incarnation{a.Incarnation, now}
	}
}

type peer struct {
	run      uint64
	last     uint64 // the greatest number of a message
	seen     uint64 // bit i: the message last-i has come
	heard    time.Time
	kept     time.Time // when its last kept message was sent
	ends     [2]uint64 // the numbers of the messages that ended its last two kept states
	lag      time.Duration
	total    uint64
	sent     time.Time // when the total was sent, by its clock
	told     time.Time // when it has told all that it knew last, by its clock
	left     bool      // it was closed
	conflict bool
}

// note reports that the message has come before; that its sender is, for the
// first time, one of two of its name: a later one of this node, another run of the same
// incarnation, or one that was heard when a later one had been known for that long; and when
// the sender has told all that it knew last, before this message.
func (p *peers) note(me crdt.Actor, m *message, now time.Time, long time.Duration) (repeated, conflict bool, told time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.known[m.sender]
	if s == nil {
		if p.forget(now); len(p.known) >= maxPeers {
			return false, false, told
		}
		s = &peer{run: m.run}
		p.known[m.sender] = s
		p.learn(m.sender, now)
	}
	told = s.told
	repeated = s.run == m.run && s.repeated(m.seq)
	s.hear(m, now, repeated || s.run == m.run && m.seq < s.last)
	successor := m.sender.Node == me.Node && m.sender.Incarnation >= me.Incarnation
	last := p.latest[m.sender.Node]
	outlived := m.sender.Incarnation < last.number && s.heard.Sub(last.since) > long+maxAhead
	if (successor || outlived || s.run != m.run) && !s.conflict {
		s.conflict, conflict = true, true
	}
	return repeated, conflict, told
}

// maxAhead is how far ahead another clock may be and still say when its node was there.
const maxAhead = 10 * time.Second

// hear notes what a message says of its sender. late: it came before, or a later one has: that says no more
// than is known, and one that comes again would make a node that is gone seem to run.
func (s *peer) hear(m *message, now time.Time, late bool) {
	sent := time.UnixMilli(m.sent)
	if m.all && sent.After(s.told) {
		s.told = sent
	}
	s.left = s.left || m.last
	if !m.kept && late {
		return
	}
	if !m.kept {
		s.heard, s.lag, s.total, s.sent = now, now.Sub(sent), m.total, sent
		return
	}
	if m.all && m.seq > s.ends[1] {
		s.ends = [2]uint64{s.ends[1], m.seq}
	}
	if sent.After(now) && sent.Sub(now) <= maxAhead {
		sent = now // by the clock of another machine
	}
	if sent.After(now) {
		return
	}
	if sent.After(s.kept) {
		s.kept = sent
	}
	if sent.After(s.heard) {
		s.heard, s.total, s.sent = sent, m.total, sent
	}
}

// forget makes room once there is none.
func (p *peers) forget(now time.Time) {
	if len(p.known) < maxPeers {
		return
	}
	for a, s := range p.known {
		if now.Sub(s.heard) > peerTime {
			delete(p.known, a)
			if p.latest[a.Node].number == a.Incarnation {
				delete(p.latest, a.Node)
			}
		}
	}
}

// repeated notes a message's number. One that is too old to tell counts as new:
// merging it again does no harm.
func (s *peer) repeated(seq uint64) bool {
	if seq > s.last {
		s.seen = s.seen<<min(seq-s.last, 64) | 1
		s.last = seq
		return false
	}
	bit := uint64(1) << min(s.last-seq, 64)
	was := s.seen&bit != 0
	s.seen |= bit
	return was
}

// runs reports that an actor was heard in that time, and neither left nor was replaced by a
// later incarnation; mu is held.
func (p *peers) runs(a crdt.Actor, s *peer, now time.Time, within time.Duration) bool {
	return now.Sub(s.heard) <= within && !s.left && a.Incarnation >= p.latest[a.Node].number
}

// live is how many nodes were heard in that time.
func (p *peers) live(now time.Time, within time.Duration) (count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, s := range p.known {
		if p.runs(a, s, now, within) {
			count++
		}
	}
	return count
}

// ahead reports that of the nodes heard in that time more have a clock ahead of now, by more than
// so much, than have not.
func (p *peers) ahead(now time.Time, within, by time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := 0
	for a, s := range p.known {
		switch {
		case !p.runs(a, s, now, within):
		case s.sent.Sub(now) > by:
			more++
		default:
			more--
		}
	}
	return more > 0
}

// last is when another node was heard last; if none was, when this one was opened.
func (p *peers) last(opened time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.known {
		if s.heard.After(opened) {
			opened = s.heard
		}
	}
	return opened
}

// heard is when a message of the actor came last; of one that never did, when this node
// was opened.
func (p *peers) heard(a crdt.Actor, opened time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.known[a]; s != nil && !s.heard.IsZero() {
		return s.heard
	}
	return opened
}

// list compares totals with this node's own, of those that were sent since a time.
func (p *peers) list(now, since time.Time, total uint64) (list []Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, s := range p.known {
		if !p.runs(a, s, now, peerTime) {
			continue
		}
		differs := max(total, s.total) - min(total, s.total)
		if s.sent.Before(since) {
			differs = 0
		}
		list = append(list, Peer{a, s.heard, s.lag, s.total, differs})
	}
	slices.SortFunc(list, func(a, b Peer) int { return a.Actor.Compare(b.Actor) })
	return list
}

// reused reports, the first time, that the node's own incarnation was used before.
func (p *peers) reused(me crdt.Actor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.known[me]
	if s == nil {
		s = &peer{}
		p.known[me] = s
	}
	first := !s.conflict
	s.conflict = true
	return first
}
