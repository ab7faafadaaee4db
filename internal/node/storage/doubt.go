package storage

// doubtName is a file without content: while it is there, the state is known to be wrong.
const doubtName = "differs"

// Doubt notes that the state in this store, snapshots and what follows from them, was found to
// be wrong, though no checksum is. The next start is told ([Recovered.Doubted]), until ReplaceSnapshots or
// InstallSnapshot has brought another state, or the one to go on with. With ErrNoRoom nothing has changed.
func (s *Store) Doubt() error {
	if err := s.writable(); err != nil || s.doubted {
		return err
	}
	name := s.path(doubtName)
	f, err := s.fs.Create(name)
	if err != nil {
		return s.unmade(name, err)
	}
	s.doubted = true
	return s.steps(
		step{"close", name, f.Close},
		step{"sync directory", s.dir, func() error { return s.fs.SyncDir(s.dir) }},
	)
}

// believe ends the doubt: another state is durable.
func (s *Store) believe() error {
	if !s.doubted {
		return nil
	}
	s.doubted = false
	name := s.path(doubtName)
	return s.steps(
		step{"remove", name, func() error { return s.fs.Remove(name) }},
		step{"sync directory", s.dir, func() error { return s.fs.SyncDir(s.dir) }},
	)
}
