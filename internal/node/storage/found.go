package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
)

// Found makes a new store in dir with a log that begins with the snapshot that body
// writes, for a cluster that goes on from the state of another. dir must be
// missing or empty, or what Found left when it was cut short; what it holds otherwise is
// not touched. Once it has begun to write, and until it has finished, Open refuses the directory
// as damaged: a store that began there would be an empty one in the place of that state.
func Found(fsys FS, dir string, o Options, meta SnapshotMeta, body func(io.Writer) error) error {
	o, err := o.filled()
	if err != nil {
		return err
	}
	if err := vacant(fsys, dir); err != nil {
		return err
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return failed("make", dir, err, adviseAccess)
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return lockFailed(dir, err)
	}
	s := &Store{fs: fsys, dir: dir, opts: o, lock: lock}
	defer s.release()
	if err := vacant(fsys, dir); err != nil {
		return err
	}
	return again(s.found(meta, body))
}

// again says what to do when Found could not write: there is no node yet that could be started
// again, and what is there already does not hinder Found.
func again(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Advice != adviseRestart {
		return err
	}
	told := *e
	told.Advice = adviseRewrite
	return &told
}

func (s *Store) found(meta SnapshotMeta, body func(io.Writer) error) error {
	s.id = s.opts.identity()
	if err := s.writeIdentity(unfinishedName); err != nil {
		return err
	}
	names, err := s.fs.List(s.dir)
	if err != nil {
		return failed("list", s.dir, err, adviseAccess)
	}
	if err := s.prepare(names); err != nil {
		return err
	}
	w, err := s.NewSnapshot(meta)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := body(w); err != nil {
		return err
	}
	if err := s.InstallSnapshot(w, Batch{HardState: HardState{Term: meta.Term, Commit: meta.Index}}); err != nil {
		return err
	}
	return s.steps(
		step{"rename", s.path(unfinishedName), func() error { return s.fs.Rename(s.path(unfinishedName), s.path(identityName)) }},
		step{"sync directory", s.dir, s.finish},
	)
}

// finish makes the name of the identity durable. If that fails the store stays unfinished, so that Found
// can begin again, and no node starts on a name that the disk may not have.
func (s *Store) finish() error {
	err := s.fs.SyncDir(s.dir)
	if err != nil {
		_ = s.fs.Rename(s.path(identityName), s.path(unfinishedName))
	}
	return err
}

// unfinishedName is the identity of a store that Found has not finished.
const unfinishedName = "unfinished"

// isUnfinished: Found was cut short. All that is known there is of its making.
func isUnfinished(names []string) bool {
	return slices.Contains(names, unfinishedName) && !slices.Contains(names, identityName)
}

// vacant refuses a directory that holds anything but the lock file and what an
// unfinished creation leaves behind.
func vacant(fsys FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed("list", dir, err, adviseAccess)
	}
	used := ""
	if !isUnfinished(names) {
		m := &image{fs: fsys, dir: dir, names: names}
		if used, err = m.usedFile(); err != nil {
			return err
		}
	}
	foreign := func(name string) bool { return name == identityName || name != lockName && !known(name) }
	if i := slices.IndexFunc(names, foreign); used == "" && i >= 0 {
		used = names[i]
	}
	if used != "" {
		return failed("begin in", filepath.Join(dir, used), fmt.Errorf("the directory is not empty: %w", fs.ErrExist), adviseEmpty)
	}
	return nil
}

// Owner tells which node's store dir is; zeros if there is none.
func Owner(fsys FS, dir string) (clusterID, nodeID uint64, err error) {
	m := &image{fs: fsys, dir: dir}
	m.names, err = fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !slices.Contains(m.names, identityName) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, failed("list", dir, err, adviseAccess)
	}
	if err := m.loadIdentity(); err != nil {
		return 0, 0, err
	}
	return m.id.cluster, m.id.node, m.err()
}

// Former tells the number that the node of dir was started with before its group
// gave it another; 0 if there is none.
func Former(fsys FS, dir string) (uint64, error) {
	m := &image{fs: fsys, dir: dir}
	var err error
	if m.names, err = fsys.List(dir); err != nil || !slices.Contains(m.names, identityName) {
		return 0, nil // told when it is opened
	}
	if err := m.loadIdentity(); err != nil {
		return 0, err
	}
	return m.id.former, m.err()
}
