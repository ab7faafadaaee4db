package natshold

import (
	"errors"
	"io/fs"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/natsconn"
)

// Codes of JetStream that the library has no name for.
const (
	codeStoreFailed nats.ErrorCode = 10077 // with DiscardNew also: the bucket is full
	codeTooLarge    nats.ErrorCode = 10054
	codeAccountFull nats.ErrorCode = 10002
	codeStorageFull nats.ErrorCode = 10047
	codeMemoryFull  nats.ErrorCode = 10028
)

// errNoBucket is why nothing can be asked. It is no fs.ErrNotExist: to its caller that is a key.
var errNoBucket = errors.New("the bucket is gone: make it, and open a new Space")

// answer is what an error of the library means: a conflict, the server's last
// word as a [driver.Error], or something that may be better the next time.
func answer(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return driver.Errorf("", "", fs.ErrInvalid, "the value, with a third more as base64, is larger than the server's max_payload: make it smaller, or max_payload larger: %w", err)
	}
	e := natsconn.APIError(err)
	if e == nil {
		return err
	}
	switch e.ErrorCode {
	case nats.JSErrCodeStreamWrongLastSequence, nats.JSErrCodeStreamWrongLastSequenceConstant:
		return driver.ErrConflict
	case nats.JSErrCodeStreamNotFound:
		return driver.Errorf("", "", driver.ErrUnavailable, "%w", errNoBucket)
	case codeTooLarge:
		return driver.Errorf("", "", fs.ErrInvalid, "the value is larger than the bucket allows")
	case codeStoreFailed, codeAccountFull, codeStorageFull, codeMemoryFull:
		return driver.Errorf("", "", driver.ErrExhausted, "JetStream has no room: %s; give it or the bucket more", e.Description)
	}
	return err
}
