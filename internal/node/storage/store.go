package storage

import (
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// Store is an open directory. One goroutine at a time may call the methods that
// write. Those that only look (FirstIndex, LastIndex, Term, Entries, Replay,
// HardState, Snapshot, OpenSnapshot, Size, Full, Probe) may run beside it.
type Store struct {
	fs   FS
	dir  string
	opts Options
	id   identity
	lock io.Closer
	// readonly is why the store takes no writes, nil if it does.
	readonly error

	// For the writing goroutine alone.
	votes   File
	ballot  ballot
	off     int64 // where the next record goes, in the last segment
	buf     []byte
	temps   int
	spares  []spareFile
	doubted bool    // see Doubt
	copied  *Copied // see Settle

	// mu guards what lookups see; it is never held during input or output.
	mu    sync.RWMutex
	err   error // why the store answers no more
	idx   index
	cache cache
	segs  []*segment
	snaps []snapFile // newest first
	used  int64
	memo  memo

	low atomic.Pointer[string] // why there is less room than Options.Reserve, when that was last seen; nil: there is not
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// tempName returns a name that Open clears away.
func (s *Store) tempName() string {
	s.temps++
	return s.path(fmt.Sprintf("%s%d", tempPrefix, s.temps))
}

// usable returns the error that ended the store, or nil.
func (s *Store) usable() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.err
}

// writable returns why nothing can be written, or nil.
func (s *Store) writable() error {
	if err := s.usable(); err != nil {
		return err
	}
	return s.readonly
}

// fail ends the store: from now on every call returns this error. A second
// failure does not hide the first.
func (s *Store) fail(op, file string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = failed(op, file, err, adviseRestart)
	}
	return s.err
}

// step is one operation on a file; steps runs them until one fails, which ends
// the store.
type step struct {
	op, file string
	do       func() error
}

func (s *Store) steps(list ...step) error {
	for _, st := range list {
		if err := st.do(); err != nil {
			return s.fail(st.op, st.file, err)
		}
	}
	return nil
}

// step ends the store if err is not nil.
func (s *Store) step(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return s.fail(op, file, err)
}

func (s *Store) addUsed(n int64) {
	s.mu.Lock()
	s.used += n
	s.mu.Unlock()
}

// Size returns the bytes that the files take, preallocated space included.
func (s *Store) Size() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.used
}

// Append makes a batch durable: one record, one sync. If it fails with ErrNoRoom
// nothing was appended, and it can be called again. A batch that changes term
// or vote also goes through SaveVote; one that changes only Commit is kept in
// memory and goes with the next record, since raft does not need it durable.
func (s *Store) Append(b Batch) error {
	if err := s.writable(); err != nil {
		return err
	}
	hs, err := s.check("append", b, s.idx.st.base, s.idx.st.last)
	if err != nil {
		return err
	}
	if err := s.SaveVote(hs.Term, hs.Vote); err != nil {
		return err
	}
	if len(b.Entries) == 0 {
		s.setHardState(hs)
		return nil
	}
	return s.write(&record{header: header{hs: hs}, entries: b.Entries})
}

func (s *Store) setHardState(hs HardState) {
	s.mu.Lock()
	s.idx.st.hs = hs
	s.mu.Unlock()
}

// SaveVote returns once term and vote are durable in both slots of the vote
// file. Only then may a vote leave the node.
func (s *Store) SaveVote(term, vote uint64) error {
	if err := s.writable(); err != nil {
		return err
	}
	hs := s.idx.st.hs
	if hs.Term == term && hs.Vote == vote {
		return nil
	}
	if err := checkVote(hs, term, vote); err != nil {
		return err
	}
	if err := s.vouch(term, vote); err != nil {
		return err
	}
	hs.Term, hs.Vote = term, vote
	s.setHardState(hs)
	return nil
}

// Mark writes into the vote file that the log is durable up to here. Until then
// a flipped bit in the last record looks like a torn write; afterwards it is
// damage. It costs two syncs: call it when there is nothing else to do.
func (s *Store) Mark() error {
	if err := s.writable(); err != nil {
		return err
	}
	if s.ballot.seq == s.idx.st.seq {
		return nil
	}
	return s.vouch(s.idx.st.hs.Term, s.idx.st.hs.Vote)
}

// Compact lets go of the entries up to index, which a durable snapshot must
// cover. Whole files become free; the first index after it is index+1. If it fails with
// ErrNoRoom nothing has changed.
func (s *Store) Compact(index uint64) error {
	if err := s.writable(); err != nil {
		return err
	}
	if index <= s.idx.st.base.Index {
		return nil
	}
	if newest := s.newest(); index > newest.Index {
		return invalid("compact", "index %d is above the newest snapshot at %d", index, newest.Index)
	}
	term, err := s.idx.term(index)
	if err != nil {
		return failed("compact", "", err, "")
	}
	r := &record{header: header{flags: flagCompact, hs: s.idx.st.hs}, point: Point{index, term}}
	if err := s.write(r); err != nil {
		return err
	}
	if err := s.Mark(); err != nil {
		return err
	}
	return s.dropSegments()
}

// maxBuffer bounds the memory kept for encoding the next record.
const maxBuffer = 4 << 20

// write makes r durable as the next record, then part of the index.
func (s *Store) write(r *record) error {
	size := int64(recordSize(r))
	if err := s.fit(size); err != nil {
		return err
	}
	seg := s.segs[len(s.segs)-1]
	s.fillIn(r)
	s.buf = appendRecord(s.buf[:0], r, seed(s.id.salt, seg.no, s.off))
	if _, err := seg.file.WriteAt(s.buf, s.off); err != nil {
		return s.fail("write", s.path(seg.name), err)
	}
	if cap(s.buf) > maxBuffer {
		s.buf = nil
	}
	if err := seg.file.Sync(); err != nil {
		return s.fail("sync", s.path(seg.name), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idx.apply(r, span{seg: seg, off: s.off, size: size})
	s.cache.apply(r, s.opts.CacheBytes)
	s.off += size
	return nil
}

// fit has a segment with room for a record of size bytes.
func (s *Store) fit(size int64) error {
	if last := s.segs[len(s.segs)-1]; s.off+size > last.size {
		return s.roll(size)
	}
	return nil
}

// fillIn completes the header of the next record.
func (s *Store) fillIn(r *record) {
	st := &s.idx.st
	r.seq, r.prev, r.mark, r.group = st.seq+1, st.chain, st.last, s.opts.Group
	if n := len(r.entries); n > 0 {
		r.flags |= flagEntries
		r.first, r.count = r.entries[0].Index, uint32(n)
	}
}

// roll begins a new segment. The last record of the old one is durable, so the
// header of the new one may vouch for it.
func (s *Store) roll(size int64) error {
	h := segHead{
		no:    s.segs[len(s.segs)-1].no + 1,
		group: s.opts.Group,
		size:  max(s.opts.SegmentSize, segmentHeader+size),
		st:    s.idx.st,
	}
	seg, head, err := s.makeSegment(h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.segs = append(s.segs, seg)
	s.idx.st.enter(head)
	s.off = segmentHeader
	s.mu.Unlock()
	s.Probe()
	return s.vouch(s.idx.st.hs.Term, s.idx.st.hs.Vote)
}

// Close vouches for the last record and lets go of the directory. After an error
// that ended the store it only lets go, and returns that error.
func (s *Store) Close() error {
	var err error
	if s.readonly == nil {
		if err = s.Mark(); err == nil {
			err = s.notePlace(true)
		}
	}
	s.mu.Lock()
	if s.err == nil {
		s.err = &Error{Op: "use", File: s.dir, Offset: -1, Err: ErrClosed}
	}
	s.mu.Unlock()
	s.release()
	return err
}

// Directory tells this directory from every other, below 2⁶³ and never 0: other
// nodes know by it that a node was not wiped.
func (s *Store) Directory() uint64 { return s.id.directory() }
