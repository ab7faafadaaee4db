package storage

import (
	"fmt"
	"iter"
)

// cache holds the newest entries without a gap, up to a number of bytes.
type cache struct {
	entries []Entry
	bytes   int64
}

// apply follows what a record does to the log. Lookups may still hold parts of
// the slice: no element in it is ever changed, only left behind.
func (c *cache) apply(r *record, limit int64) {
	if r.flags&flagReset != 0 {
		*c = cache{}
	}
	if len(r.entries) == 0 {
		return
	}
	size := memory(r.entries...)
	if size > limit {
		*c = cache{}
		return
	}
	c.cut(r.first)
	c.entries = append(c.entries, r.entries...)
	c.bytes += size
	for c.bytes > limit {
		c.bytes -= memory(c.entries[0])
		c.entries = c.entries[1:]
	}
}

// cut drops the entries from index on; appending then copies the rest.
func (c *cache) cut(index uint64) {
	tail := c.from(index)
	if len(tail) == 0 {
		if len(c.entries) > 0 && index < c.entries[0].Index {
			*c = cache{}
		}
		return
	}
	n := len(c.entries) - len(tail)
	c.entries = c.entries[:n:n]
	c.bytes -= memory(tail...)
}

// memory is about what entries take; empty ones are not for nothing.
func memory(entries ...Entry) (n int64) {
	for i := range entries {
		n += 48 + int64(len(entries[i].Data))
	}
	return n
}

// from returns the cached entries from index on, nil if index is older.
func (c *cache) from(index uint64) []Entry {
	if len(c.entries) == 0 || index < c.entries[0].Index || index-c.entries[0].Index > uint64(len(c.entries)) {
		return nil
	}
	return c.entries[index-c.entries[0].Index:]
}

// memo is the record read back last: lookups often take it in small pieces.
type memo struct {
	seg     *segment
	off     int64
	entries []Entry
}

// FirstIndex returns the index of the first entry in the log; if there is none, the
// one it would get.
func (s *Store) FirstIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.st.base.Index + 1, s.err
}

// LastIndex returns the index of the last entry; if there is none, that of the
// snapshot which the log continues, or 0.
func (s *Store) LastIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.st.last, s.err
}

// Term returns the term of the entry at index. It also knows the one before
// FirstIndex. The error is ErrCompacted below and ErrUnavailable above the log.
func (s *Store) Term(index uint64) (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.idx.term(index)
}

// HardState returns the current one, its Commit perhaps not yet durable.
func (s *Store) HardState() (HardState, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.st.hs, s.err
}

// Entries returns entries from lo up to but not including hi, as many as fit
// into maxBytes of data, but at least one. The error is ErrCompacted below and
// ErrUnavailable above the log. What is no longer in memory is read from disk
// and checked. The entries are shared: do not change them.
func (s *Store) Entries(lo, hi, maxBytes uint64) ([]Entry, error) {
	var out []Entry
	for lo < hi {
		piece, err := s.piece(lo, hi)
		if err != nil {
			return nil, err
		}
		for i := range piece {
			size := uint64(len(piece[i].Data))
			if size > maxBytes && len(out) > 0 {
				return out, nil
			}
			out = append(out, piece[i])
			maxBytes -= min(size, maxBytes)
		}
		lo += uint64(len(piece))
	}
	return out, nil
}

// piece returns some of the entries lo..hi-1, beginning with lo.
func (s *Store) piece(lo, hi uint64) ([]Entry, error) {
	s.mu.RLock()
	at, cached, err := s.locate(lo, hi)
	memo := s.memo
	s.mu.RUnlock()
	if err != nil || len(cached) > 0 {
		return cached, err
	}
	if memo.seg != at.seg || memo.off != at.off {
		if memo.entries, err = s.readBack(at); err != nil {
			return nil, s.readFailed(lo, err)
		}
		memo.seg, memo.off = at.seg, at.off
		s.mu.Lock()
		s.memo = memo
		s.mu.Unlock()
	}
	first := memo.entries[0].Index
	return memo.entries[lo-first : min(hi, at.to+1)-first], nil
}

// locate finds lo in memory, or else on disk.
func (s *Store) locate(lo, hi uint64) (span, []Entry, error) {
	if s.err != nil {
		return span{}, nil, s.err
	}
	if err := s.idx.has(lo); err != nil {
		return span{}, nil, err
	}
	if err := s.idx.has(hi - 1); err != nil {
		return span{}, nil, err
	}
	if found := s.cache.from(lo); found != nil {
		return span{}, found[:min(uint64(len(found)), hi-lo)], nil
	}
	return s.idx.find(lo), nil, nil
}

// readBack reads one record and checks it as Open does.
func (s *Store) readBack(at span) ([]Entry, error) {
	path := s.path(at.seg.name)
	b := make([]byte, at.size)
	if err := readFull(at.seg.file, b, at.off); err != nil {
		return nil, failed("read", path, err, adviseRestart)
	}
	h, ok := readHeader(b, seed(s.id.salt, at.seg.no, at.off))
	if !ok || !h.intact(b) {
		return nil, damagedAt(path, at.off, "%s", BadRecord)
	}
	r, err := h.decode(b, nil)
	if err != nil {
		return nil, damagedAt(path, at.off, "%v", err)
	}
	return r.entries, nil
}

// readFailed tells a file that was recycled meanwhile from one that cannot be
// read; the latter ends the store.
func (s *Store) readFailed(index uint64, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone := s.idx.has(index); gone != nil {
		return gone
	}
	if s.err == nil {
		s.err = err
	}
	return s.err
}

// Replay yields the entries from index on, to the end that the log has when it
// is called. Stop at an error.
func (s *Store) Replay(index uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		last, err := s.LastIndex()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for index <= last {
			piece, err := s.piece(index, last+1)
			if err != nil {
				yield(Entry{}, fmt.Errorf("storage: replay from %d: %w", index, err))
				return
			}
			for i := range piece {
				if !yield(piece[i], nil) {
					return
				}
			}
			index += uint64(len(piece))
		}
	}
}
