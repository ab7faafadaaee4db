package storage

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"hash/crc32"
	"slices"
)

// A snapshot file: header, membership, body. docs/storage.md has its bytes.
const (
	snapHeader = 128
	snapMagic  = "HFS1"
	snapPrefix = "snap-"
	tempPrefix = "tmp-"
	maxConf    = 1 << 20
	// syncEvery bounds what one sync of a growing snapshot has to write, so that
	// appends to the log in between never wait for all of it.
	syncEvery = 4 << 20
)

// snapHead is the decoded header.
type snapHead struct {
	cluster, group uint64
	meta           SnapshotMeta
	body           int64
	sum            [sha256.Size]byte
}

func snapName(index uint64) string { return fmt.Sprintf("%s%016x", snapPrefix, index) }

// encode writes the header in front of a membership of conf bytes; seal has
// filled in the sum.
func (h snapHead) encode(conf int) []byte {
	b := h.fields(conf)
	copy(b[64:96], h.sum[:])
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// fields is the header without its two checksums.
func (h snapHead) fields(conf int) []byte {
	b := make([]byte, snapHeader)
	copy(b[4:], snapMagic)
	b[8] = formatVersion
	le.PutUint32(b[12:], uint32(conf))
	for i, v := range [...]uint64{h.cluster, h.group, h.meta.Index, h.meta.Term, uint64(h.body)} {
		le.PutUint64(b[16+8*i:], v)
	}
	return b
}

// seal finishes a checksum that has seen the whole body: it covers the header
// and the membership too.
func (h *snapHead) seal(body hash.Hash) {
	body.Write(h.meta.Conf)
	body.Write(h.fields(len(h.meta.Conf)))
	body.Sum(h.sum[:0])
}

// decodeSnapHead reads the header at the start of a file of the given size. The
// membership is not yet read: conf is its length.
func decodeSnapHead(b []byte, size int64) (h snapHead, conf int64, err error) {
	if len(b) < snapHeader || string(b[4:8]) != snapMagic {
		return h, 0, fmt.Errorf("%w: no snapshot header", ErrDamaged)
	}
	b = b[:snapHeader]
	if le.Uint32(b) != crc32.Checksum(b[4:], castagnoli) {
		return h, 0, fmt.Errorf("%w: checksum of the snapshot header", ErrDamaged)
	}
	if b[8] != formatVersion {
		return h, 0, fmt.Errorf("%w: snapshot format %d, this program knows %d", ErrVersion, b[8], formatVersion)
	}
	u := func(i int) uint64 { return le.Uint64(b[16+8*i:]) }
	h = snapHead{cluster: u(0), group: u(1), meta: SnapshotMeta{Index: u(2), Term: u(3)}, body: int64(u(4))}
	copy(h.sum[:], b[64:96])
	conf = int64(le.Uint32(b[12:]))
	if conf > maxConf || h.body < 0 || h.body > size || snapHeader+conf+h.body != size {
		return h, 0, fmt.Errorf("%w: %d bytes long instead of %d + %d + %d", ErrDamaged, size, snapHeader, conf, h.body)
	}
	return h, conf, exact(b, h.encode(int(conf)))
}

// SnapshotWriter takes a snapshot piece by piece into a temporary file. End it
// with [Store.CreateSnapshot], [Store.InstallSnapshot] or Abort; a crash before
// that leaves nothing behind. It belongs to the goroutine that writes the store.
type SnapshotWriter struct {
	s     *Store
	file  File
	temp  string
	head  snapHead
	hash  hash.Hash
	dirty int64 // bytes that are not synced
	err   error // why it takes no more; nil while it does
}

// NewSnapshot begins a snapshot of the state after meta.Index: of this node's
// own state machine, or one that the leader sends.
func (s *Store) NewSnapshot(meta SnapshotMeta) (*SnapshotWriter, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	if meta.Index == 0 || len(meta.Conf) > maxConf {
		return nil, invalid("snapshot", "index %d, %d bytes of membership (at most %d)", meta.Index, len(meta.Conf), maxConf)
	}
	temp := s.tempName()
	f, err := s.fs.Create(temp)
	if err != nil {
		return nil, s.unmade(temp, err)
	}
	meta.Conf = slices.Clone(meta.Conf)
	w := &SnapshotWriter{s: s, file: f, temp: temp, hash: sha256.New(), dirty: int64(len(meta.Conf))}
	w.head = snapHead{cluster: s.id.cluster, group: s.opts.Group, meta: meta}
	if _, err := f.WriteAt(meta.Conf, snapHeader); err != nil {
		f.Close()
		return nil, s.unmade(temp, err)
	}
	return w, nil
}

// Meta returns what the snapshot is of.
func (w *SnapshotWriter) Meta() SnapshotMeta { return w.head.meta }

// Write appends a piece of any size. With ErrNoRoom the snapshot is given up, and the
// store goes on.
func (w *SnapshotWriter) Write(p []byte) (int, error) {
	if err := w.usable(); err != nil {
		return 0, err
	}
	n, err := w.file.WriteAt(p, snapHeader+int64(len(w.head.meta.Conf))+w.head.body)
	if err != nil {
		return n, w.unwritten("write", err)
	}
	w.hash.Write(p)
	w.head.body += int64(n)
	w.s.addUsed(int64(n))
	w.dirty += int64(n)
	if w.dirty < syncEvery {
		return n, nil
	}
	w.dirty = 0
	w.s.Probe()
	if err := w.file.Sync(); err != nil {
		return n, w.unwritten("sync", err)
	}
	return n, nil
}

// unwritten is why a piece could not be written. Nobody knows the snapshot yet: if there
// is no room for it, it is taken away, and nothing has happened.
func (w *SnapshotWriter) unwritten(op string, err error) error {
	if !lacksRoom(err) {
		return w.s.fail(op, w.temp, err)
	}
	if err := w.Abort(); err != nil {
		return err
	}
	w.err = w.s.noRoom(op, w.temp, err)
	return w.err
}

func (w *SnapshotWriter) usable() error {
	if err := w.s.usable(); err != nil {
		return err
	}
	return w.err
}

// Sync makes durable what was written, so that nothing of it can lack room later.
func (w *SnapshotWriter) Sync() error {
	if err := w.usable(); err != nil {
		return err
	}
	w.dirty = 0
	if err := w.file.Sync(); err != nil {
		return w.unwritten("sync", err)
	}
	return nil
}

// Sum ends the writing and returns the SHA-256 of the whole, equal on every node
// that holds this snapshot: compare it with the sender's before installing.
func (w *SnapshotWriter) Sum() ([sha256.Size]byte, error) {
	if w.err == nil {
		w.head.seal(w.hash)
		w.err = invalid("snapshot", "the snapshot is complete")
	}
	return w.head.sum, w.s.usable()
}

// Abort gives the snapshot up and frees its space. After the snapshot was ended
// it does nothing, so it can be deferred.
func (w *SnapshotWriter) Abort() error {
	if w.file == nil {
		return nil
	}
	w.file.Close()
	w.file, w.err = nil, invalid("snapshot", "the snapshot was given up")
	if err := w.s.usable(); err != nil {
		return err
	}
	w.s.addUsed(-w.head.body)
	return w.s.step("remove", w.temp, w.s.fs.Remove(w.temp))
}

// publish makes the snapshot durable under its final name. With ErrNoRoom one that was
// synced before is as it was, and can be published again; any other is given up.
func (w *SnapshotWriter) publish() error {
	if w.file == nil {
		return w.err
	}
	if _, err := w.Sum(); err != nil {
		return err
	}
	s, f, name := w.s, w.file, w.s.path(snapName(w.head.meta.Index))
	_, err := f.WriteAt(w.head.encode(len(w.head.meta.Conf)), 0)
	if err == nil {
		err = f.Sync()
	}
	switch {
	case err != nil && w.dirty == 0 && lacksRoom(err):
		return s.noRoom("end", w.temp, err)
	case err != nil:
		return w.unwritten("end", err)
	}
	w.file = nil
	defer f.Close()
	err = s.steps(
		step{"rename", w.temp, func() error { return s.fs.Rename(w.temp, name) }},
		step{"sync directory", s.dir, func() error { return s.fs.SyncDir(s.dir) }},
	)
	if err == nil {
		s.addUsed(-w.head.body)
		s.addSnap(snapFile{index: w.head.meta.Index, size: w.size(), meta: w.head.meta, good: true})
	}
	return err
}

func (w *SnapshotWriter) size() int64 {
	return snapHeader + int64(len(w.head.meta.Conf)) + w.head.body
}
