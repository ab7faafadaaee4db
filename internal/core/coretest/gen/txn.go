package gen

import "github.com/holdfast-io/holdfast/internal/core"

func (g *Gen) txn(*client) core.Command {
	cmd := core.Command{Op: core.OpTxn}
	for range g.rand.IntN(3) {
		cmd.If = append(cmd.If, g.compare())
	}
	for range 1 + g.rand.IntN(3) {
		cmd.Then = append(cmd.Then, g.keyOp())
	}
	for range g.rand.IntN(2) {
		cmd.Else = append(cmd.Else, g.keyOp())
	}
	return cmd
}

// key is one of few, a third of the time their common prefix.
func (g *Gen) key() (k string, prefix bool) {
	if g.chance(30) {
		return "k", true
	}
	return "k" + string(rune('0'+g.rand.IntN(g.Taste.Names+1))), false
}

func (g *Gen) compare() core.Compare {
	c := core.Compare{Target: core.CompareTarget(g.rand.IntN(5)), Is: core.Relation(g.rand.IntN(4))}
	c.Key, c.Prefix = g.key()
	switch c.Target {
	case core.CompareValue:
		c.Value = g.value()
	case core.CompareSession:
		c.Session, c.Is = g.anySession(), core.Relation(g.rand.IntN(2))
	case core.CompareVersion:
		c.Num = g.rand.Uint64N(3)
	default:
		c.Num = g.rand.Uint64N(40) * g.rand.Uint64N(2)
	}
	return c
}

func (g *Gen) anySession() core.SessionID {
	if g.chance(50) {
		return core.SessionID{}
	}
	return g.clients[g.rand.IntN(len(g.clients))].id
}

func (g *Gen) keyOp() core.KeyOp {
	op := core.KeyOp{Kind: core.KeyOpKind(g.pick(3, 5, 2))}
	op.Key, op.Prefix = g.key()
	switch op.Kind {
	case core.KeyGet:
		op.Limit, op.Sort, op.Desc, op.KeysOnly = g.rand.Uint64N(3), core.SortBy(g.rand.IntN(5)), g.chance(30), g.chance(20)
		if g.chance(40) {
			op.Sort, op.Count = core.ByKey, g.chance(50)
		}
		if g.chance(40) && (op.Prefix && op.Sort == core.ByKey || g.chance(2)) {
			op.After = "k" + string(rune('0'+g.rand.IntN(g.Taste.Names+1)))
		}
	case core.KeyPut:
		op.Value, op.Session, op.Expire, op.Previous = g.value(), g.anySession(), g.span(30), g.chance(30)
		if op.Prefix {
			op.Key, op.Prefix = op.Key+"0", g.chance(2)
		}
	case core.KeyDelete:
		op.Previous, op.Limit = g.chance(50), g.rand.Uint64N(3)
	}
	return op
}
