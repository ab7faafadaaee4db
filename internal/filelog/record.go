package filelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The log is a header and records. A record is length, checksum, type and body;
// the checksum covers all but itself.
const (
	magic      = "flHoldLog1\n\x00\x00\x00\x00\x00"
	headerSize = len(magic) + 8 + 8 + 4 // magic, generation, end of the snapshot, checksum
	frontSize  = 4 + 4 + 1
)

// Name is the file of the log in its directory.
const Name = "log"

// MaxRecord bounds the body of a record, in bytes.
const MaxRecord = 4 << 20

// Moved is the type of the last record of a generation, which says that the next one
// goes on; all other types are the caller's.
const Moved = 5

var table = crc32.MakeTable(crc32.Castagnoli)

// Record is a type and a body, which are the caller's.
type Record struct {
	Kind byte
	Body []byte
}

// header is the beginning of a log.
type header struct {
	generation uint64
	snapshot   uint64 // where it ends
}

func appendHeader(b []byte, h header) []byte {
	start := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, h.generation)
	b = binary.LittleEndian.AppendUint64(b, h.snapshot)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], table))
}

func decodeHeader(b []byte) (header, error) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return header{}, errors.New("it does not begin as a log of this version does")
	}
	sum := headerSize - 4
	if crc32.Checksum(b[:sum], table) != binary.LittleEndian.Uint32(b[sum:]) {
		return header{}, errors.New("the checksum of its header is wrong")
	}
	at := len(magic)
	return header{binary.LittleEndian.Uint64(b[at:]), binary.LittleEndian.Uint64(b[at+8:])}, nil
}

// appendRecord appends one record to b. A record that no reader would take is refused.
func appendRecord(b []byte, r Record) ([]byte, error) {
	if len(r.Body) > MaxRecord {
		return b, fmt.Errorf("a record of %d bytes is too large for the log: at most %d are allowed", len(r.Body), MaxRecord)
	}
	front := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Body)))
	b = append(b, 0, 0, 0, 0, r.Kind)
	b = append(b, r.Body...)
	binary.LittleEndian.PutUint32(b[front+4:], checksum(b[front:]))
	return b, nil
}

func checksum(record []byte) uint32 {
	return crc32.Update(crc32.Checksum(record[:4], table), table, record[8:])
}

// errShort: the bytes end within a record.
var errShort = errors.New("it ends within a record")

// decodeRecord takes the first record off b.
func decodeRecord(b []byte) (r Record, rest []byte, err error) {
	if len(b) < frontSize {
		return r, nil, errShort
	}
	n := binary.LittleEndian.Uint32(b)
	if n > MaxRecord {
		return r, nil, fmt.Errorf("a record claims %d bytes", n)
	}
	if len(b) < frontSize+int(n) {
		return r, nil, errShort
	}
	record := b[:frontSize+int(n)]
	if checksum(record) != binary.LittleEndian.Uint32(b[4:]) {
		return r, nil, errors.New("the checksum of a record is wrong")
	}
	return Record{b[8], record[frontSize:]}, b[len(record):], nil
}
