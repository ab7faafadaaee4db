package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Error is the one error type of Holdfast: which call, about which name, of
// which kind, why, and what to do next. errors.Is sees both Kind and cause.
// Name is the whole name, with the prefixes of [Space.Sub].
type Error = driver.Error

// The kinds of failure, for errors.Is. Everything else is told by the standard
// library's fs.ErrPermission, fs.ErrExist, errors.ErrUnsupported, context.Canceled
// and context.DeadlineExceeded.
const (
	// ErrHeld: another caller has it; Error.Holders names it, and is empty if it is not known.
	ErrHeld = driver.ErrHeld
	// ErrLost: the hold or session ended without its holder's doing.
	ErrLost = driver.ErrLost
	// ErrReleased: the hold was given back.
	ErrReleased = driver.ErrReleased
	// ErrConflict: a differing limit or kind, a failed compare, a hold that cannot
	// be joined.
	ErrConflict = driver.ErrConflict
	// ErrDeadlock: two callers wait for each other, or would, as a second upgrader
	// does. It is ErrConflict too.
	ErrDeadlock = driver.ErrDeadlock
	// ErrNotFound: there is no such key, session or leader. It is fs.ErrNotExist
	// too.
	ErrNotFound = driver.ErrNotFound
	// ErrInvalid: an argument or option is wrong; nothing was changed. It is
	// fs.ErrInvalid too.
	ErrInvalid = driver.ErrInvalid
	// ErrStale: a newer token has been seen.
	ErrStale = driver.ErrStale
	// ErrCompacted: the history asked for is no longer kept.
	ErrCompacted = driver.ErrCompacted
	// ErrExhausted: a quota is used up, or a sequence is at its end.
	ErrExhausted = driver.ErrExhausted
	// ErrUnavailable: not reachable, no quorum, overloaded; [RetryAfter] says
	// when to come back.
	ErrUnavailable = driver.ErrUnavailable
	// ErrClosed: the Space, or the node behind it, is closed, or the directory behind it is gone: no call will succeed.
	ErrClosed = driver.ErrClosed
)

// NotDone reports that the call certainly changed nothing, so that it may be
// repeated. False means done or unknown, never "surely done".
func NotDone(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Outcome == driver.NotDone
}

// RetryAfter is how long the backend asks to wait before the next try; 0: it
// did not say.
func RetryAfter(err error) time.Duration {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return 0
	}
	return e.RetryAfter
}

// wrap makes sure that err says operation and name, once. An error that knows
// its operation already is left as it is.
func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return &Error{Op: op, Name: name, Kind: kindOf(err), Err: err}
	}
	if e.Op != "" && (e.Name != "" || error(e) != err) {
		return err
	}
	filled := *e
	if filled.Op == "" {
		filled.Op = op
	}
	if filled.Name == "" {
		filled.Name = name
	}
	switch {
	case error(e) != err:
		filled.Err = err
	case e.Kind == ErrLost && e.Err == ErrReleased: // of its session
		filled.Err = errRevokedHere
	}
	return &filled
}

// errRevokedHere is why a call was lost that waited under a session which its own program revoked.
var errRevokedHere = errors.New("its session was revoked here")

// kindOf finds the standard library's kind in an error that has none of ours.
func kindOf(err error) error {
	for _, kind := range []error{context.Canceled, context.DeadlineExceeded, errors.ErrUnsupported} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}
