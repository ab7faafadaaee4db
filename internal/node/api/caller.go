package api

import (
	"context"
	"io/fs"
	"strconv"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/driver"
)

// The names of what a caller may say beside its request, as metadata or header.
const (
	headerNamespace = "holdfast-namespace"
	headerKey       = "idempotency-key"
)

// headerCrowded is of nodes: how many calls stay on a connection that is full.
const headerCrowded = "holdfast-crowded"

// caller is what a call says beside its request.
type caller struct {
	namespace string
	key       string // makes a repeated call the same call; "": none
	// crowded is how many calls stay on the caller's connection to the node that has
	// passed the call on, if there is no place for one more; 0: there is.
	crowded int
	// earlier: a leader was asked before this one, and may have done it.
	earlier bool
	// tried is set when the node was asked for a change that may have happened.
	tried *atomic.Bool
}

// note notes what became of a change that the node was asked for.
func (c caller) note(err error) {
	if c.tried != nil && !notDone(err) {
		c.tried.Store(true)
	}
}

// withdrawn notes that what was tried is taken back.
func (c caller) withdrawn() {
	if c.tried != nil {
		c.tried.Store(false)
	}
}

// changed: a change was asked for that may have happened.
func (c caller) changed() bool { return c.earlier || c.tried != nil && c.tried.Load() }

type callerKey struct{}

// callerOf is the caller of a call.
func callerOf(ctx context.Context) caller {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		c.namespace = defaultNamespace
	}
	return c
}

const defaultNamespace = "default"

// withCaller reads what a call says beside its request; get gives a metadata
// value or header.
func withCaller(ctx context.Context, get func(name string) string) (context.Context, error) {
	c := caller{namespace: get(headerNamespace), key: get(headerKey), earlier: get(headerTried) != "", tried: new(atomic.Bool)}
	c.crowded, _ = strconv.Atoi(get(headerCrowded)) // absent: 0
	if c.namespace == "" {
		c.namespace = defaultNamespace
	}
	if err := checkNamespace(c.namespace); err != nil {
		return ctx, err
	}
	if len(c.key) > maxName {
		return ctx, driver.Errorf("call", "", fs.ErrInvalid, "the idempotency key has %d bytes: at most %d are allowed", len(c.key), maxName)
	}
	return context.WithValue(ctx, callerKey{}, c), nil
}
