package fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
)

// DefaultMaxResources is how many resources a [Gate] remembers unless told
// otherwise.
const DefaultMaxResources = 1 << 20

// Doer is a gate that keeps a resource for an operation: [*Gate] and [*Dir].
type Doer interface {
	Do(ctx context.Context, resource string, token Token, mode Mode, f func(context.Context) error) error
}

// Gate checks tokens in memory. The zero value is ready for use; set the fields
// before the first call. It is safe for concurrent use and must not be copied.
//
// A Gate remembers every resource for as long as it lives, because a forgotten
// one would accept a stale token as its first. It never forgets by itself: when
// MaxResources are remembered, an unknown one is refused with
// driver.ErrExhausted until [Gate.Forget] makes room.
type Gate struct {
	// Strict refuses a token that has passed before: one operation a grant.
	// It remembers up to 4,096 shared tokens of a resource between two
	// exclusive ones; one more is driver.ErrExhausted.
	Strict bool
	// MaxResources bounds the memory; 0: DefaultMaxResources. A resource takes
	// about 130 bytes and its name.
	MaxResources int

	mu        sync.Mutex
	resources map[string]*resource
}

type resource struct {
	state
	turn turn
}

// Check lets a token pass or refuses it, at once.
//
// It says nothing about what happens after it returns: a newer token can pass
// before the caller has written. Use it where the storage does one thing at a
// time anyway (one goroutine owns it); otherwise use [Gate.Do]. Check does not
// wait for operations of Do; do not mix the two on one resource.
func (g *Gate) Check(resource string, token Token, mode Mode) error {
	const op = "fence check"
	p := Pass{resource, token, mode}
	if err := p.check(op); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r, err := g.find(op, resource)
	if err != nil {
		return err
	}
	return g.admit(op, r, p)
}

// Do checks the token and runs f while the resource is kept: no operation with a
// conflicting mode runs at the same time, so no newer token can pass, and write,
// in the middle of f. Operations on one resource take turns in order of arrival,
// shared ones together.
//
// ctx bounds the wait for the turn and goes on to f with the [Pass] in it (see
// [FromContext]). A token that is already stale is refused without waiting. f
// must end, since a newer holder waits for it, and must not call Do for the same
// resource, which would wait for itself. The error of f is returned as it is;
// the token counts as seen even if f fails or panics, since f may have done part
// of its work.
func (g *Gate) Do(ctx context.Context, resource string, token Token, mode Mode, f func(context.Context) error) error {
	const op = "fence do"
	p := Pass{resource, token, mode}
	if err := p.check(op); err != nil {
		return err
	}
	r, err := g.enter(ctx, op, p)
	if err != nil {
		return err
	}
	defer g.leave(r)
	return f(NewContext(ctx, p))
}

func (g *Gate) enter(ctx context.Context, op string, p Pass) (*resource, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx, op, p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r, err := g.find(op, p.Resource)
	if err != nil {
		return nil, err
	}
	if err := r.check(p, g.Strict); err != nil {
		return nil, refuse(op, p, err)
	}
	if err := r.turn.take(ctx, &g.mu, p.Mode); err != nil {
		return nil, ended(ctx, op, p)
	}
	if err := g.admit(op, r, p); err != nil {
		r.turn.leave()
		return nil, err
	}
	return r, nil
}

func (g *Gate) leave(r *resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.turn.leave()
}

// admit checks and records in one step; g.mu is held.
func (g *Gate) admit(op string, r *resource, p Pass) error {
	if err := r.check(p, g.Strict); err != nil {
		return refuse(op, p, err)
	}
	r.record(p, g.Strict)
	return nil
}

// find returns what is remembered of a resource, and begins to remember an
// unknown one: its first token always passes.
func (g *Gate) find(op, name string) (*resource, error) {
	if r := g.resources[name]; r != nil {
		return r, nil
	}
	limit := g.MaxResources
	if limit == 0 {
		limit = DefaultMaxResources
	}
	if len(g.resources) >= limit {
		return nil, driver.Errorf(op, name, driver.ErrExhausted,
			"the gate remembers %d resources and may not have more; raise MaxResources, or Forget those that are never written again",
			len(g.resources))
	}
	if g.resources == nil {
		g.resources = map[string]*resource{}
	}
	r := &resource{}
	g.resources[name] = r
	return r, nil
}

// Forget drops what the gate remembers of a resource. Danger: the next token of
// that resource passes, however stale. Forget only what no one will write any
// more, such as a finished job without holders. A resource with an
// operation in progress is driver.ErrHeld; an unknown one is no error.
func (g *Gate) Forget(resource string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.resources[resource]; r != nil && !r.turn.idle() {
		return driver.Errorf("fence forget", resource, driver.ErrHeld, "an operation is in progress; try again after it")
	}
	delete(g.resources, resource)
	return nil
}

// Last tells the newest exclusive and shared token that passed; 0: none.
func (g *Gate) Last(resource string) (exclusive, shared Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.resources[resource]; r != nil {
		return r.exclusive, r.shared
	}
	return 0, 0
}

// Len is the number of resources that the gate remembers.
func (g *Gate) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.resources)
}

// ended is the error of a caller with a context that ended before the operation ran.
func ended(ctx context.Context, op string, p Pass) error {
	err := driver.Errorf(op, p.Resource, ctx.Err(), "the operation did not run, token %d was not used", p.Token)
	if cause := context.Cause(ctx); cause != ctx.Err() {
		err.Err = fmt.Errorf("%w: %w", err.Err, cause)
	}
	return err
}
