package filehold

import (
	"encoding/binary"
	"errors"

	"github.com/holdfast-io/holdfast/internal/core"
)

// The types of records of the log.
const (
	recEntry   = 1 + iota // an entry of the machine
	recEvent              // something that happened to a lock file
	recChunk              // a piece of the snapshot
	recMembers            // the sessions in the snapshot
	_                     // filelog.Moved
	recRaise              // the machine's revision is at least this
)

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

// lockEvent is what a lock file tells watchers.
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
