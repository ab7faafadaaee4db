package replica

import (
	"encoding/binary"
	"fmt"
)

// A log entry is a header, which names its proposer so that the proposer can
// answer its callers, and an entry of package core.
//
//	version  1 byte   formatVersion
//	kind     1 byte   kindCore, kindThaw, kindMembers, kindCheck or kindRule
//	node     8 bytes  little endian: the proposer
//	number   8 bytes  little endian: its number for the proposal
//	ruler    8 bytes  little endian, of kindRule only: the node that has what is right
//	entry    the rest
const (
	formatVersion = 1
	kindCore      = 1
	kindThaw      = 2 // ends the wait of a forgetting start
	kindMembers   = 3 // of a change of the members; their endpoints have directories
	kindCheck     = 4 // has all nodes hash their machines
	kindRule      = 5 // the same, and what one of them has is right
	headerSize    = 18
)

// header names the proposer of an entry.
type header struct {
	kind         byte
	node, number uint64
	ruler        uint64
}

func (h header) append(dst []byte) []byte {
	dst = append(dst, formatVersion, h.kind)
	dst = binary.LittleEndian.AppendUint64(dst, h.node)
	dst = binary.LittleEndian.AppendUint64(dst, h.number)
	if h.kind == kindRule {
		dst = binary.LittleEndian.AppendUint64(dst, h.ruler)
	}
	return dst
}

// splitEntry takes the header off. A node that meets a newer version stops
// before applying what it does not know.
func splitEntry(data []byte) (h header, entry []byte, err error) {
	if len(data) < headerSize || data[0] != formatVersion || data[1] < kindCore || data[1] > kindRule || data[1] == kindRule && len(data) < headerSize+8 {
		return h, nil, fmt.Errorf("replica: a log entry of unknown form (% x…): this program is older than the one that wrote it", data[:min(len(data), 2)])
	}
	h = header{kind: data[1], node: binary.LittleEndian.Uint64(data[2:]), number: binary.LittleEndian.Uint64(data[10:])}
	if entry = data[headerSize:]; h.kind == kindRule {
		h.ruler, entry = binary.LittleEndian.Uint64(entry), entry[8:]
	}
	return h, entry, nil
}

// Caller is one call that waits for an answer; the shell chooses the numbers, from 1 on. A
// stream is a caller for all its frames.
type Caller uint64

// proposal is an entry that this node proposed and has not seen applied.
type proposal struct {
	number  uint64
	term    uint64
	items   []item // its renewals and frames, each in the order of the entry
	creates int    // sessions that these open
	conf    Caller // that asked for what is no item
	check   bool   // a state check, or what follows from one
	ruler   uint64 // and the node that has what is right, if an operator named it
	change  bool   // a membership change instead
	given   uint64 // and the number that it gives
}
