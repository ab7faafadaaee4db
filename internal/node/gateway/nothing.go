package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// deletes reports whether a command only deletes and reads.
func deletes(c *core.Command) bool {
	makes := func(o core.KeyOp) bool { return o.Kind != core.KeyGet && o.Kind != core.KeyDelete }
	return c.Op == core.OpDelete || c.Op == core.OpTxn && !slices.ContainsFunc(c.Then, makes) && !slices.ContainsFunc(c.Else, makes)
}

// inNothing answers a deletion that was refused with err. If its namespace is not there, and would have been made for
// it, there is nothing to delete, and it is answered as in one where there is nothing.
func (g *Gateway) inNothing(ctx context.Context, c core.Command, err error) (r core.Result, now int64, _ error) {
	ns, there := callerOf(ctx).namespace, true
	if g.look(ctx, func(m *core.Machine, at int64) {
		if there = m.HasNamespace(ns); !there {
			r, now = foundNothing(m, ns, &c), at
		}
	}) != nil || there {
		return core.Result{}, 0, err
	}
	return r, now, refusal(&r, now, nil)
}

// foundNothing is the result of a deletion in a namespace that is not there: what is to be deleted is only looked for.
func foundNothing(m *core.Machine, ns string, c *core.Command) core.Result {
	if c.Op == core.OpDelete {
		return core.Result{Code: core.CodeNotExist, Text: fmt.Sprintf("there is no %q", c.Name)}
	}
	look := *c
	look.Then, look.Else = gets(c.Then), gets(c.Else)
	return m.Read(ns, &look)
}

func gets(ops []core.KeyOp) (out []core.KeyOp) {
	for _, o := range ops {
		out = append(out, core.KeyOp{Kind: core.KeyGet, Key: o.Key, Prefix: o.Prefix})
	}
	return out
}
