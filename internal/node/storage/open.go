package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// Open recovers the store in dir, or makes a new one if dir is empty or missing.
//
// An error means that nothing was changed, unless it comes from writing. Damage
// (ErrDamaged), a foreign directory (ErrForeign), a newer format (ErrVersion), a
// directory in use (ErrLocked) and files that cannot be read or written each
// name the file and the way out.
func Open(fsys FS, dir string, o Options) (*Store, Recovered, error) {
	o, err := o.filled()
	if err != nil {
		return nil, Recovered{}, err
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, Recovered{}, failed("make", dir, err, adviseAccess)
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, Recovered{}, lockFailed(dir, err)
	}
	s := &Store{fs: fsys, dir: dir, opts: o, lock: lock}
	rec, err := s.open()
	if err != nil {
		s.release()
		return nil, Recovered{}, err
	}
	return s, rec, nil
}

func lockFailed(dir string, err error) error {
	advice := adviseAccess
	if errors.Is(err, ErrLocked) {
		advice = adviseLocked
	}
	return failed("lock", filepath.Join(dir, lockName), err, advice)
}

// release closes all handles, once.
func (s *Store) release() {
	s.mu.Lock()
	segs, votes, lock := s.segs, s.votes, s.lock
	s.segs, s.votes, s.lock = nil, nil, nil
	s.mu.Unlock()
	for _, seg := range segs {
		seg.file.Close()
	}
	if votes != nil {
		votes.Close()
	}
	if lock != nil {
		lock.Close()
	}
}

func (s *Store) open() (Recovered, error) {
	m := &image{fs: s.fs, dir: s.dir}
	var err error
	if m.names, err = s.fs.List(s.dir); err != nil {
		return Recovered{}, failed("list", s.dir, err, adviseAccess)
	}
	if !slices.Contains(m.names, identityName) {
		return s.create(m)
	}
	if err := s.loadOwn(m); err != nil {
		m.close()
		return Recovered{}, err
	}
	return s.adopt(m)
}

// loadOwn reads an image and refuses it if it is damaged or not ours.
func (s *Store) loadOwn(m *image) error {
	if err := m.loadIdentity(); err != nil {
		return err
	}
	if err := m.err(); err != nil {
		return err
	}
	if err := m.id.matches(s.opts); err != nil {
		return failed("open", s.path(identityName), err, adviseForeign)
	}
	if err := m.load(false); err != nil {
		return err
	}
	if err := m.err(); err != nil {
		return err
	}
	if m.group != s.opts.Group {
		err := fmt.Errorf("%w: the log of group %d, not %d", ErrForeign, m.group, s.opts.Group)
		return failed("open", s.path(m.segs[0].name), err, adviseForeign)
	}
	return nil
}

// adopt takes over an image without damage and makes it good: after it, what
// was read is durable, and what a crash left behind is gone.
func (s *Store) adopt(m *image) (Recovered, error) {
	s.id, s.ballot, s.doubted = m.id, m.ballot, slices.Contains(m.names, doubtName)
	s.idx, s.segs, s.off, s.snaps, s.spares = m.idx, m.segs, m.tail, m.snaps, m.spares
	var err error
	if s.copied, err = s.cameFrom(m); err != nil {
		return Recovered{}, err
	}
	if err := s.openForWriting(); err != nil {
		return Recovered{}, err
	}
	if err := s.mendTail(m.final); err != nil {
		return Recovered{}, err
	}
	if err := s.clear(m.leftovers); err != nil {
		return Recovered{}, err
	}
	if err := s.mendSlots(m.slots); err != nil {
		return Recovered{}, err
	}
	if err := s.measure(); err != nil {
		return Recovered{}, err
	}
	if err := s.notePlace(false); err != nil {
		return Recovered{}, err
	}
	rec := s.recovered()
	rec.Findings = m.found
	for _, name := range m.leftovers {
		rec.Findings = append(rec.Findings, Finding{File: name, Kind: Leftover, Detail: "removed"})
	}
	return rec, nil
}

// openForWriting reopens the files that will be written.
func (s *Store) openForWriting() error {
	tail := s.segs[len(s.segs)-1]
	name := s.path(tail.name)
	f, err := s.fs.Open(name)
	if err != nil {
		return failed("open", name, err, adviseAccess)
	}
	tail.file.Close()
	tail.file = f
	if s.votes, err = s.fs.Open(s.path(voteName)); err != nil {
		return failed("open", s.path(voteName), err, adviseAccess)
	}
	return nil
}

// mendTail writes the last record once more, clears the place behind it and
// syncs. The record may have been read from a page that the kernel keeps though
// a sync had failed to write it; and what remains of a torn write behind it must
// not meet the next one.
func (s *Store) mendTail(final span) error {
	seg := s.segs[len(s.segs)-1]
	name := s.path(seg.name)
	b := make([]byte, final.size)
	if err := readFull(seg.file, b, s.off-final.size); err != nil {
		return failed("read", name, err, adviseAccess)
	}
	b = append(b, make([]byte, min(recordHeader, seg.size-s.off))...)
	return s.steps(
		step{"write", name, func() error { _, err := seg.file.WriteAt(b, s.off-final.size); return err }},
		step{"sync", name, seg.file.Sync},
	)
}

// clear removes what a crash left behind, and makes all names durable: a rename
// may have been seen by the last process and not by the disk.
func (s *Store) clear(leftovers []string) error {
	for _, name := range leftovers {
		if err := s.fs.Remove(s.path(name)); err != nil {
			return s.fail("remove", s.path(name), err)
		}
	}
	return s.step("sync directory", s.dir, s.fs.SyncDir(s.dir))
}

// mendSlots writes both slots, first the one that is bad or older.
func (s *Store) mendSlots(readable [2]bool) error {
	order := [2]int{0, 1}
	if readable[0] {
		order = [2]int{1, 0}
	}
	hs, st := s.idx.st.hs, s.idx.st
	return s.writeSlots(ballot{term: hs.Term, vote: hs.Vote, seq: st.seq, segment: s.segs[len(s.segs)-1].no}, order)
}

// measure adds up what the files take and knows the size of each spare.
func (s *Store) measure() error {
	s.used = voteSize + identitySize
	for _, seg := range s.segs {
		s.used += seg.size
	}
	for _, snap := range s.snaps {
		s.used += snap.size
	}
	for i := range s.spares {
		size, err := s.fileSize(s.spares[i].name)
		if err != nil {
			return err
		}
		s.spares[i].size = size
		s.used += size
	}
	return nil
}

func (s *Store) fileSize(name string) (int64, error) {
	f, err := s.fs.OpenRead(s.path(name))
	if err != nil {
		return 0, failed("open", s.path(name), err, adviseAccess)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, failed("read", s.path(name), err, adviseAccess)
	}
	return size, nil
}

func (s *Store) recovered() Recovered {
	snap := s.newest()
	hs := &s.idx.st.hs
	hs.Commit = max(hs.Commit, snap.Index, s.idx.st.base.Index)
	return Recovered{HardState: *hs, Snapshot: snap, First: s.idx.st.base.Index + 1, Last: s.idx.st.last, Doubted: s.doubted, Copied: s.copied}
}
