package storage

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// create makes a new store. The identity comes last: a directory without one has
// never promised anything, and a crash on the way leaves one that is made again.
func (s *Store) create(m *image) (Recovered, error) {
	if err := m.virgin(); err != nil {
		return Recovered{}, err
	}
	s.id = s.opts.identity()
	if err := s.prepare(m.names); err != nil {
		return Recovered{}, err
	}
	if err := s.createIdentity(); err != nil {
		return Recovered{}, err
	}
	if err := s.notePlace(false); err != nil {
		return Recovered{}, err
	}
	rec := s.recovered()
	rec.Fresh = true
	return rec, nil
}

// prepare makes all of a new store but its identity, in the place of what was left of names.
func (s *Store) prepare(names []string) error {
	var leftovers []string
	for _, name := range names {
		if name != voteName && name != unfinishedName && known(name) {
			leftovers = append(leftovers, name)
		}
	}
	if err := s.clear(leftovers); err != nil {
		return err
	}
	if err := s.fits(); err != nil {
		return err
	}
	if err := s.createVotes(); err != nil {
		return err
	}
	h := segHead{no: 1, group: s.opts.Group, size: s.opts.SegmentSize}
	seg, head, err := s.makeSegment(h)
	if err != nil {
		return err
	}
	s.segs, s.off = []*segment{seg}, segmentHeader
	s.idx.st.enter(head)
	s.used = voteSize + identitySize + seg.size
	return nil
}

func (s *Store) createVotes() error {
	name := s.path(voteName)
	f, err := s.fs.Create(name)
	if err != nil {
		return s.fail("create", name, err)
	}
	s.votes = f
	if _, err := f.WriteAt(make([]byte, voteSize), 0); err != nil {
		return s.fail("write", name, err)
	}
	return s.writeSlots(ballot{segment: 1}, [2]int{0, 1})
}

// identity is that of a new store.
func (o Options) identity() identity {
	return identity{cluster: o.ClusterID, node: o.NodeID, salt: o.Salt}
}

func (s *Store) createIdentity() error { return s.writeIdentity(identityName) }

// writeIdentity makes a file of the identity, whole or not at all.
func (s *Store) writeIdentity(as string) error {
	temp, name := s.tempName(), s.path(as)
	f, err := s.fs.Create(temp)
	if err != nil {
		return s.fail("create", temp, err)
	}
	defer f.Close()
	return s.steps(
		step{"write", temp, func() error { _, err := f.WriteAt(encodeIdentity(s.id), 0); return err }},
		step{"sync", temp, f.Sync},
		step{"rename", temp, func() error { return s.fs.Rename(temp, name) }},
		step{"sync directory", s.dir, func() error { return s.fs.SyncDir(s.dir) }},
	)
}

// Renumber gives the node of an empty store another number: one that a group gave
// it in the place of the one that it came with, which [Former] remembers. A store
// that has ever promised anything is refused; a term that it has heard of is no promise.
func (s *Store) Renumber(node uint64) error {
	if s.err != nil {
		return s.err
	}
	if rec := s.recovered(); rec.Last != 0 || rec.HardState.Vote != 0 || rec.HardState.Commit != 0 {
		return failed("renumber", s.dir, errors.New("the store is not empty"), "let the node join with an empty directory")
	}
	s.id.former, s.id.node = cmp.Or(s.id.former, s.id.node), node
	return s.createIdentity()
}

// virgin refuses a directory that has lost its identity: anything in it that a
// creation cut short could not have left proves that there was one.
func (m *image) virgin() error {
	if isUnfinished(m.names) {
		m.found.damage(unfinishedName, 0, Unfinished, "the restore that began here did not finish")
		return m.err()
	}
	file, err := m.usedFile()
	if err != nil || file == "" {
		return err
	}
	m.found.damage(identityName, 0, BadIdentity, "missing, though %s has been in use", file)
	return m.err()
}

func (m *image) usedFile() (string, error) {
	if snaps := numbered(m.names, snapPrefix); len(snaps) > 0 {
		return snapName(snaps[0]), nil
	}
	if spares := numbered(m.names, "spare-"); len(spares) > 0 {
		return spareName(spares[0]), nil
	}
	logs := numbered(m.names, "log-")
	if n := len(logs); n > 0 && logs[n-1] > 1 {
		return segmentName(logs[n-1]), nil
	}
	return m.usedByContent()
}

// usedByContent looks into the two files that a creation makes before the
// identity: in neither has anything been written yet.
func (m *image) usedByContent() (string, error) {
	if slices.Contains(m.names, segmentName(1)) {
		b, err := m.readAll(segmentName(1))
		if err != nil {
			return "", err
		}
		if len(b) > segmentHeader && slices.ContainsFunc(b[segmentHeader:], func(c byte) bool { return c != 0 }) {
			return segmentName(1), nil
		}
	}
	if !slices.Contains(m.names, voteName) {
		return "", nil
	}
	b, err := m.readAll(voteName)
	if err != nil {
		return "", err
	}
	for slot := range 2 {
		if off := slotOffset(slot); int64(len(b)) >= off+slotSize && le.Uint64(b[off+8:]) > 1 {
			return voteName, nil
		}
	}
	return "", nil
}

// known reports whether a name is one that the store gives to its files.
func known(name string) bool {
	for _, prefix := range []string{"log-", "spare-", snapPrefix} {
		if len(numbered([]string{name}, prefix)) > 0 {
			return true
		}
	}
	return name == voteName || name == identityName || name == unfinishedName || name == doubtName || name == placeName || isTemp(name)
}

func isTemp(name string) bool { return strings.HasPrefix(name, tempPrefix) }
