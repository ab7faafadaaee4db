package natshold

import (
	"errors"
	"io/fs"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
)

// Codes of JetStream that the library has no name for.
const (
	codeStoreFailed     nats.ErrorCode = 10077 // with DiscardNew also: the bucket is full
	codeTooLarge        nats.ErrorCode = 10054
	codeAccountFull     nats.ErrorCode = 10002
	codeStorageFull     nats.ErrorCode = 10047
	codeMemoryFull      nats.ErrorCode = 10028
	codeReplicasMissing nats.ErrorCode = 10074
)

// answer is what an error of the library means: a conflict, the server's last
// word as a [driver.Error], or something that may be better the next time.
func answer(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return driver.Errorf("", "", fs.ErrInvalid, "the value is larger than the server's max_payload: %w", err)
	}
	e := apiError(err)
	if e == nil {
		return err
	}
	switch e.ErrorCode {
	case nats.JSErrCodeStreamWrongLastSequence, nats.JSErrCodeStreamWrongLastSequenceConstant:
		return driver.ErrConflict
	case nats.JSErrCodeStreamNotFound:
		return driver.Errorf("", "", fs.ErrNotExist, "the bucket is gone: make it, and open a new Space")
	case codeTooLarge:
		return driver.Errorf("", "", fs.ErrInvalid, "the value is larger than the bucket allows")
	case codeStoreFailed, codeAccountFull, codeStorageFull, codeMemoryFull:
		return driver.Errorf("", "", driver.ErrExhausted, "JetStream has no room: %s; give it or the bucket more", e.Description)
	}
	return err
}

// apiError is JetStream's own error in err; nil: it is none.
func apiError(err error) *nats.APIError {
	var e nats.JetStreamError
	if !errors.As(err, &e) {
		return nil
	}
	return e.APIError()
}

func hasCode(err error, code nats.ErrorCode) bool {
	e := apiError(err)
	return e != nil && e.ErrorCode == code
}

// named puts the operation and what was to be opened into an error of Open.
func named(err error, name string) error {
	if e, ok := err.(*driver.Error); ok {
		shown := *e
		shown.Op, shown.Name = "open", name
		return &shown
	}
	return &driver.Error{Op: "open", Name: name, Kind: driver.ErrUnavailable, Outcome: driver.NotDone, RetryAfter: comeBack, Err: err}
}
