package natsconn

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
)

// codeReplicasMissing is a code of JetStream that the library has no name for.
const codeReplicasMissing nats.ErrorCode = 10074

// APIError is JetStream's own error in err; nil: it is none.
func APIError(err error) *nats.APIError {
	var e nats.JetStreamError
	if !errors.As(err, &e) {
		return nil
	}
	return e.APIError()
}

// HasCode reports that JetStream answered so.
func HasCode(err error, code nats.ErrorCode) bool {
	e := APIError(err)
	return e != nil && e.ErrorCode == code
}

// RefusesReplicas reports that the cluster has fewer servers than were asked for.
func RefusesReplicas(err error) bool { return HasCode(err, codeReplicasMissing) }

// RefusesSettings reports that a stream cannot be made as it was asked for, however often it is.
func RefusesSettings(err error) bool {
	e := APIError(err)
	return e != nil && e.Code == 400
}

// Unopened tells what is wrong with a server that does not know of streams.
func Unopened(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return &driver.Error{Op: "open", Kind: ctx.Err(), Outcome: driver.NotDone, Err: err}
	case errors.Is(err, nats.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return driver.Errorf("open", "", driver.ErrUnavailable, "JetStream is not enabled on the server (see its option -js): %w", err)
	case errors.Is(err, nats.ErrJetStreamNotEnabledForAccount):
		return driver.Errorf("open", "", driver.ErrUnavailable, "JetStream is not enabled for the user's account: %w", err)
	}
	return err
}

// Named puts the operation and what was to be opened into an error of Open.
func Named(err error, name string) error {
	if e, ok := err.(*driver.Error); ok {
		shown := *e
		shown.Op, shown.Name = "open", name
		return &shown
	}
	return &driver.Error{Op: "open", Name: name, Kind: driver.ErrUnavailable, Outcome: driver.NotDone, RetryAfter: ComeBack, Err: err}
}

// Redacted is u as it may be shown: a user without a password is a token.
func Redacted(u *url.URL) string {
	shown := *u
	if _, ok := u.User.Password(); !ok {
		shown.User = nil
	}
	return driver.Redacted(&shown)
}

// Where names the servers of a connection, without what proves a user.
func Where(nc *nats.Conn) string {
	var shown []string
	for _, text := range nc.Servers() {
		if u, err := url.Parse(text); err == nil {
			shown = append(shown, Redacted(u))
		}
	}
	return strings.Join(shown, ",")
}
