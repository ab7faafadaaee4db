package fence

import "context"

type passKey struct{}

// NewContext returns a context that carries p, for [Transport].
func NewContext(ctx context.Context, p Pass) context.Context {
	return context.WithValue(ctx, passKey{}, p)
}

// FromContext returns the pass that ctx carries: the one given to [NewContext],
// or inside [Gate.Do], [Dir.Do] and [Handler] the one that was let through.
func FromContext(ctx context.Context) (Pass, bool) {
	p, ok := ctx.Value(passKey{}).(Pass)
	return p, ok
}
