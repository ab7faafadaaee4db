package storage

import (
	"cmp"
	"slices"
)

// CreateSnapshot ends w as a snapshot of this node's own state: durable, and
// from now on the newest. The last two are kept, older ones removed. Its index
// must lie in the log, and the entry there have its term.
func (s *Store) CreateSnapshot(w *SnapshotWriter) error {
	if err := s.publishOwn(w); err != nil {
		return err
	}
	return s.keep(2)
}

// ReplaceSnapshots ends w like CreateSnapshot and removes every other snapshot,
// newer ones too: for a node with a state that was found to be wrong. Before it
// returns, a restart may still find the old ones.
func (s *Store) ReplaceSnapshots(w *SnapshotWriter) error {
	if err := s.publishOwn(w); err != nil {
		return err
	}
	only := slices.IndexFunc(s.snaps, func(f snapFile) bool { return f.index == w.head.meta.Index })
	s.mu.Lock()
	s.snaps[0], s.snaps[only] = s.snaps[only], s.snaps[0]
	s.mu.Unlock()
	if err := s.keep(1); err != nil {
		return err
	}
	return s.believe()
}

// publishOwn makes w durable if the log has its place. It vouches for the log
// first: were the record with that place to go bad unnoticed, the snapshot would
// look like an installation that was cut short.
func (s *Store) publishOwn(w *SnapshotWriter) error {
	if err := s.usable(); err != nil {
		return err
	}
	meta := w.head.meta
	if term, err := s.idx.term(meta.Index); err != nil || term != meta.Term {
		return invalid("snapshot", "the log %d..%d has no entry %d of term %d", s.idx.st.base.Index, s.idx.st.last, meta.Index, meta.Term)
	}
	if err := s.Mark(); err != nil {
		return err
	}
	return w.publish()
}

// InstallSnapshot ends w as a snapshot received from the leader. In one record
// the log forgets all its entries, goes on behind the snapshot, and takes over
// b: were the old entries to come back after a crash, this node would compare
// candidates with a log that the cluster has overruled. With ErrNoRoom nothing has
// changed: install it again when there is room, if w was synced; else it is given up.
func (s *Store) InstallSnapshot(w *SnapshotWriter, b Batch) error {
	if err := s.usable(); err != nil {
		return err
	}
	point := w.head.meta.Point()
	if point.Index < s.idx.st.base.Index || point.Index < s.idx.st.hs.Commit {
		return invalid("install", "index %d is behind the log at %d, committed %d", point.Index, s.idx.st.base.Index, s.idx.st.hs.Commit)
	}
	if b.HardState != (HardState{}) {
		b.HardState.Commit = max(b.HardState.Commit, point.Index)
	}
	hs, err := s.check("install", b, point, point.Index)
	if err != nil {
		return err
	}
	hs.Commit = max(hs.Commit, point.Index)
	r := &record{header: header{flags: flagReset, hs: hs}, point: point, entries: b.Entries}
	if err := s.fit(int64(recordSize(r))); err != nil {
		return err // with ErrNoRoom nothing has changed, and w can be installed later
	}
	if err := w.publish(); err != nil {
		return err
	}
	if err := s.SaveVote(hs.Term, hs.Vote); err != nil {
		return err
	}
	if err := s.write(r); err != nil {
		return s.step("install", "", err) // the snapshot has its name already
	}
	return s.afterInstall()
}

// afterInstall clears away what the snapshot replaced.
func (s *Store) afterInstall() error {
	if err := s.Mark(); err != nil {
		return err
	}
	if err := s.keep(2); err != nil {
		return err
	}
	if err := s.believe(); err != nil {
		return err
	}
	return s.dropSegments()
}

// addSnap takes a new file into the list.
func (s *Store) addSnap(f snapFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snaps := []snapFile{f}
	for _, old := range s.snaps {
		if old.index == f.index {
			s.used -= old.size
		} else {
			snaps = append(snaps, old)
		}
	}
	slices.SortFunc(snaps, func(a, b snapFile) int { return cmp.Compare(b.index, a.index) })
	s.snaps = snaps
	s.used += f.size
}

// keep removes all but the newest n readable snapshots.
func (s *Store) keep(n int) error {
	var kept, gone []snapFile
	for _, f := range s.snaps {
		if f.good && len(kept) < n {
			kept = append(kept, f)
		} else {
			gone = append(gone, f)
		}
	}
	s.mu.Lock()
	s.snaps = kept
	s.mu.Unlock()
	for _, f := range gone {
		s.addUsed(-f.size)
		if err := s.fs.Remove(s.path(snapName(f.index))); err != nil {
			return s.fail("remove", s.path(snapName(f.index)), err)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return s.step("sync directory", s.dir, s.fs.SyncDir(s.dir))
}

// newest returns the newest readable snapshot.
func (s *Store) newest() SnapshotMeta {
	for _, f := range s.snaps {
		if f.good {
			return f.meta
		}
	}
	return SnapshotMeta{}
}

// Snapshot returns what the newest snapshot is of, zero if there is none.
func (s *Store) Snapshot() (SnapshotMeta, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.newest(), s.err
}

// Bases returns what the readable snapshots are of that the log goes on from, the newest first;
// of a store that was not opened by Salvage only the newest is known to be readable.
func (s *Store) Bases() []SnapshotMeta {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var bases []SnapshotMeta
	for _, f := range s.snaps {
		if term, err := s.idx.term(f.index); f.good && err == nil && term == f.meta.Term {
			bases = append(bases, f.meta)
		}
	}
	return bases
}

// OpenSnapshot opens the snapshot at index for reading; Close the reader. The
// newest one's index is that of Snapshot.
func (s *Store) OpenSnapshot(index uint64) (*SnapshotReader, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	path := s.path(snapName(index))
	f, err := s.fs.OpenRead(path)
	if err != nil {
		return nil, failed("open", path, err, "ask Snapshot for the newest one")
	}
	r, err := openSnap(f, path, index, s.id)
	if err != nil {
		f.Close()
		return nil, failed("open", path, err, adviseDamaged)
	}
	return r, nil
}
