package gateway

import (
	"cmp"
	"context"
	"io/fs"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// The names of what a caller may say beside its request, as metadata or header.
const (
	HeaderNamespace = "holdfast-namespace"
	HeaderKey       = "idempotency-key"
)

// The names of what nodes say to each other beside a request: that it was passed on and
// goes no further; how many calls stay on a connection that is full; that an earlier
// leader may have done it, so that nobody may be told that it was not done; and, beside an
// answer over HTTP, that the next leader is to be asked since nothing was done, or that it is if
// the call may happen twice.
const (
	HeaderRelayed = "holdfast-relayed"
	HeaderCrowded = "holdfast-crowded"
	HeaderTried   = "holdfast-tried"
	HeaderNotDone = "holdfast-not-done"
	HeaderUnable  = "holdfast-unable"
)

// caller is what a call says beside its request.
type caller struct {
	namespace string
	key       string // makes a repeated call the same call; "": none
	// crowded is how many calls stay on the caller's connection to the node that has
	// passed the call on, if there is no place for one more; 0: there is.
	crowded int
	// conn is the connection that the call shares with others; nil: it has its own.
	conn any
	// relayed: another node has passed the call on.
	relayed bool
	beside  Beside
	// earlier: a leader was asked before this one, and may have done it.
	earlier bool
	waited  bool // for a leader, in vain
	// tried is set when the node was asked for a change that may have happened.
	tried *atomic.Bool
}

// note notes what became of a change that the node was asked for.
func (c caller) note(r *core.Reply, err error) {
	if c.tried != nil && !notDone(err) && (err != nil || !turnedDown(r)) {
		c.tried.Store(true)
	}
}

// turnedDown: the machine could do none of the commands that it was given, not even in part, or
// has passed their numbers.
// That a lease was opened for them is no change that anybody asked for.
func turnedDown(r *core.Reply) (all bool) {
	for i := range r.Results {
		if r.Results[i].Seq == 0 {
			continue
		}
		if all = r.Results[i].Code == core.CodeUnavailable || outOfStep(r.Results[i]); !all {
			return false
		}
	}
	return all
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

// Tried reports that an earlier leader may have done a call.
func Tried(ctx context.Context) bool { return callerOf(ctx).earlier }

// triedBefore is ctx of a call that a leader may have done.
func triedBefore(ctx context.Context) context.Context {
	c := callerOf(ctx)
	c.earlier = true
	return context.WithValue(ctx, callerKey{}, c)
}

// waitedBefore is ctx of a call that has waited for a leader as long as one does.
func waitedBefore(ctx context.Context) context.Context {
	c := callerOf(ctx)
	c.waited = true
	return context.WithValue(ctx, callerKey{}, c)
}

// Beside is what a call says beside its request, by name, each time that it does.
type Beside func(name string) []string

// first is what it says of that name first; "": nothing.
func (b Beside) first(name string) string {
	if values := b(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Said is what a call says beside its request; "": nothing of that name.
func Said(ctx context.Context, name string) string {
	if c := callerOf(ctx); c.beside != nil {
		return c.beside.first(name)
	}
	return ""
}

// one refuses what is said twice, and not the same: either may be meant, and a proxy may
// have gone by the other.
func (b Beside) one(name string) error {
	if values := slices.Compact(slices.Clone(b(name))); len(values) > 1 {
		return driver.Errorf("call", "", fs.ErrInvalid, "%s is given %d times, and not the same: give it once", name, len(values))
	}
	return nil
}

// withCaller reads what a call says beside its request.
func withCaller(ctx context.Context, beside Beside, conn any) (context.Context, error) {
	c := caller{
		namespace: beside.first(HeaderNamespace), key: beside.first(HeaderKey), relayed: beside.first(HeaderRelayed) != "",
		earlier: beside.first(HeaderTried) != "", conn: conn, beside: beside, tried: new(atomic.Bool),
	}
	if err := cmp.Or(beside.one(HeaderNamespace), beside.one(HeaderKey)); err != nil {
		return ctx, err
	}
	c.crowded, _ = strconv.Atoi(beside.first(HeaderCrowded)) // absent: 0
	if c.namespace == "" {
		c.namespace = defaultNamespace
	}
	if err := checkNamespace(c.namespace); err != nil {
		return ctx, err
	}
	if len(c.key) > MaxName {
		return ctx, driver.Errorf("call", "", fs.ErrInvalid, "the idempotency key has %d bytes: at most %d are allowed", len(c.key), MaxName)
	}
	return context.WithValue(ctx, callerKey{}, c), nil
}
