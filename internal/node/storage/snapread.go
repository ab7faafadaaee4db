package storage

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"slices"
	"syscall"
)

// snapFile is a snapshot in the directory.
type snapFile struct {
	index uint64 // from its name
	size  int64
	meta  SnapshotMeta
	good  bool  // its checksum was right when last read
	why   error // it is not good
}

// SnapshotReader gives the body of a snapshot piece by piece, to load it or to
// send it. It stays readable when newer snapshots replace the file.
type SnapshotReader struct {
	path   string
	file   File
	head   snapHead
	off    int64 // next byte of the body
	hash   hash.Hash
	advice string // should it be damaged
}

// openSnap reads header and membership and checks that they belong here.
func openSnap(f File, path string, index uint64, id identity) (*SnapshotReader, error) {
	r, err := readSnap(f, path)
	if err != nil {
		return nil, err
	}
	if h := &r.head; h.cluster != id.cluster || h.meta.Index != index {
		return nil, fmt.Errorf("%w: it is of cluster %d at index %d", ErrDamaged, h.cluster, h.meta.Index)
	}
	return r, nil
}

// readSnap reads header and membership of whosever snapshot it is.
func readSnap(f File, path string) (*SnapshotReader, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(snapHeader, size))
	if err := readFull(f, b, 0); err != nil {
		return nil, err
	}
	h, conf, err := decodeSnapHead(b, size)
	if err != nil {
		return nil, err
	}
	h.meta.Conf = make([]byte, conf)
	if err := readFull(f, h.meta.Conf, snapHeader); err != nil {
		return nil, err
	}
	return &SnapshotReader{path: path, file: f, head: h, hash: sha256.New(), advice: adviseDamaged}, nil
}

// Meta returns what the snapshot is of.
func (r *SnapshotReader) Meta() SnapshotMeta { return r.head.meta }

// Size returns the length of the body in bytes.
func (r *SnapshotReader) Size() int64 { return r.head.body }

// Sum returns the SHA-256 of the whole; see [SnapshotWriter.Sum].
func (r *SnapshotReader) Sum() [sha256.Size]byte { return r.head.sum }

// Read implements io.Reader. The end is io.EOF only if the checksum over
// everything read is right, and ErrDamaged otherwise: do not use what was read
// before io.EOF has come.
func (r *SnapshotReader) Read(p []byte) (int, error) {
	left := r.head.body - r.off
	if left == 0 {
		return 0, r.finish()
	}
	p = p[:min(int64(len(p)), left)]
	if err := readFull(r.file, p, snapHeader+int64(len(r.head.meta.Conf))+r.off); err != nil {
		return 0, failed("read", r.path, err, adviseAccess)
	}
	r.off += int64(len(p))
	r.hash.Write(p)
	return len(p), nil
}

func (r *SnapshotReader) finish() error {
	if r.hash == nil {
		return io.EOF
	}
	got := r.head
	got.seal(r.hash)
	if got.sum != r.head.sum {
		return &Error{Op: "read", File: r.path, Offset: snapHeader, Err: fmt.Errorf("%w: the checksum over the snapshot is wrong", ErrDamaged), Advice: r.advice}
	}
	r.hash = nil
	return io.EOF
}

// Close lets go of the file.
func (r *SnapshotReader) Close() error { return r.file.Close() }

// check reads the snapshot to its end.
func (r *SnapshotReader) check() error {
	buf := make([]byte, min(max(r.head.body, 1), 256<<10))
	for {
		if _, err := r.Read(buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// loadSnapshots finds the newest readable snapshot that fits the log. It reads
// them from the newest on until one is good, or all of them if asked to; of the
// others only the header.
func (m *image) loadSnapshots(all bool) error {
	nos := numbered(m.names, snapPrefix)
	slices.Reverse(nos)
	found := false
	for _, index := range nos {
		s := snapFile{index: index}
		needed := !found && index >= m.idx.st.base.Index
		if err := m.loadSnapshot(&s, all || needed); err != nil {
			return err
		}
		if !m.damaged() && s.good && index >= m.idx.st.base.Index && !m.fitsLog(s.meta) {
			// Of an installation without its reset record, which was never written.
			m.leftovers = append(m.leftovers, snapName(index))
			continue
		}
		m.snaps = append(m.snaps, s)
		found = found || needed && s.good
	}
	if !found && !m.damaged() && m.idx.st.base.Index > 0 {
		m.loseSnapshot()
	}
	return nil
}

// loadSnapshot reads one snapshot file, with its body or without.
func (m *image) loadSnapshot(s *snapFile, whole bool) error {
	name := snapName(s.index)
	err := m.readSnapshot(name, s, whole)
	switch {
	case errors.Is(err, ErrVersion):
		return failed("open", filepath.Join(m.dir, name), err, adviseVersion)
	case errors.Is(err, ErrDamaged) || errors.Is(err, syscall.EIO):
		s.why = err
		m.found.note(name, 0, BadSnapshot, "%v", err)
	case err != nil:
		return failed("read", filepath.Join(m.dir, name), err, adviseAccess)
	default:
		s.good = true
	}
	return nil
}

func (m *image) readSnapshot(name string, s *snapFile, whole bool) error {
	path := filepath.Join(m.dir, name)
	f, err := m.fs.OpenRead(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.size, err = f.Size(); err != nil {
		return err
	}
	r, err := openSnap(f, path, s.index, m.id)
	if err != nil {
		return err
	}
	s.meta = r.head.meta
	if !whole {
		return nil
	}
	return r.check()
}

// fitsLog reports whether the log goes on where the snapshot ends.
func (m *image) fitsLog(meta SnapshotMeta) bool {
	term, err := m.idx.term(meta.Index)
	return err == nil && term == meta.Term
}

// loseSnapshot: the beginning of the log is gone and no snapshot replaces it.
func (m *image) loseSnapshot() {
	base := m.idx.st.base.Index
	for _, s := range m.snaps {
		if s.index >= base {
			m.found.damage(snapName(s.index), 0, LostSnapshot, "the log begins only at %d, and: %v", base+1, s.why)
			return
		}
	}
	m.found.damage(snapName(base), 0, LostSnapshot, "missing, and the log begins only at %d", base+1)
}
