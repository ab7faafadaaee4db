package storage

import (
	"fmt"
	"hash/crc32"
)

// The vote file has two slots, a page apart so that one torn page never takes
// both. A vote leaves the node only after both carry it: were it in one, a
// flipped bit there would look like a torn write, the older slot would win, and
// the node could vote twice in a term.
const (
	voteName   = "vote"
	slotSize   = 64
	slotStride = 4096
	voteSize   = 2 * slotStride
	voteMagic  = "HFV1"
)

// ballot is the content of a slot: the vote, and what the log is known to hold.
type ballot struct {
	counter    uint64 // grows with each write; the higher valid slot wins
	term, vote uint64
	seq        uint64 // this record of the log is durable
	segment    uint64 // this segment exists
}

func slotOffset(slot int) int64 { return int64(slot) * slotStride }

func encodeSlot(b ballot, slot int, salt uint64) []byte {
	p := make([]byte, slotSize)
	copy(p[4:], voteMagic)
	for i, v := range [...]uint64{b.counter, b.term, b.vote, b.seq, b.segment} {
		le.PutUint64(p[8+8*i:], v)
	}
	p[48] = formatVersion
	le.PutUint32(p, crc32.Update(seed(salt, ^uint64(0), slotOffset(slot)), castagnoli, p[4:]))
	return p
}

func decodeSlot(p []byte, slot int, salt uint64) (ballot, error) {
	if len(p) < slotSize || string(p[4:8]) != voteMagic {
		return ballot{}, fmt.Errorf("%w: no vote slot", ErrDamaged)
	}
	p = p[:slotSize]
	if le.Uint32(p) != crc32.Update(seed(salt, ^uint64(0), slotOffset(slot)), castagnoli, p[4:]) {
		return ballot{}, fmt.Errorf("%w: checksum of the vote slot", ErrDamaged)
	}
	if p[48] != formatVersion {
		return ballot{}, fmt.Errorf("%w: vote format %d, this program knows %d", ErrVersion, p[48], formatVersion)
	}
	u := func(i int) uint64 { return le.Uint64(p[8+8*i:]) }
	b := ballot{u(0), u(1), u(2), u(3), u(4)}
	return b, exact(p, encodeSlot(b, slot, salt))
}

// writeSlots makes b durable in both slots, one after the other, the slot in
// order[0] first: it must be the one that is not needed should this be cut short.
func (s *Store) writeSlots(b ballot, order [2]int) error {
	b.counter = s.ballot.counter + 1
	name := s.path(voteName)
	for _, slot := range order {
		if _, err := s.votes.WriteAt(encodeSlot(b, slot, s.id.salt), slotOffset(slot)); err != nil {
			return s.fail("write", name, err)
		}
		if err := s.votes.Sync(); err != nil {
			return s.fail("sync", name, err)
		}
	}
	s.ballot = b
	return nil
}

// vouch writes term and vote together with what the log is known to hold.
func (s *Store) vouch(term, vote uint64) error {
	b := ballot{term: term, vote: vote, seq: s.idx.st.seq, segment: s.segs[len(s.segs)-1].no}
	return s.writeSlots(b, [2]int{0, 1})
}

// castVote joins what slots and log say. The higher term wins; two votes in one
// term cannot both have been ours.
func castVote(log HardState, b ballot) (HardState, error) {
	switch {
	case b.term > log.Term:
		log.Term, log.Vote = b.term, b.vote
	case b.term == log.Term && log.Vote == 0:
		log.Vote = b.vote
	case b.term == log.Term && b.vote != 0 && b.vote != log.Vote:
		return log, fmt.Errorf("%w: in term %d the log voted for %x and the vote file for %x", ErrDamaged, b.term, log.Vote, b.vote)
	}
	return log, nil
}
