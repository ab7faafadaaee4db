package filehold

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A process tells what it holds and awaits of lock files in a file of its own,
// in slots of one size. Nothing is decided by it: it is for people, and for the
// events of a process that died.
const (
	slotFixed = 1 + 1 + 1 + 1 + 4 + 8 + 8 + 16 + 2
	slotSize  = 576
	maxName   = 512
)

var table = crc32.MakeTable(crc32.Castagnoli)

// The states of a slot.
const (
	slotFree = iota
	slotHolds
	slotWaits
)

// slot is one lock file that is held or awaited.
type slot struct {
	state   byte
	kind    core.Kind
	mode    core.Mode
	token   uint64
	since   int64 // cluster time of the grant, or of joining the queue
	session core.SessionID
	name    string
}

func appendSlot(b []byte, s *slot) []byte {
	start := len(b)
	b = append(b, s.state, byte(s.kind), byte(s.mode), 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, s.token)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.since))
	b = append(b, s.session[:]...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.name)))
	b = append(b, s.name...)
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(b[start+8:], table))
	return b
}

// decodeSlot reports false for a free slot and for one that is being written.
func decodeSlot(b []byte) (slot, bool) {
	if len(b) < slotFixed || b[0] != slotHolds && b[0] != slotWaits {
		return slot{}, false
	}
	n := int(binary.LittleEndian.Uint16(b[slotFixed-2:]))
	if n == 0 || n > maxName || n > len(b)-slotFixed || crc32.Checksum(b[8:slotFixed+n], table) != binary.LittleEndian.Uint32(b[4:]) {
		return slot{}, false
	}
	s := slot{state: b[0], kind: core.Kind(b[1]), mode: core.Mode(b[2])}
	s.token = binary.LittleEndian.Uint64(b[8:])
	s.since = int64(binary.LittleEndian.Uint64(b[16:]))
	copy(s.session[:], b[24:])
	s.name = string(b[slotFixed : slotFixed+n])
	return s, true
}

// decodeSlots reads all slots of a process.
func decodeSlots(b []byte) []slot {
	var list []slot
	for len(b) > 0 {
		n := min(len(b), slotSize)
		if s, ok := decodeSlot(b[:n]); ok {
			list = append(list, s)
		}
		b = b[n:]
	}
	return list
}
