package storage

import "hash/crc32"

// What the tests in package storage_test need to reach into the format.

const (
	RecordHeader  = recordHeader
	SegmentHeader = segmentHeader
	SnapHeader    = snapHeader
	SlotStride    = slotStride
	SlotSize      = slotSize
)

// SealRecord puts the right checksums on arbitrary bytes, so that a fuzzer gets
// past them.
func SealRecord(b []byte, seed uint32) {
	h := header{size: uint32(len(b) - recordHeader), prev: le.Uint32(b[8:])}
	le.PutUint32(b[16:], h.size)
	le.PutUint32(b[4:], chainSum(h.prev, b, b[recordHeader:]))
	sealHeader(b, seed)
}

// DecodeRecord reads one record and encodes it again; nil if it is not valid.
func DecodeRecord(b []byte, seed uint32) ([]Entry, []byte, error) {
	h, ok := readHeader(b, seed)
	if !ok || !h.intact(b) {
		return nil, nil, ErrDamaged
	}
	r, err := h.decode(b, nil)
	if err != nil {
		return nil, nil, err
	}
	return r.entries, appendRecord(nil, &r, seed), nil
}

// Seed is the checksum seed of a place.
func Seed(salt, file uint64, off int64) uint32 { return seed(salt, file, off) }

// EncodeEntries makes one valid record.
func EncodeEntries(entries []Entry, seed uint32) []byte {
	r := &record{entries: entries}
	r.flags, r.first, r.count = flagEntries, entries[0].Index, uint32(len(entries))
	return appendRecord(nil, r, seed)
}

// RoundIdentity decodes and encodes an identity file.
func RoundIdentity(b []byte) ([]byte, error) {
	id, err := decodeIdentity(b)
	return encodeIdentity(id), err
}

// RoundSlot decodes and encodes a vote slot.
func RoundSlot(b []byte, slot int, salt uint64) ([]byte, error) {
	v, err := decodeSlot(b, slot, salt)
	return encodeSlot(v, slot, salt), err
}

// RoundSnapshot decodes and encodes the header of a snapshot file of that size.
func RoundSnapshot(b []byte, size int64) ([]byte, error) {
	h, conf, err := decodeSnapHead(b, size)
	if err != nil {
		return snapHead{body: size - snapHeader}.encode(0), err
	}
	return h.encode(int(conf)), nil
}

// RoundSegment decodes and encodes a segment header.
func RoundSegment(b []byte, no, salt uint64) ([]byte, error) {
	h, err := decodeSegHead(b, no, salt)
	return encodeSegHead(h, salt), err
}

// The places of the version byte, and the seeds that checksums of the fixed
// headers start from.
const (
	VersionAt     = 8
	SlotVersionAt = 48
	RecVersionAt  = 12
)

// SlotSeed is the checksum seed of a vote slot.
func SlotSeed(salt uint64, slot int) uint32 { return seed(salt, ^uint64(0), slotOffset(slot)) }

// SealFixed puts a right checksum on a header that is wholly covered by it.
func SealFixed(b []byte, seed uint32) { le.PutUint32(b, crc32.Update(seed, castagnoli, b[4:])) }

// ForgeHeader makes the header that a record of that number would have there.
func ForgeHeader(seq uint64, seed uint32) []byte {
	r := &record{entries: []Entry{{Index: 1}}}
	r.seq, r.flags, r.first, r.count = seq, flagEntries, 1, 1
	return appendRecord(nil, r, seed)[:recordHeader]
}
