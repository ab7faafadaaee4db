package session

import (
	"encoding/binary"

	"github.com/holdfast-io/holdfast/internal/core"
)

// reserved begins the ids of sessions that a server keeps for callers without a
// stream. Their names can be told from numbers that others see, so a client that knows one
// must not be able to attach it.
const reserved = 0xffff

// NewID makes the id of a session of 128 random bits.
func NewID(high, low uint64) core.SessionID {
	var id core.SessionID
	binary.BigEndian.PutUint64(id[:8], high>>1) // not one of the server's
	binary.BigEndian.PutUint64(id[8:], low)
	return id
}

// Reserve makes an id one that no stream can attach: what it begins with is
// replaced.
func Reserve(id core.SessionID) core.SessionID {
	binary.BigEndian.PutUint16(id[:2], reserved)
	return id
}

// Reserved reports whether the session is one that a server keeps by itself.
func Reserved(id core.SessionID) bool { return binary.BigEndian.Uint16(id[:2]) == reserved }
