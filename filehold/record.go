package filehold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/holdfast-io/holdfast/internal/core"
)

// The log is a header and records. A record is length, checksum, type and body;
// the checksum covers all but itself.
const (
	logName    = "log"
	logMagic   = "flHoldLog1\n\x00\x00\x00\x00\x00"
	headerSize = len(logMagic) + 8 + 8 + 4 // magic, generation, end of the snapshot, checksum
	frontSize  = 4 + 4 + 1
	maxRecord  = 4 << 20
)

// The types of records.
const (
	recEntry   = 1 + iota // an entry of the machine
	recEvent              // something that happened to a lock file
	recChunk              // a piece of the snapshot
	recMembers            // the sessions in the snapshot
	recMoved              // the last of its file: the next generation goes on
	recRaise              // the machine's revision is at least this
)

var table = crc32.MakeTable(crc32.Castagnoli)

// header is the beginning of a log.
type header struct {
	generation uint64
	snapshot   uint64 // where it ends
}

func appendHeader(b []byte, h header) []byte {
	start := len(b)
	b = append(b, logMagic...)
	b = binary.LittleEndian.AppendUint64(b, h.generation)
	b = binary.LittleEndian.AppendUint64(b, h.snapshot)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], table))
}

func decodeHeader(b []byte) (header, error) {
	if len(b) < headerSize || string(b[:len(logMagic)]) != logMagic {
		return header{}, errors.New("it does not begin as a log of this version does")
	}
	sum := headerSize - 4
	if crc32.Checksum(b[:sum], table) != binary.LittleEndian.Uint32(b[sum:]) {
		return header{}, errors.New("the checksum of its header is wrong")
	}
	at := len(logMagic)
	return header{binary.LittleEndian.Uint64(b[at:]), binary.LittleEndian.Uint64(b[at+8:])}, nil
}

// appendRecord appends one record to b.
func appendRecord(b []byte, kind byte, body []byte) []byte {
	front := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, 0, 0, 0, 0, kind)
	b = append(b, body...)
	binary.LittleEndian.PutUint32(b[front+4:], checksum(b[front:]))
	return b
}

func checksum(record []byte) uint32 {
	return crc32.Update(crc32.Checksum(record[:4], table), table, record[8:])
}

// errShort: the bytes end within a record.
var errShort = errors.New("it ends within a record")

// decodeRecord takes the first record off b.
func decodeRecord(b []byte) (kind byte, body, rest []byte, err error) {
	if len(b) < frontSize {
		return 0, nil, nil, errShort
	}
	n := binary.LittleEndian.Uint32(b)
	if n > maxRecord {
		return 0, nil, nil, fmt.Errorf("a record claims %d bytes", n)
	}
	if len(b) < frontSize+int(n) {
		return 0, nil, nil, errShort
	}
	record := b[:frontSize+int(n)]
	if checksum(record) != binary.LittleEndian.Uint32(b[4:]) {
		return 0, nil, nil, errors.New("the checksum of a record is wrong")
	}
	return b[8], record[frontSize:], b[len(record):], nil
}

func decodeRaise(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, errors.New("a raised revision is cut off")
	}
	to := binary.LittleEndian.Uint64(b)
	if to >= 1<<53 {
		return 0, errors.New("a raised revision is not below 2⁵³")
	}
	return to, nil
}

// lockEvent is what a lock file tells those who watch.
type lockEvent struct {
	verb    core.Verb
	kind    core.Kind
	mode    core.Mode
	reason  core.Code
	token   uint64
	session core.SessionID
	owner   string
	name    string
}

func appendLockEvent(b []byte, e *lockEvent) []byte {
	b = append(b, byte(e.verb), byte(e.kind), byte(e.mode), byte(e.reason))
	b = binary.LittleEndian.AppendUint64(b, e.token)
	b = append(b, e.session[:]...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(e.owner)))
	b = append(b, e.owner...)
	return append(b, e.name...)
}

func decodeLockEvent(b []byte) (lockEvent, error) {
	const fixed = 4 + 8 + 16 + 2
	if len(b) < fixed {
		return lockEvent{}, errors.New("a lock event is too short")
	}
	e := lockEvent{verb: core.Verb(b[0]), kind: core.Kind(b[1]), mode: core.Mode(b[2]), reason: core.Code(b[3])}
	e.token = binary.LittleEndian.Uint64(b[4:])
	copy(e.session[:], b[12:])
	n := int(binary.LittleEndian.Uint16(b[28:]))
	if n > len(b)-fixed {
		return lockEvent{}, errors.New("the owner of a lock event is cut off")
	}
	e.owner, e.name = string(b[fixed:fixed+n]), string(b[fixed+n:])
	if e.name == "" || (e.kind != core.Mutex && e.kind != core.RWMutex) || (e.verb != core.VerbAcquired && e.verb != core.VerbReleased && e.verb != core.VerbExpired) {
		return lockEvent{}, errors.New("a lock event makes no sense")
	}
	return e, nil
}

// appendMembers lists sessions.
func appendMembers(b []byte, ids []core.SessionID) []byte {
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

func decodeMembers(b []byte) ([]core.SessionID, error) {
	if len(b)%len(core.SessionID{}) != 0 {
		return nil, errors.New("the list of sessions is cut off")
	}
	var ids []core.SessionID
	for ; len(b) > 0; b = b[len(core.SessionID{}):] {
		ids = append(ids, core.SessionID(b))
	}
	return ids, nil
}
