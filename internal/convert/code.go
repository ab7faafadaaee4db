package convert

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// kinds are what callers see of the machine's codes.
var kinds = map[core.Code]error{
	core.CodeHeld:        driver.ErrHeld,
	core.CodeLost:        driver.ErrLost,
	core.CodeConflict:    driver.ErrConflict,
	core.CodeInvalid:     fs.ErrInvalid,
	core.CodeNotExist:    fs.ErrNotExist,
	core.CodeExhausted:   driver.ErrExhausted,
	core.CodeNoSession:   driver.ErrLost,
	core.CodeTimeout:     context.DeadlineExceeded,
	core.CodeCanceled:    context.Canceled,
	core.CodeRevoked:     driver.ErrLost,
	core.CodeMaxHold:     driver.ErrLost,
	core.CodePermission:  fs.ErrPermission,
	core.CodeUnavailable: driver.ErrUnavailable,
	core.CodeExists:      fs.ErrExist,
	core.CodeUnsupported: errors.ErrUnsupported,
	core.CodeFull:        driver.ErrExhausted,
}

// texts say more where the machine itself says nothing.
var texts = map[core.Code]string{
	core.CodeRevoked:   "it was taken by force: somebody else decided its end",
	core.CodeMaxHold:   "its MaxHold has passed",
	core.CodeLost:      "it had ended before",
	core.CodeNoSession: "its session has ended",
	core.CodeInvalid:   "the semaphore was made smaller while the call waited, and can never have room for what it wants: take less, or resize it",
}

// reasons are the words for the codes of events.
var reasons = map[core.Code]string{
	core.CodeHeld:      "held",
	core.CodeLost:      "lost",
	core.CodeConflict:  "conflict",
	core.CodeInvalid:   "invalid",
	core.CodeExhausted: "exhausted",
	core.CodeNoSession: "session",
	core.CodeTimeout:   "timeout",
	core.CodeCanceled:  "canceled",
	core.CodeRevoked:   "revoked",
	core.CodeMaxHold:   "max-hold",
}

// laterBy is when to ask again after the leader's disk was full, which a node looks at more
// often than that, or after the machine itself could not do what it was asked, for no reason
// in the command: it is busy with others, or frozen, which nobody knows the end of. It also
// tells that from a node that cannot serve, instead of which another is to be asked.
const laterBy = time.Second

// Refusal is the error of a code, with the machine's text or our own.
func Refusal(code core.Code, text string) *driver.Error {
	e := &driver.Error{Kind: kinds[code], Outcome: driver.NotDone}
	if code == core.CodeFull || code == core.CodeUnavailable {
		e.RetryAfter = laterBy
	}
	if text == "" {
		text = texts[code]
	}
	if text != "" {
		e.Err = errors.New(text)
	}
	return e
}

// RefusalOf is Refusal of a command: an upgrade conflicts with another's upgrade only,
// and the two would wait for each other.
func RefusalOf(op core.Op, code core.Code, text string) *driver.Error {
	e := Refusal(code, text)
	if op == core.OpUpgrade && code == core.CodeConflict {
		e.Kind = driver.ErrDeadlock
	}
	return e
}
