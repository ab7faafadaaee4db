package storage

import (
	"fmt"
	"hash/crc32"
)

// A segment is one preallocated file of the log. Its header repeats the state of
// the log at its beginning, so that the segments before it can be dropped.
const (
	segmentHeader = 128
	segmentMagic  = "HFL1"
	zeroChunk     = 1 << 20
)

// segment is a log file; everything but the handle is in its header too.
type segment struct {
	no   uint64
	name string
	size int64
	file File
}

// segHead is the decoded header of a segment: the state that its first record
// continues.
type segHead struct {
	no, group uint64
	size      int64
	st        state
}

func segmentName(no uint64) string { return fmt.Sprintf("log-%016x", no) }
func spareName(no uint64) string   { return fmt.Sprintf("spare-%016x", no) }

func encodeSegHead(h segHead, salt uint64) []byte {
	b := make([]byte, segmentHeader)
	copy(b[4:], segmentMagic)
	b[8] = formatVersion
	le.PutUint32(b[12:], h.st.chain)
	for i, v := range [...]uint64{h.no, h.group, uint64(h.size), h.st.seq, h.st.hs.Term, h.st.hs.Vote, h.st.hs.Commit,
		h.st.base.Index, h.st.base.Term, h.st.last} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b, crc32.Update(seed(salt, h.no, 0), castagnoli, b[4:]))
	return b
}

// decodeSegHead reads the header of segment no. It refuses anything that
// was not written for exactly that segment of this directory.
func decodeSegHead(b []byte, no, salt uint64) (segHead, error) {
	if len(b) < segmentHeader || string(b[4:8]) != segmentMagic {
		return segHead{}, fmt.Errorf("%w: no segment header", ErrDamaged)
	}
	b = b[:segmentHeader]
	if le.Uint32(b) != crc32.Update(seed(salt, no, 0), castagnoli, b[4:]) {
		return segHead{}, fmt.Errorf("%w: checksum of the segment header", ErrDamaged)
	}
	if b[8] != formatVersion {
		return segHead{}, fmt.Errorf("%w: segment format %d, this program knows %d", ErrVersion, b[8], formatVersion)
	}
	u := func(i int) uint64 { return le.Uint64(b[16+8*i:]) }
	h := segHead{
		no: u(0), group: u(1), size: int64(u(2)),
		st: state{
			chain: le.Uint32(b[12:]), seq: u(3),
			hs:   HardState{u(4), u(5), u(6)},
			base: Point{u(7), u(8)}, last: u(9),
		},
	}
	return h, exact(b, encodeSegHead(h, salt))
}

// enter carries the chain through a segment header, so that records cannot move
// from one segment to another.
func (st *state) enter(head []byte) {
	st.chain = crc32.Update(st.chain, castagnoli, head[:segmentHeader])
}

// makeSegment prepares a durable file that has the given header and no valid
// record, under its final name.
func (s *Store) makeSegment(h segHead) (*segment, []byte, error) {
	f, temp, err := s.rawSegment(h.size)
	if err != nil {
		return nil, nil, err
	}
	head := encodeSegHead(h, s.id.salt)
	seg := &segment{no: h.no, name: segmentName(h.no), size: h.size, file: f}
	err = s.steps(
		step{"write", temp, func() error { _, err := f.WriteAt(head, 0); return err }},
		step{"sync", temp, f.Sync},
		step{"rename", temp, func() error { return s.fs.Rename(temp, s.path(seg.name)) }},
		step{"sync directory", s.dir, func() error { return s.fs.SyncDir(s.dir) }},
	)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return seg, head, nil
}

// rawSegment returns an open file of the given size: a recycled one, of which the old
// records fit no longer, or a new one full of zeros. Overwriting needs no change
// of metadata, so a sync of it costs about half of one that grows a file.
func (s *Store) rawSegment(size int64) (File, string, error) {
	if len(s.spares) > 0 {
		return s.takeSpare(size)
	}
	temp := s.tempName()
	f, err := s.fs.Create(temp)
	if err != nil {
		return nil, "", s.unmade(temp, err)
	}
	if err := writeZeros(f, 0, size); err != nil {
		f.Close()
		return nil, "", s.unmade(temp, err)
	}
	s.addUsed(size)
	return f, temp, nil
}

// writeZeros gives a file its place on the disk from one offset to another: what is only
// truncated to that size has none, and would miss it when it is written.
func writeZeros(f File, from, to int64) error {
	if from >= to {
		return nil
	}
	zeros := make([]byte, min(zeroChunk, to-from))
	for off := from; off < to; off += zeroChunk {
		if _, err := f.WriteAt(zeros[:min(zeroChunk, to-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// unmade is why a file could not be made. The log does not know it yet: if there is no
// room for it, it is taken away, and nothing has happened.
func (s *Store) unmade(temp string, err error) error {
	if !lacksRoom(err) {
		return s.fail("write", temp, err)
	}
	_ = s.fs.Remove(temp) // what is left of it, the next start clears away
	return s.noRoom("make segment", temp, err)
}

// takeSpare brings a recycled file to the wanted size. Without room for that it stays a
// spare.
func (s *Store) takeSpare(size int64) (File, string, error) {
	spare := s.spares[0]
	name := s.path(spare.name)
	f, err := s.fs.Open(name)
	if err != nil {
		return nil, "", s.fail("open", name, err)
	}
	if err := s.resize(f, name, spare.size, size); err != nil {
		f.Close()
		return nil, "", err
	}
	s.setSpares(s.spares[1:])
	s.addUsed(size - spare.size)
	return f, name, nil
}

func (s *Store) resize(f File, name string, from, to int64) error {
	short := writeZeros(f, from, to)
	if short != nil && !lacksRoom(short) {
		return s.fail("write", name, short)
	}
	if short != nil || to < from {
		if err := f.Truncate(min(from, to)); err != nil {
			return s.fail("truncate", name, err)
		}
	}
	if short != nil {
		return s.noRoom("make segment", name, short)
	}
	return nil
}

// dropSegments recycles the files in which no needed entry lies.
func (s *Store) dropSegments() error {
	needed := s.segs[len(s.segs)-1].no
	if len(s.idx.spans) > 0 {
		needed = s.idx.spans[0].seg.no
	}
	var gone []*segment
	s.mu.Lock()
	for s.segs[0].no < needed {
		gone, s.segs = append(gone, s.segs[0]), s.segs[1:]
	}
	s.mu.Unlock()
	for _, seg := range gone {
		if err := s.recycle(seg); err != nil {
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return s.step("sync directory", s.dir, s.fs.SyncDir(s.dir))
}

func (s *Store) recycle(seg *segment) error {
	seg.file.Close()
	name := s.path(seg.name)
	if len(s.spares) >= maxSpares {
		s.addUsed(-seg.size)
		return s.step("remove", name, s.fs.Remove(name))
	}
	spare := spareFile{spareName(seg.no), seg.size}
	s.setSpares(append(s.spares, spare))
	return s.step("rename", name, s.fs.Rename(name, s.path(spare.name)))
}

func (s *Store) setSpares(spares []spareFile) {
	s.mu.Lock()
	s.spares = spares
	s.mu.Unlock()
}

// maxSpares bounds the recycled files kept for the next segments.
const maxSpares = 2

type spareFile struct {
	name string
	size int64
}
