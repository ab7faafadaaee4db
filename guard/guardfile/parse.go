package guardfile

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/holdfast-io/holdfast/guard"
)

// The keys around conditions.
const (
	keySchema      = "$schema"
	keyGuards      = "guards"
	keyDescription = "description"
	keyWhen        = "when"
)

// maxName is the most bytes of a guard's name.
const maxName = 255

type parser struct {
	file string
	// first is what a file begins with, for hints.
	first string
	// filled are the texts of a pipeline that parameters are a part of, as they stand in the file.
	filled map[*node]string
	// further are those of them in which a value would be further words of a filter.
	further map[*node]bool
	// options are those that begin with - by their values alone.
	options map[*node]bool
	// sampled are those with a part that is not known yet: the file is only checked.
	sampled  map[*node]bool
	unknowns map[string]bool // the parameters without a value
	errs     []error
	// open are the conditions around the one that is read: one that is met again is
	// within itself.
	open map[*node]bool
	// conditions counts those of the file, leaves those of the guard.
	conditions, leaves int
	// full: a bound has been met; the rest is not read.
	full bool
	// items are those of lists that were read.
	items int
}

// fail notes an error, unless there are enough.
func (p *parser) fail(at place, hint, format string, args ...any) {
	if len(p.errs) >= MaxErrors {
		return
	}
	p.errs = append(p.errs, &Error{p.file, at.line, at.column, fmt.Sprintf(format, args...), hint})
	p.full = p.full || len(p.errs) >= MaxErrors
}

// stop notes that a bound was met.
func (p *parser) stop(at place, format string, args ...any) {
	if !p.full {
		p.fail(at, "", format, args...)
	}
	p.full = true
}

// wants notes a value of another shape than it should have.
func (p *parser) wants(n *node, where string, want shape) bool {
	if n.is == want {
		return true
	}
	hint := ""
	if scalar := n.is == isInteger || n.is == isFraction || n.is == isBoolean || n.is == isDate; want == isText && scalar {
		hint = fmt.Sprintf("write it in quotes: %q", clip(n.text))
	}
	if hint == "" {
		hint = p.filledHint(n)
	}
	p.fail(n.place, hint, "%s wants %s, this is %s", where, want, n.is)
	return false
}

// filledHint says that a value is made of parameters; empty: it is not.
func (p *parser) filledHint(n *node) string {
	if p.filled[n] == "" {
		return ""
	}
	return fmt.Sprintf("%s stands there: give the parameter another value", clip(p.filled[n]))
}

// entries calls each for the keys of a mapping, which are texts and differ.
func (p *parser) entries(n *node, where string, each func(key, value *node)) bool {
	if !p.wants(n, where, isMapping) {
		return false
	}
	seen := map[string]*node{}
	for i, key := range n.keys {
		switch first := seen[key.text]; {
		case p.full:
			return false
		case key.is == isMerge:
			p.fail(key.place, "write the fields out, or use an alias for the whole value", "merge keys are not supported")
		case !p.wants(key, "a key", isText):
		case first != nil:
			p.fail(key.place, "", "the key %q is on line %d already", clip(key.text), first.line)
		default:
			seen[key.text] = key
			each(key, n.of[i])
		}
	}
	return true
}

// unknown notes a key that does not belong there.
func (p *parser) unknown(key *node, where string, known []string) {
	hint := "known: " + strings.Join(known, ", ")
	if near := nearest(key.text, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	p.fail(key.place, hint, "%s does not know %q", where, clip(key.text))
}

func (p *parser) guards(root *node) (guards []Guard) {
	found := false
	ok := p.entries(root, "the file", func(key, n *node) {
		switch key.text {
		case keySchema:
			p.wants(n, keySchema, isText)
		case keyGuards:
			found = true
			p.entries(n, keyGuards, func(key, n *node) { guards = append(guards, p.guard(key, n)) })
		default:
			p.unknown(key, "the file", []string{keyGuards, keySchema})
		}
	})
	if ok && !found {
		p.fail(root.place, "a file begins with guards:", "the file has no guards")
	}
	return guards
}

func (p *parser) guard(key, n *node) Guard {
	g := Guard{Name: key.text, Line: key.line, Column: key.column}
	if key.text == "" || len(key.text) > maxName || strings.ContainsFunc(key.text, unicode.IsControl) {
		p.fail(key.place, "", "the name of a guard has 1 to %d bytes and no control character", maxName)
	}
	where, found := fmt.Sprintf("the guard %q", clip(key.text)), false
	ok := p.entries(n, where, func(key, n *node) {
		switch key.text {
		case keyDescription:
			p.wants(n, keyDescription, isText)
			g.Description = n.text
		case keyWhen:
			found, p.leaves = true, 0
			g.When = p.condition(n, 0)
		default:
			p.unknown(key, where, []string{keyDescription, keyWhen})
		}
	})
	if ok && !found {
		p.fail(key.place, "say when: and a condition", "%s has no condition", where)
	}
	return g
}

// condition reads a mapping of one key, the kind. Every way down passes here, so here
// the bounds are kept.
func (p *parser) condition(n *node, depth int) (c guard.Condition) {
	if p.open[n] {
		p.stop(n.place, "this condition is within itself, by an alias")
	}
	if p.conditions++; p.conditions > MaxConditions {
		p.stop(n.place, "the file has more than %d conditions, with its aliases written out", MaxConditions)
	}
	if p.full {
		return c
	}
	p.open[n] = true
	defer delete(p.open, n)
	if n.is == isMapping && len(n.keys) != 1 {
		p.fail(n.place, "put several under all: or any:", "a condition has one key, its kind; this has %d", len(n.keys))
		return c
	}
	p.entries(n, "a condition", func(key, n *node) { c = p.kind(key, n, depth) })
	return c
}

func (p *parser) kind(key, n *node, depth int) guard.Condition {
	c := guard.Condition{Kind: guard.Kind(key.text)}
	switch c.Kind {
	case guard.KindAll, guard.KindAny:
		if p.wants(n, key.text, isList) {
			c.Of = p.parts(key, n.of, depth)
		}
		if c.Kind == guard.KindAny && n.is == isList && len(n.of) == 0 {
			p.fail(key.place, "give it parts; all: [] is always true", "any of nothing can never pass")
		}
	case guard.KindNot:
		c.Of = p.parts(key, []*node{n}, depth)
	default:
		if k := kindOf(key.text); k != nil {
			return p.leaf(k, key, n)
		}
		p.unknown(key, "a condition", kindNames())
	}
	return c
}

func (p *parser) parts(key *node, of []*node, depth int) (parts []guard.Condition) {
	if depth >= guard.MaxDepth {
		p.stop(key.place, "the condition has more than %d levels", guard.MaxDepth)
	}
	for _, n := range of {
		if p.full {
			break
		}
		parts = append(parts, p.condition(n, depth+1))
	}
	return parts
}

// leaf reads the fields of a leaf, or its main field alone.
func (p *parser) leaf(k *kind, key, n *node) guard.Condition {
	if p.leaves++; p.leaves > guard.MaxLeaves {
		p.stop(key.place, "the guard has more than %d leaves", guard.MaxLeaves)
	}
	c, before := k.start, len(p.errs)
	c.Kind = k.kind
	if k.brief() && n.is != isMapping {
		p.field(k, &k.fields[0], n, &c)
	} else {
		p.fields(k, key, n, &c)
	}
	if len(p.errs) == before {
		p.check(key, &c)
	}
	return c
}

// check asks package guard, which has the last word on a leaf.
func (p *parser) check(key *node, c *guard.Condition) {
	if err := c.Check(); err != nil {
		p.fail(key.place, "", "%s", err)
	}
}

func (p *parser) fields(k *kind, key, n *node, c *guard.Condition) {
	given, choices := map[string]bool{}, 0
	ok := p.entries(n, key.text, func(name, n *node) {
		i := slices.IndexFunc(k.fields, func(f field) bool { return f.name == name.text })
		if i < 0 {
			p.unknown(name, key.text, k.fieldNames())
			return
		}
		if given[name.text] = true; k.fields[i].choice {
			choices++
		}
		p.field(k, &k.fields[i], n, c)
	})
	if ok {
		p.complete(k, key, given, choices)
	}
}

func (p *parser) field(k *kind, f *field, n *node, c *guard.Condition) {
	where := string(k.kind) + "." + f.name
	if p.filled[n] != "" && k.kind == guard.KindCustomCheck {
		p.fail(n.place, "write a command of its own for each", "%s: a parameter would become a part of the command", where)
		return
	}
	if p.further[n] && k.kind == guard.KindIssuesComplete {
		p.fail(n.place, "write the parameter in quotes, as in milestone:\"${m}\", and give a value without any", "%s: the value of a parameter would become further words of the filter", where)
		return
	}
	p.into(f.is, where, func(v value) { f.set(c, v) })(n)
}

// complete notes what is missing and what excludes each other.
func (p *parser) complete(k *kind, key *node, given map[string]bool, choices int) {
	var names []string
	for _, f := range k.fields {
		if f.need && !given[f.name] {
			p.fail(key.place, "", "%s lacks %s", k.kind, f.name)
		}
		if f.choice {
			names = append(names, f.name)
		}
	}
	if choices > 1 || k.choose && choices == 0 {
		p.fail(key.place, "", "%s takes one of %s, not %d of them", k.kind, strings.Join(names, ", "), choices)
	}
}

// clip keeps messages short.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
