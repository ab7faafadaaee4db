package storage

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
)

// Report is what Verify found in a directory.
type Report struct {
	ClusterID, NodeID, Group uint64
	HardState                HardState
	First, Last              uint64
	Segments                 int
	Records                  uint64 // ever written to this log
	Snapshots                []SnapshotMeta
	Findings                 []Finding
}

// Damaged reports whether anything durable is lost.
func (r Report) Damaged() bool {
	_, bad := findings(r.Findings).worst()
	return bad
}

// Verify reads a directory that no process uses, checks every byte that means
// something, and changes nothing. Findings name file, offset and kind. The error
// is for what could not be looked at: no store there, in use, unreadable, of a
// newer version.
func Verify(fsys FS, dir string) (Report, error) {
	m, lock, err := examine(fsys, dir)
	if err != nil {
		return Report{}, err
	}
	m.close()
	if lock != nil {
		lock.Close()
	}
	return m.report(), nil
}

// examine reads a whole directory, damaged or not. On a read-only file system
// there is no lock to take, and no writer either.
func examine(fsys FS, dir string) (*image, io.Closer, error) {
	m := &image{fs: fsys, dir: dir}
	var err error
	if m.names, err = fsys.List(dir); err != nil {
		return nil, nil, failed("list", dir, err, "name the directory of a store")
	}
	var lock io.Closer
	if slices.Contains(m.names, lockName) {
		lock, err = fsys.Lock(filepath.Join(dir, lockName))
		if errors.Is(err, ErrLocked) {
			return nil, nil, lockFailed(dir, err)
		}
	}
	if err := m.verify(); err != nil {
		m.close()
		if lock != nil {
			lock.Close()
		}
		return nil, nil, err
	}
	return m, lock, nil
}

func (m *image) verify() error {
	if !slices.Contains(m.names, identityName) {
		if err := m.virgin(); !errors.Is(err, ErrDamaged) {
			return errors.Join(err, failed("verify", m.dir, errors.New("there is no store"), ""))
		}
		return nil
	}
	if err := m.loadIdentity(); err != nil || m.damaged() {
		return err
	}
	return m.load(true)
}

func (m *image) report() Report {
	r := Report{
		ClusterID: m.id.cluster, NodeID: m.id.node, Group: m.group,
		HardState: m.idx.st.hs, First: m.idx.st.base.Index + 1, Last: m.idx.st.last,
		Segments: len(m.segs), Records: m.idx.st.seq,
		Findings: m.found,
	}
	for _, s := range m.snaps {
		if s.good {
			r.Snapshots = append(r.Snapshots, s.meta)
		}
	}
	for _, name := range m.leftovers {
		r.Findings = append(r.Findings, Finding{File: name, Kind: Leftover, Detail: "the next start removes it"})
	}
	return r
}
