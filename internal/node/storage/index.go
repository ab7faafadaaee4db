package storage

import (
	"errors"
	"fmt"
	"sort"
)

// state is what the log as a whole says, record by record.
type state struct {
	seq   uint64 // of the last record
	chain uint32 // checksum that the next record continues
	hs    HardState
	base  Point  // entries up to here are compacted or replaced by a snapshot
	last  uint64 // index of the last entry, base.Index if there is none
}

// span says where the entries from..to are: in one record of one segment.
type span struct {
	from, to uint64
	seg      *segment
	off      int64
	size     int64
}

// termRun: from this index on, entries have this term.
type termRun struct{ from, term uint64 }

// index finds entries. Spans and runs are in ascending order and without gap.
type index struct {
	st    state
	spans []span
	terms []termRun
}

// fits refuses a record that does not continue the log. With valid checksums
// that is a record out of place, not a flipped bit.
func (x *index) fits(r *record, group uint64) error {
	switch {
	case r.group != group:
		return fmt.Errorf("record of group %d in the log of group %d", r.group, group)
	case r.seq != x.st.seq+1 || r.prev != x.st.chain:
		return fmt.Errorf("record %d does not follow record %d", r.seq, x.st.seq)
	case r.mark != x.st.last:
		return fmt.Errorf("entries up to %d were durable, the log before it ends at %d", r.mark, x.st.last)
	case r.flags&(flagReset|flagCompact) != 0 && r.point.Index < x.st.base.Index:
		return fmt.Errorf("goes back from %d to %d", x.st.base.Index, r.point.Index)
	case r.flags&flagCompact != 0 && r.point.Index > x.st.last:
		return fmt.Errorf("compacts up to %d, the log ends at %d", r.point.Index, x.st.last)
	}
	return x.fitEntries(r)
}

func (x *index) fitEntries(r *record) error {
	base, last := x.st.base.Index, x.st.last
	if r.flags&(flagReset|flagCompact) != 0 {
		base = r.point.Index
	}
	if r.flags&flagReset != 0 {
		last = base
	}
	if r.count > 0 && (r.first <= base || r.first > last+1) {
		return fmt.Errorf("entries from %d do not fit behind %d..%d", r.first, base, last)
	}
	return nil
}

// apply makes a durable record part of the log.
func (x *index) apply(r *record, at span) {
	if r.flags&flagReset != 0 {
		x.spans, x.terms = nil, nil
		x.st.last = r.point.Index
	}
	if r.flags&(flagReset|flagCompact) != 0 {
		x.st.base = r.point
		x.forget(r.point.Index)
	}
	if r.count > 0 {
		x.cut(r.first)
		at.from, at.to = r.first, r.first+uint64(r.count)-1
		x.spans = append(x.spans, at)
		x.addTerms(r.entries)
		x.st.last = at.to
	}
	x.st.seq, x.st.chain, x.st.hs = r.seq, r.chain, r.hs
}

// cut drops the entries from index on.
func (x *index) cut(from uint64) {
	n := sort.Search(len(x.spans), func(i int) bool { return x.spans[i].from >= from })
	x.spans = x.spans[:n]
	if n > 0 {
		x.spans[n-1].to = min(x.spans[n-1].to, from-1)
	}
	m := sort.Search(len(x.terms), func(i int) bool { return x.terms[i].from >= from })
	x.terms = x.terms[:m]
}

// forget drops what is only needed for entries up to index.
func (x *index) forget(upTo uint64) {
	n := sort.Search(len(x.spans), func(i int) bool { return x.spans[i].to > upTo })
	x.spans = x.spans[n:]
	m := sort.Search(len(x.terms), func(i int) bool { return x.terms[i].from > upTo+1 })
	x.terms = x.terms[max(m-1, 0):]
}

func (x *index) addTerms(entries []Entry) {
	for i := range entries {
		e := &entries[i]
		if n := len(x.terms); n == 0 || x.terms[n-1].term != e.Term {
			x.terms = append(x.terms, termRun{e.Index, e.Term})
		}
	}
}

// term returns the term of the entry at i, which must lie in base..last.
func (x *index) term(i uint64) (uint64, error) {
	if i == x.st.base.Index {
		return x.st.base.Term, nil
	}
	if err := x.has(i); err != nil {
		return 0, err
	}
	n := sort.Search(len(x.terms), func(k int) bool { return x.terms[k].from > i })
	return x.terms[n-1].term, nil
}

func (x *index) has(i uint64) error {
	if i <= x.st.base.Index {
		return ErrCompacted
	}
	if i > x.st.last {
		return ErrUnavailable
	}
	return nil
}

// find returns the span that holds entry i, which must be in the log.
func (x *index) find(i uint64) span {
	n := sort.Search(len(x.spans), func(k int) bool { return x.spans[k].to >= i })
	return x.spans[n]
}

// covers fails if entries after base are in no segment that is left.
func (x *index) covers() error {
	first := x.st.last + 1
	if len(x.spans) > 0 {
		first = x.spans[0].from
	}
	if first > x.st.base.Index+1 {
		return errors.New("entries " + fmt.Sprintf("%d..%d", x.st.base.Index+1, first-1) + " are in no segment")
	}
	return nil
}
