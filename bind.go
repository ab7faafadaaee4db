package holdfast

import (
	"context"
	"slices"
)

// bound is the inner half of a context made by Bind: what the claim ends. It
// knows no Hold, so that a context which nobody has any more keeps no Hold
// alive.
type bound struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// boundContext is the outer half, in the caller's hand. Holding it holds h.
type boundContext struct {
	context.Context
	h *Hold
}

// Err compares the clock before it says that the context goes on.
func (b *boundContext) Err() error {
	if b.Context.Err() == nil {
		_ = b.h.Err()
	}
	return b.Context.Err()
}

// Value also answers which hold of a resource the context carries.
func (b *boundContext) Value(key any) any {
	if k, ok := key.(joinKey); ok && b.h.g.c.covers(k) {
		return b.h
	}
	return b.Context.Value(key)
}

// Bind returns a context that ends with parent or with the hold, whichever is
// first; context.Cause tells which. It starts no goroutine. What it needs is
// kept until one of both ends, so bind to a parent that ends.
func (h *Hold) Bind(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	if over := h.g.bind(&bound{ctx, cancel}); over != nil {
		cancel(over)
	}
	return &boundContext{ctx, h}
}

// bind keeps b until the hold ends; if it has, it returns why.
func (g *grip) bind(b *bound) error {
	g.c.look()
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	if over := g.state(); over != nil {
		return over
	}
	if len(g.bound) == cap(g.bound) {
		g.prune()
	}
	g.bound = append(g.bound, b)
	return nil
}

// prune drops contexts whose parent has ended, before the list would grow: a
// leader that binds every request for days keeps only the open ones.
func (g *grip) prune() {
	kept := g.bound[:0]
	for _, b := range g.bound {
		if b.ctx.Err() == nil {
			kept = append(kept, b)
		}
	}
	clear(g.bound[len(kept):])
	g.bound = slices.Grow(kept, len(kept)+1)
}
