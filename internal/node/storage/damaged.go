package storage

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Salvage opens what is left of a store, damaged or not and whichever node it belongs
// to, for reading only: the newest readable snapshot and the entries that follow
// it without a gap, up to the first damage. Recovered.Findings says what is
// missing. It changes nothing, and every call that writes returns fs.ErrPermission.
//
// It is for tools, and for the operator that accepts a loss: what it returns
// belongs into a new directory, under a new cluster id. No voter may go on with
// it, for it may have acknowledged more.
func Salvage(fsys FS, dir string) (*Store, Recovered, error) {
	m, lock, err := examine(fsys, dir)
	if err != nil {
		return nil, Recovered{}, err
	}
	s := &Store{fs: fsys, dir: dir, id: m.id, lock: lock, idx: m.idx, segs: m.segs, snaps: m.snaps}
	s.opts.Group = m.group
	s.readonly = failed("write", dir, fs.ErrPermission, "it was opened by Salvage, for reading only")
	s.connect()
	rec := s.recovered()
	rec.Findings = m.found
	if rec.Last == 0 && m.damaged() {
		s.release()
		return nil, Recovered{}, m.err()
	}
	return s, rec, nil
}

// connect forgets the entries if they do not follow the newest snapshot.
func (s *Store) connect() {
	snap := s.newest()
	if term, err := s.idx.term(snap.Index); err == nil && term == snap.Term {
		return
	}
	s.idx = index{st: state{hs: s.idx.st.hs, base: snap.Point(), last: snap.Index}}
}

// Reject takes the snapshot at index for a damaged one, though its checksum is right: its content
// makes no state. If the log goes on from another, the finding is no damage and there is no error; else
// a store that Salvage opened goes on with what an older one has.
func (s *Store) Reject(index uint64, why error) (Finding, error) {
	s.mu.Lock()
	for i := range s.snaps {
		if f := &s.snaps[i]; f.index == index {
			f.good, f.why = false, why
		}
	}
	s.mu.Unlock()
	f := Finding{File: snapName(index), Kind: BadSnapshot, Damage: len(s.Bases()) == 0, Detail: why.Error()}
	if !f.Damage {
		return f, nil
	}
	if s.readonly != nil {
		s.connect()
	}
	return f, f.err(s.dir)
}

// MoveAside renames all files of a damaged store within dir, so that the next
// Open makes a new one and the old one can still be examined. It returns the
// prefix that the names got: "damaged-1-", or the first number that is free. The
// identity goes last, finished or not: cut short, the directory is still a damaged store.
//
// Danger: a healthy store that is moved aside lets the node forget its votes. The
// node must not come back under its old id.
func MoveAside(fsys FS, dir string) (string, error) {
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return "", lockFailed(dir, err)
	}
	defer lock.Close()
	names, err := fsys.List(dir)
	if err != nil {
		return "", failed("list", dir, err, adviseAccess)
	}
	prefix := freePrefix(names)
	slices.SortStableFunc(names, func(a, b string) int { return identityLast(a) - identityLast(b) })
	for _, name := range names {
		if !known(name) {
			continue
		}
		if identityLast(name) > 0 {
			if err := fsys.SyncDir(dir); err != nil {
				return "", failed("sync directory", dir, err, adviseAccess)
			}
		}
		if err := fsys.Rename(filepath.Join(dir, name), filepath.Join(dir, prefix+name)); err != nil {
			return "", failed("rename", filepath.Join(dir, name), err, adviseAccess)
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return "", failed("sync directory", dir, err, adviseAccess)
	}
	return prefix, nil
}

// Aside reports whether files of a damaged store lie in dir, moved aside: what begins
// there is not the first that promises something under its name.
func Aside(fsys FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return false, failed("list", dir, err, adviseAccess)
	}
	return slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, asidePrefix) }), nil
}

// asidePrefix is what the names of files begin with that were moved aside.
const asidePrefix = "damaged-"

func identityLast(name string) int {
	if name == identityName || name == unfinishedName {
		return 1
	}
	return 0
}

func freePrefix(names []string) string {
	for n := 1; ; n++ {
		prefix := fmt.Sprintf(asidePrefix+"%d-", n)
		if !slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, prefix) }) {
			return prefix
		}
	}
}
