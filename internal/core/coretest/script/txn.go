package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
)

var (
	targets   = []string{"mod", "create", "version", "value", "session"}
	relations = []string{"=", "!=", "<", ">"}
	keyOps    = []string{"get", "put", "del"}
	sorts     = []string{"key", "version", "create", "mod", "value"}
	keyFlags  = []string{"prefix", "prev", "keys", "desc", "count"}
)

// txn reads "if CONDITION , … then OPERATION , … else OPERATION , …".
func txn(c *core.Command, a *args) {
	c.Op = core.OpTxn
	part, words := "", []string(nil)
	a.plain = nil
	for _, w := range append(slices.Clone(a.all), "") {
		switch {
		case w == "if" || w == "then" || w == "else" || w == "," || w == "":
			a.fail(addPart(c, part, words))
			words = nil
			if w != "," {
				part = w
			}
		case strings.HasPrefix(w, "seq=") || strings.HasPrefix(w, "mark="):
		default:
			if k, _, ok := strings.Cut(w, "="); ok {
				delete(a.named, k)
			}
			words = append(words, w)
		}
	}
}

// addPart adds one condition or operation.
func addPart(c *core.Command, part string, words []string) error {
	if len(words) == 0 {
		return nil
	}
	a := arguments(words)
	switch part {
	case "if":
		c.If = append(c.If, condition(a))
	case "then":
		c.Then = append(c.Then, operation(a))
	case "else":
		c.Else = append(c.Else, operation(a))
	default:
		a.fail(fmt.Errorf("a transaction begins with if or then"))
	}
	return a.done()
}

// condition reads "KEY TARGET RELATION WHAT [prefix]".
func condition(a *args) core.Compare {
	c := core.Compare{Prefix: a.flag("prefix"), Key: a.take()}
	c.Target = core.CompareTarget(slices.Index(targets, a.take()))
	c.Is = core.Relation(slices.Index(relations, a.take()))
	switch what := a.take(); c.Target {
	case core.CompareValue:
		c.Value = []byte(what)
	case core.CompareSession:
		c.Session = ID(what)
	default:
		c.Num = a.parse(what)
	}
	return c
}

// operation reads get, put or del.
func operation(a *args) core.KeyOp {
	op := core.KeyOp{Prefix: a.flag("prefix"), Previous: a.flag("prev"), KeysOnly: a.flag("keys"), Desc: a.flag("desc"), Count: a.flag("count")}
	op.Kind = core.KeyOpKind(slices.Index(keyOps, a.take()))
	op.Limit, op.Expire = a.number("limit"), a.duration("expire")
	if by := a.text("sort"); by != "" {
		op.Sort = core.SortBy(slices.Index(sorts, by))
	}
	if session := a.text("session"); session != "" {
		op.Session = ID(session)
	}
	op.After = a.text("after")
	op.Key = strings.Trim(a.take(), `"`)
	if op.Kind == core.KeyPut {
		op.Value = []byte(a.take())
	}
	return op
}

// txnWords writes a transaction as txn reads it.
func txnWords(l *printLine, c core.Command) {
	var parts []string
	for _, i := range c.If {
		parts = append(parts, conditionWords(i))
	}
	section(l, "if", parts)
	section(l, "then", operationWords(c.Then))
	section(l, "else", operationWords(c.Else))
}

func section(l *printLine, word string, parts []string) {
	if len(parts) > 0 {
		l.add("%s %s", word, strings.Join(parts, " , "))
	}
}

func conditionWords(c core.Compare) string {
	what := fmt.Sprint(c.Num)
	switch c.Target {
	case core.CompareValue:
		what = string(c.Value)
	case core.CompareSession:
		what = Name(c.Session)
	}
	s := fmt.Sprintf("%s %s %s %s", c.Key, targets[c.Target], relations[c.Is], what)
	if c.Prefix {
		s += " prefix"
	}
	return s
}

func operationWords(ops []core.KeyOp) []string {
	var all []string
	for _, op := range ops {
		l := &printLine{}
		l.add("%s %q", keyOps[op.Kind], op.Key)
		if op.Kind == core.KeyPut {
			l.add("%s", op.Value)
		}
		l.number("limit", op.Limit)
		l.time("expire", op.Expire)
		if op.Sort != core.ByKey {
			l.text("sort", sorts[op.Sort])
		}
		l.text("after", op.After)
		if op.Session != (core.SessionID{}) {
			l.text("session", Name(op.Session))
		}
		for i, is := range []bool{op.Prefix, op.Previous, op.KeysOnly, op.Desc, op.Count} {
			if is {
				l.add("%s", keyFlags[i])
			}
		}
		all = append(all, strings.TrimSpace(l.String()))
	}
	return all
}
