package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// loadLog replays the segments into the index, up to the end or to the first
// damage.
//
// It reads the unbroken run of segments that ends with the last one. Files
// before a gap are what a crash left of a compaction, if the entries say so; if
// they are needed after all, covers finds out.
func (m *image) loadLog() error {
	nos := numbered(m.names, "log-")
	if len(nos) == 0 {
		m.found.damage(segmentName(max(m.ballot.segment, 1)), 0, LostSegment, "there is no log file at all")
		return nil
	}
	start := len(nos) - 1
	for start > 0 && nos[start-1] == nos[start]-1 {
		start--
	}
	for _, no := range nos[:start] {
		m.leftovers = append(m.leftovers, segmentName(no))
	}
	if err := m.openSegments(nos[start:]); err != nil {
		return err
	}
	if ok, err := m.replay(); err != nil || !ok {
		return err
	}
	if err := m.idx.covers(); err != nil {
		m.found.damage(segmentName(nos[start]-1), 0, LostSegment, "%v", err)
	}
	m.judgeBallot()
	return nil
}

func (m *image) damaged() bool {
	_, bad := m.found.worst()
	return bad
}

func (m *image) openSegments(nos []uint64) error {
	for _, no := range nos {
		name := segmentName(no)
		path := filepath.Join(m.dir, name)
		f, err := m.fs.OpenRead(path)
		if err != nil {
			return failed("open", path, err, adviseAccess)
		}
		seg := &segment{no: no, name: name, file: f}
		m.segs = append(m.segs, seg)
		if seg.size, err = f.Size(); err != nil {
			return failed("read", path, err, adviseAccess)
		}
	}
	return nil
}

// replay reads the segments in order, and says false at the first damage. What a
// segment must hold follows from the header of the next one; only the last
// segment has an open end.
func (m *image) replay() (bool, error) {
	heads, err := m.readHeads()
	if err != nil {
		return false, err
	}
	var buf []byte
	for i, seg := range m.segs[:len(heads)] {
		size := min(seg.size, heads[i].size)
		buf = slices.Grow(buf[:0], int(size))[:size]
		if err := readFull(seg.file, buf, 0); err != nil {
			return false, failed("read", filepath.Join(m.dir, seg.name), err, adviseAccess)
		}
		if !m.enterSegment(i, heads[i], buf) {
			return false, nil
		}
		until := openEnd
		if i+1 < len(heads) {
			until = heads[i+1].st.seq
		}
		if ok, err := m.replaySegment(seg, buf, until); err != nil || !ok {
			return false, err
		}
	}
	return len(heads) == len(m.segs), nil
}

// openEnd: nothing says which record of a segment is its last.
const openEnd = ^uint64(0)

// readHeads reads the headers of all segments, up to the first bad one, or with the first
// one of another size than its own: what is whole in that is still read, for Salvage. A segment
// gets its name only after its header was synced, so a bad header is never a torn
// write.
func (m *image) readHeads() ([]segHead, error) {
	var heads []segHead
	for _, seg := range m.segs {
		b := make([]byte, min(segmentHeader, seg.size))
		if err := readFull(seg.file, b, 0); err != nil {
			return nil, failed("read", filepath.Join(m.dir, seg.name), err, adviseAccess)
		}
		h, err := decodeSegHead(b, seg.no, m.id.salt)
		if errors.Is(err, ErrVersion) {
			return nil, failed("open", filepath.Join(m.dir, seg.name), err, adviseVersion)
		}
		if err != nil {
			m.found.damage(seg.name, 0, BadSegment, "%v", err)
			return heads, nil
		}
		if h.size != seg.size {
			m.found.damage(seg.name, min(h.size, seg.size), BadSegment, "%d bytes long instead of %d", seg.size, h.size)
			return append(heads, h), nil
		}
		heads = append(heads, h)
	}
	return heads, nil
}

// enterSegment checks that the header continues the log before it; the first
// header is where the log begins.
func (m *image) enterSegment(i int, h segHead, buf []byte) bool {
	if i == 0 {
		m.group = h.group
	}
	before := m.idx.st
	before.hs = h.st.hs // the header may know of a later commit than the last record
	if i > 0 && (h.st != before || h.group != m.group) {
		m.found.damage(segmentName(h.no), 0, MisplacedRecord, "the segment does not continue the one before it")
		return false
	}
	m.idx.st = h.st
	m.idx.st.enter(buf)
	m.tail, m.final = segmentHeader, span{}
	return true
}

// replaySegment applies records until the one numbered until, or to the end. It
// says false at damage.
func (m *image) replaySegment(seg *segment, buf []byte, until uint64) (bool, error) {
	var scratch []Entry
	for m.idx.st.seq < until {
		h, ok := readHeader(buf[m.tail:], seed(m.id.salt, seg.no, m.tail))
		if !ok || !h.intact(buf[m.tail:]) {
			return m.judgeEnd(seg, buf, until, h, ok), nil
		}
		r, err := h.decode(buf[m.tail:], scratch)
		if errors.Is(err, ErrVersion) {
			return false, failed("open", filepath.Join(m.dir, seg.name), err, adviseVersion)
		}
		if err == nil {
			err = m.idx.fits(&r, m.group)
		}
		if err != nil {
			m.found.damage(seg.name, m.tail, MisplacedRecord, "%v", err)
			return false, nil
		}
		m.final = span{seg: seg, off: m.tail, size: h.total()}
		m.idx.apply(&r, m.final)
		scratch = r.entries
		m.tail += h.total()
	}
	return true, nil
}

// judgeEnd decides what it means that no valid record is at the tail. Nothing is
// written behind a record before its sync returned; so anything valid behind it
// proves that the bad one had been durable. Otherwise the end of the log is here.
func (m *image) judgeEnd(seg *segment, buf []byte, until uint64, h header, headed bool) bool {
	next := m.idx.st.seq + 1
	if until != openEnd {
		m.found.damage(seg.name, m.tail, BadRecord, "record %d, which the next segment continues", next)
		return false
	}
	from := m.tail + 8
	if headed {
		from = m.tail + h.total()
	}
	if at, ok := m.scan(seg, buf, from); ok {
		m.found.damage(seg.name, m.tail, BadRecord, "record %d; a later one is at byte %d", next, at)
		return false
	}
	if headed && m.ballot.seq <= m.idx.st.seq {
		m.found.note(seg.name, m.tail, TornTail, "record %d was not finished and is cut off", next)
	}
	return true
}

// scan looks for the header of a later record, also of versions to come: the
// first sixteen.
func (m *image) scan(seg *segment, buf []byte, from int64) (int64, bool) {
	for off := from; off+recordHeader <= int64(len(buf)); off += 8 {
		if v := buf[off+12]; v == 0 || v > 15 {
			continue
		}
		h, ok := readHeader(buf[off:], seed(m.id.salt, seg.no, off))
		if ok && h.seq > m.idx.st.seq {
			return off, true
		}
	}
	return 0, false
}

// judgeBallot compares the log with what the vote file knows to be durable.
func (m *image) judgeBallot() {
	last := m.segs[len(m.segs)-1]
	if m.ballot.segment > last.no {
		m.found.damage(segmentName(m.ballot.segment), 0, LostSegment, "the vote file knows of it, the log ends with segment %d", last.no)
	}
	if m.ballot.seq > m.idx.st.seq {
		m.found.damage(last.name, m.tail, LostRecord, "the vote file knows of record %d, the log ends with record %d",
			m.ballot.seq, m.idx.st.seq)
	}
	hs, err := castVote(m.idx.st.hs, m.ballot)
	if err != nil {
		m.found.damage(voteName, 0, LostVote, "%v", err)
	}
	m.idx.st.hs = hs
}

// damagedAt is the error for damage found while reading back.
func damagedAt(path string, off int64, format string, args ...any) error {
	return &Error{Op: "read", File: path, Offset: off,
		Err: fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...)), Advice: adviseDamaged}
}
