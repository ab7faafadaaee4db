package driver

import (
	"io/fs"
	"time"
)

// Kind is a constant error with a stable name: the text is what travels on the
// wire, so that errors.Is gives the same answer on both ends of it.
type Kind string

func (k Kind) Error() string { return string(k) }

// Is lets ErrNotFound be fs.ErrNotExist, ErrInvalid be fs.ErrInvalid and ErrDeadlock
// be ErrConflict too.
func (k Kind) Is(target error) bool {
	switch k {
	case ErrNotFound:
		return target == fs.ErrNotExist
	case ErrInvalid:
		return target == fs.ErrInvalid
	case ErrDeadlock:
		return target == ErrConflict
	}
	return false
}

// kind is k in the words of Holdfast: drivers may use the standard library's errors
// for a missing name and a bad argument, which speak of files there.
func kind(k error) error {
	switch k {
	case fs.ErrNotExist:
		return ErrNotFound
	case fs.ErrInvalid:
		return ErrInvalid
	}
	return k
}

// The kinds of failure. Everything else is told by the standard library's
// errors: fs.ErrPermission, fs.ErrExist, errors.ErrUnsupported, context.Canceled and
// context.DeadlineExceeded.
const (
	// ErrHeld: another caller has it; Error.Holders names it.
	ErrHeld Kind = "held"
	// ErrLost: the hold or session ended without its holder's doing.
	ErrLost Kind = "lost"
	// ErrReleased: the hold was given back.
	ErrReleased Kind = "released"
	// ErrConflict: a differing limit or kind, a failed compare.
	ErrConflict Kind = "conflict"
	// ErrDeadlock: two callers wait for each other, or would, as a second upgrader
	// does. It is ErrConflict too.
	ErrDeadlock Kind = "deadlock"
	// ErrNotFound: there is no such key, session or leader. It is fs.ErrNotExist
	// too.
	ErrNotFound Kind = "not found"
	// ErrInvalid: an argument or option is wrong; nothing was changed. It is
	// fs.ErrInvalid too.
	ErrInvalid Kind = "invalid argument"
	// ErrStale: a newer token has been seen.
	ErrStale Kind = "stale"
	// ErrCompacted: the history asked for is no longer kept.
	ErrCompacted Kind = "compacted"
	// ErrExhausted: a quota is used up, or a sequence is at its end.
	ErrExhausted Kind = "exhausted"
	// ErrUnavailable: not reachable, no quorum, overloaded; Error.RetryAfter
	// says when to come back.
	ErrUnavailable Kind = "unavailable"
	// ErrClosed: the Space, or the node behind it, is closed, or the directory behind it is gone: no call will succeed.
	ErrClosed Kind = "closed"
)

// Outcome says what is known about the effect of a failed call.
type Outcome uint8

const (
	// Unknown: it may have happened.
	Unknown Outcome = iota
	// NotDone: it certainly did not happen, and may be repeated.
	NotDone
	// Done: it happened, although the call failed.
	Done
)

// Error is the one error type of Holdfast. Drivers fill what they know; package
// holdfast adds Op and Name where they are empty.
type Error struct {
	Op      string // the call, such as "acquire"
	Name    string // what it was about; may be empty
	Kind    error  // a Kind, or an error of the standard library; may be nil
	Outcome Outcome
	Holders []Claim // with ErrHeld: the holders
	Waiting int     // with ErrHeld: how many wait for it
	// RetryAfter is how long to wait before trying again; 0 if not known.
	RetryAfter time.Duration
	Err        error // the cause; may be nil
}
