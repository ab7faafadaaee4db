package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// A record is what lies between two syncs. docs/storage.md has its bytes.
const (
	formatVersion = 1
	recordHeader  = 80
	entryHeader   = 16
	pointSize     = 16
	maxBody       = 1 << 28
)

// What a record does to the log, in this order.
const (
	flagReset   = 1 << iota // forget all entries, go on after point
	flagCompact             // entries up to point are no longer needed
	flagEntries             // cut the log at the first index, then append
	allFlags    = flagReset | flagCompact | flagEntries
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// header is the fixed part of a record. Its own checksum makes the length
// trustworthy before a single byte of the body is looked at.
type header struct {
	chain, prev      uint32 // checksum of this record and of the one before it
	version, flags   byte
	size, count      uint32 // of the body in bytes; entries in it
	seq, group, mark uint64
	hs               HardState
	first            uint64
}

// record is a header with its decoded body.
type record struct {
	header
	point   Point
	entries []Entry
}

func align[T int | int64](n T) T { return (n + 7) &^ 7 }

// seed binds a checksum to one place of one file of one directory: bytes of a
// recycled file, of another directory or at another offset never fit.
func seed(salt, file uint64, off int64) uint32 {
	var b [24]byte
	le.PutUint64(b[0:], salt)
	le.PutUint64(b[8:], file)
	le.PutUint64(b[16:], uint64(off))
	return crc32.Checksum(b[:], castagnoli)
}

// recordSize is the number of bytes that r takes on disk.
func recordSize(r *record) int {
	n := recordHeader
	if r.flags&(flagReset|flagCompact) != 0 {
		n += pointSize
	}
	for i := range r.entries {
		n += entryHeader + len(r.entries[i].Data)
	}
	return align(n)
}

// appendRecord encodes r behind dst, fills in its checksums and length.
func appendRecord(dst []byte, r *record, seed uint32) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, recordHeader)...)
	dst = appendBody(dst, r)
	h, body := dst[start:start+recordHeader], dst[start+recordHeader:]
	r.version, r.size, r.count = formatVersion, uint32(len(body)), uint32(len(r.entries))
	putHeader(h, &r.header)
	r.chain = chainSum(r.prev, h, body)
	le.PutUint32(h[4:], r.chain)
	sealHeader(h, seed)
	return dst
}

// sealHeader puts the header's own checksum on it.
func sealHeader(b []byte, seed uint32) {
	le.PutUint32(b, crc32.Update(seed, castagnoli, b[4:recordHeader]))
}

func appendBody(dst []byte, r *record) []byte {
	start := len(dst)
	if r.flags&(flagReset|flagCompact) != 0 {
		dst = le.AppendUint64(dst, r.point.Index)
		dst = le.AppendUint64(dst, r.point.Term)
	}
	for i := range r.entries {
		e := &r.entries[i]
		dst = le.AppendUint64(dst, e.Term)
		dst = le.AppendUint32(dst, uint32(len(e.Data)))
		dst = append(dst, e.Type, 0, 0, 0)
		dst = append(dst, e.Data...)
	}
	for (len(dst)-start)%8 != 0 {
		dst = append(dst, 0)
	}
	return dst
}

func putHeader(b []byte, h *header) {
	le.PutUint32(b[8:], h.prev)
	b[12], b[13] = h.version, h.flags
	le.PutUint32(b[16:], h.size)
	le.PutUint32(b[20:], h.count)
	for i, v := range [...]uint64{h.seq, h.group, h.mark, h.hs.Term, h.hs.Vote, h.hs.Commit, h.first} {
		le.PutUint64(b[24+8*i:], v)
	}
}

func chainSum(prev uint32, head, body []byte) uint32 {
	return crc32.Update(crc32.Update(prev, castagnoli, head[8:recordHeader]), castagnoli, body)
}

// readHeader returns the header at the start of b, or false if none was written
// there. Zeros are never a header: the version is not 0.
func readHeader(b []byte, seed uint32) (header, bool) {
	if len(b) < recordHeader || b[12] == 0 {
		return header{}, false
	}
	if le.Uint32(b) != crc32.Update(seed, castagnoli, b[4:recordHeader]) {
		return header{}, false
	}
	u := func(i int) uint64 { return le.Uint64(b[24+8*i:]) }
	return header{
		chain: le.Uint32(b[4:]), prev: le.Uint32(b[8:]),
		version: b[12], flags: b[13],
		size: le.Uint32(b[16:]), count: le.Uint32(b[20:]),
		seq: u(0), group: u(1), mark: u(2),
		hs:    HardState{Term: u(3), Vote: u(4), Commit: u(5)},
		first: u(6),
	}, true
}

// total is the size of the whole record.
func (h header) total() int64 { return recordHeader + int64(h.size) }

// intact reports whether b holds the whole record and its checksum fits.
func (h header) intact(b []byte) bool {
	return int64(len(b)) >= h.total() && chainSum(h.prev, b, b[recordHeader:h.total()]) == h.chain
}

// decode reads the body of an intact record. It accepts exactly what
// appendRecord writes; the data of the entries shares memory with b, and the
// entries with scratch as far as it reaches.
func (h header) decode(b []byte, scratch []Entry) (record, error) {
	r := record{header: h, entries: scratch[:0]}
	if h.version != formatVersion {
		return r, fmt.Errorf("%w: record format %d, this program knows %d", ErrVersion, h.version, formatVersion)
	}
	if err := h.check(b); err != nil {
		return r, err
	}
	body := b[recordHeader:h.total()]
	if h.flags&(flagReset|flagCompact) != 0 {
		if len(body) < pointSize {
			return r, errors.New("no room for the point")
		}
		r.point = Point{le.Uint64(body), le.Uint64(body[8:])}
		body = body[pointSize:]
	}
	rest, err := r.readEntries(body)
	if err != nil {
		return r, err
	}
	return r, checkPadding(rest)
}

// check refuses headers that appendRecord never makes.
func (h header) check(b []byte) error {
	switch {
	case h.flags == 0 || h.flags&^allFlags != 0 || b[14] != 0 || b[15] != 0:
		return fmt.Errorf("unknown flags %#x", h.flags)
	case h.flags&flagReset != 0 && h.flags&flagCompact != 0:
		return errors.New("reset and compaction at once")
	case h.size == 0 || h.size%8 != 0 || h.size > maxBody:
		return fmt.Errorf("body of %d bytes", h.size)
	case (h.flags&flagEntries != 0) != (h.count > 0), (h.first > 0) != (h.count > 0):
		return fmt.Errorf("%d entries from index %d under flags %#x", h.count, h.first, h.flags)
	case uint64(h.count)*entryHeader > uint64(h.size):
		return fmt.Errorf("%d entries in %d bytes", h.count, h.size)
	case h.first+uint64(h.count) < h.first:
		return fmt.Errorf("%d entries from index %d", h.count, h.first)
	}
	return nil
}

func (r *record) readEntries(body []byte) ([]byte, error) {
	r.entries = slices.Grow(r.entries, int(r.count))
	for i := range uint64(r.count) {
		if len(body) < entryHeader {
			return nil, fmt.Errorf("entry %d is cut off", r.first+i)
		}
		e := Entry{Index: r.first + i, Term: le.Uint64(body), Type: body[12]}
		n, pad := uint64(le.Uint32(body[8:])), le.Uint32(body[12:])>>8
		body = body[entryHeader:]
		if n > uint64(len(body)) || pad != 0 {
			return nil, fmt.Errorf("entry %d is cut off", e.Index)
		}
		e.Data, body = body[:n:n], body[n:]
		r.entries = append(r.entries, e)
	}
	return body, nil
}

func checkPadding(b []byte) error {
	if len(b) >= 8 {
		return fmt.Errorf("%d bytes too many", len(b))
	}
	for _, c := range b {
		if c != 0 {
			return errors.New("padding is not zero")
		}
	}
	return nil
}
