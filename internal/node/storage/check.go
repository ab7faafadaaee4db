package storage

// check refuses a batch that cannot continue a log which begins behind base and
// ends at last, and returns the hard state that the batch leads to. Nothing has
// been changed by then.
func (s *Store) check(op string, b Batch, base Point, last uint64) (HardState, error) {
	hs := s.idx.st.hs
	if b.HardState != (HardState{}) {
		if err := checkVote(hs, b.HardState.Term, b.HardState.Vote); err != nil {
			return hs, err
		}
		if b.HardState.Commit < hs.Commit {
			return hs, invalid(op, "commit goes back from %d to %d", hs.Commit, b.HardState.Commit)
		}
		hs = b.HardState
	}
	if len(b.Entries) > 0 {
		if err := s.checkEntries(op, b.Entries, base, last); err != nil {
			return hs, err
		}
		last = b.Entries[len(b.Entries)-1].Index
	}
	if hs.Commit > last {
		return hs, invalid(op, "commit %d is above the last entry %d", hs.Commit, last)
	}
	return hs, nil
}

func checkVote(hs HardState, term, vote uint64) error {
	if term < hs.Term {
		return invalid("vote", "term goes back from %d to %d", hs.Term, term)
	}
	if term == hs.Term && hs.Vote != 0 && vote != hs.Vote {
		return invalid("vote", "in term %d this node voted for %x and cannot vote for %x", term, hs.Vote, vote)
	}
	return nil
}

func (s *Store) checkEntries(op string, entries []Entry, base Point, last uint64) error {
	first := entries[0].Index
	if first <= base.Index || first > last+1 {
		return invalid(op, "entries from %d do not fit behind %d..%d", first, base.Index, last)
	}
	if size := recordSize(&record{entries: entries}); size > maxBody {
		return invalid(op, "a batch of %d bytes, at most %d", size, maxBody)
	}
	prev := base.Term
	if first-1 != base.Index {
		var err error
		if prev, err = s.idx.term(first - 1); err != nil {
			return failed(op, "", err, "")
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.Index != first+uint64(i) || e.Term < prev {
			return invalid(op, "entry %d of term %d follows entry %d of term %d", e.Index, e.Term, first+uint64(i)-1, prev)
		}
		if err := s.checkCommitted(op, e); err != nil {
			return err
		}
		prev = e.Term
	}
	return nil
}

// checkCommitted refuses to replace a committed entry by another.
func (s *Store) checkCommitted(op string, e *Entry) error {
	if e.Index > s.idx.st.hs.Commit {
		return nil
	}
	if term, err := s.idx.term(e.Index); err == nil && term != e.Term {
		return invalid(op, "entry %d of term %d is committed and cannot become one of term %d", e.Index, term, e.Term)
	}
	return nil
}
