package guardfile

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/pipeline"
)

// Pipeline is a pipeline of a file.
type Pipeline struct {
	Definition  pipeline.Definition
	Description string
	// Params are those that the file asks for, in its order, and Values what they are.
	Params []Param
	Values map[string]string
	// Places are where the phases stand: line and column, from 1.
	Places [][2]int
}

// Param is what a file asks for: ${name} in a text stands for its value.
type Param struct {
	Name string
	// Type is string, integer or boolean.
	Type        string
	Description string
	// Default is its value if none is given; nil: it has to be given.
	Default      *string
	Line, Column int
}

// maxValue is the most bytes of a parameter's value.
const maxValue = 1024

// ParsePipeline reads a pipeline with the values of its parameters, as [Parse] reads guards.
// Without values (nil) it only checks the file: a parameter stands for its default then, or
// for a value of its type.
//
// A value is a part of a text and never more: it does not begin with -, so that it cannot
// become an option, and it cannot stand in the text of a shell, in a custom_check, or for a
// program.
func ParsePipeline(file string, data []byte, given map[string]string) (*Pipeline, error) {
	p := &parser{file: file, first: "pipeline:", open: map[*node]bool{}, filled: map[*node]string{}, further: map[*node]bool{}, options: map[*node]bool{},
		sampled: map[*node]bool{}, unknowns: map[string]bool{}}
	var result *Pipeline
	if root := p.read(data); root != nil {
		result = p.pipeline(root, given)
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return result, nil
}

// mapping reads a mapping, each key by its own function; need are the keys that have to be
// there.
func (p *parser) mapping(at, n *node, where string, need []string, read map[string]func(n *node)) {
	given := map[string]bool{}
	ok := p.entries(n, where, func(key, n *node) {
		f := read[key.text]
		if f == nil {
			p.unknown(key, where, slices.Sorted(maps.Keys(read)))
			return
		}
		given[key.text] = true
		f(n)
	})
	for _, name := range need {
		if ok && !given[name] {
			p.fail(at.place, "", "%s lacks %s", where, name)
		}
	}
}

// into sets a value of a format.
func (p *parser) into(f *format, where string, set func(value)) func(*node) {
	return func(n *node) {
		if p.filled[n] != "" && f.is == isText {
			n.is = isText // a number where a text belongs is one
		}
		if p.sampled[n] && f.sample != nil {
			set(*f.sample) // whether its value has the form is known when there is one
			return
		}
		if !p.wants(n, where, f.is) {
			return
		}
		known := p.known(n)
		if known == nil {
			return
		}
		v, err := f.read(known)
		if err != nil {
			p.fail(n.place, p.filledHint(n), "%s: %s", where, err)
			return
		}
		set(v)
	}
}

// known is a list without the texts that have no values yet, or nil if it has no others.
func (p *parser) known(n *node) *node {
	of := slices.DeleteFunc(slices.Clone(n.of), func(one *node) bool { return p.sampled[one] && one.is == isText })
	if n.is != isList || len(of) == len(n.of) {
		return n
	}
	if len(of) == 0 {
		return nil
	}
	some := *n
	some.of = of
	return &some
}

func (p *parser) text(where string, to *string) func(*node) {
	return p.into(text, where, func(v value) { *to = v.text })
}

// duration takes a number for the text that it is: what it lacks is a unit, and no quotes.
func (p *parser) duration(where string, to *time.Duration) func(*node) {
	read := p.into(span, where, func(v value) { *to = v.duration })
	return func(n *node) {
		if n.is == isInteger && p.sampled[n] {
			p.fail(n.place, "write "+p.filled[n]+"s", "%s: %s is a whole number, and a duration has a unit", where, p.filled[n])
			return
		}
		if n.is == isInteger || n.is == isFraction {
			n.is = isText
		}
		read(n)
	}
}

func (p *parser) count(where string, to *int) func(*node) {
	return p.into(integer, where, func(v value) { *to = int(min(max(v.number, math.MinInt), math.MaxInt)) })
}

var span = &format{isText, readSpan, map[string]any{"type": "string"}, &value{duration: time.Second}}

func readSpan(n *node) (value, error) {
	d, err := time.ParseDuration(n.text)
	if seconds, unit := time.ParseDuration(n.text + "s"); err != nil && unit == nil && seconds > 0 {
		return value{}, fmt.Errorf("%q has no unit: write %ss", clip(n.text), clip(n.text))
	}
	if err != nil || d <= 0 {
		return value{}, fmt.Errorf("%q is not a duration such as \"90s\" or \"2h\"", clip(n.text))
	}
	return value{duration: d}, nil
}

func (p *parser) pipeline(root *node, given map[string]string) *Pipeline {
	out := &Pipeline{Values: map[string]string{}}
	d := &out.Definition
	var phases *node
	var params *node
	var policy string
	p.mapping(root, root, "the file", []string{"pipeline", "phases"}, map[string]func(*node){
		keySchema:      p.into(text, keySchema, func(value) {}),
		"pipeline":     p.text("pipeline", &d.Name),
		keyDescription: p.text(keyDescription, &out.Description),
		"params":       func(n *node) { params = n },
		"phases":       func(n *node) { phases = n },
		"queue": func(n *node) {
			p.mapping(n, n, "queue", []string{"places"}, map[string]func(*node){
				"places": p.count("queue.places", &d.Places), "policy": p.text("queue.policy", &policy),
			})
		},
	})
	d.Policy = pipeline.Policy(policy)
	if params != nil {
		p.entries(params, "params", func(key, n *node) { out.Params = append(out.Params, p.param(key, n)) })
	}
	p.values(root, out, given)
	if phases == nil || !p.wants(phases, "phases", isList) {
		return out
	}
	if len(phases.of) > pipeline.MaxPhases {
		p.stop(phases.place, "a pipeline has at most %d phases; this has %d", pipeline.MaxPhases, len(phases.of))
		return out
	}
	p.fill(phases, out.Values, map[*node]bool{})
	for _, n := range phases.of {
		if p.full {
			return out
		}
		d.Phases = append(d.Phases, p.phase(n))
		out.Places = append(out.Places, [2]int{n.line, n.column})
	}
	p.checkPipeline(root, phases, d)
	return out
}

// checkPipeline asks package pipeline, which has the last word, phase by phase.
func (p *parser) checkPipeline(root, phases *node, d *pipeline.Definition) {
	if len(p.errs) > 0 {
		return
	}
	for i := range d.Phases {
		if err := d.CheckPhase(i); err != nil {
			p.fail(phases.of[i].place, "", "%s", err)
		}
	}
	whole := *d
	if len(p.unknowns) > 0 { // names and limits may be samples, which are not to be compared
		whole.Phases = slices.Clone(d.Phases)
		for i := range whole.Phases {
			whole.Phases[i].Holds = nil
		}
	}
	if err := whole.Check(); err != nil && len(p.errs) == 0 {
		p.fail(root.place, "", "%s", err)
	}
}

func (p *parser) param(key, n *node) Param {
	out := Param{Name: key.text, Type: "string", Line: key.line, Column: key.column}
	where := fmt.Sprintf("the parameter %q", clip(key.text))
	if !isParamName(key.text) {
		p.fail(key.place, "", "%s: its name has 1 to 64 letters, digits and _, and begins with a letter", where)
	}
	p.mapping(key, n, where, nil, map[string]func(*node){
		"type":         p.text("type", &out.Type),
		keyDescription: p.text(keyDescription, &out.Description),
		"default": func(n *node) {
			if n.is != isText && n.is != isInteger && n.is != isBoolean {
				p.fail(n.place, "", "%s: a default is a text, a whole number, true or false; this is %s", where, n.is)
				return
			}
			out.Default = &n.text
		},
	})
	if !slices.Contains([]string{"string", "integer", "boolean"}, out.Type) {
		p.fail(key.place, "", "%s: the type %q is none of string, integer, boolean", where, clip(out.Type))
	}
	return out
}

func isParamName(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r != '_' && (r < '0' || r > '9')) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// values settles what every parameter is.
func (p *parser) values(root *node, out *Pipeline, given map[string]string) {
	samples := map[string]string{"string": "value", "integer": "1", "boolean": "true"}
	for i := range out.Params {
		one := &out.Params[i]
		v, ok := given[one.Name]
		switch {
		case ok:
		case one.Default != nil:
			v = *one.Default
		case given == nil:
			v = samples[one.Type]
			p.unknowns[one.Name] = true
		default:
			p.fail(place{one.Line, one.Column}, "give it, or a default in the file", "the parameter %q has no value", one.Name)
			v = samples[one.Type]
		}
		if err := one.check(v); err != nil {
			p.fail(place{one.Line, one.Column}, "", "the parameter %q: %s", one.Name, err)
		}
		out.Values[one.Name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := out.Values[name]; !ok && !slices.ContainsFunc(out.Params, func(o Param) bool { return o.Name == name }) {
			p.fail(root.place, "the file names those that there are under params:", "the file has no parameter %q", clip(name))
		}
	}
}

// check refuses values that could be more than a part of a text.
func (one *Param) check(v string) error {
	n := &node{is: isText, text: v}
	switch {
	case len(v) > maxValue:
		return fmt.Errorf("a value has at most %d bytes; this has %d", maxValue, len(v))
	case strings.HasPrefix(v, "-"):
		return fmt.Errorf("%q begins with -, and could become an option of a program", clip(v))
	case one.Type == "integer":
		_, err := readInteger(n)
		return err
	case one.Type == "boolean":
		_, err := readBoolean(n)
		return err
	case strings.ContainsFunc(v, unicode.IsControl) || !isUTF8(v):
		return fmt.Errorf("%q has control characters, or is not UTF-8", clip(v))
	}
	return nil
}

func isUTF8(s string) bool { return strings.ToValidUTF8(s, "") == s }

// fill puts the values into the texts of a tree. What a text is made of is known before:
// a value is never read as YAML.
func (p *parser) fill(n *node, values map[string]string, done map[*node]bool) {
	if done[n] || p.full {
		return
	}
	done[n] = true
	for _, c := range n.of {
		p.fill(c, values, done)
	}
	if n.is == isText && strings.Contains(n.text, "${") {
		p.fillText(n, values)
	}
}

func (p *parser) fillText(n *node, values map[string]string) {
	var b strings.Builder
	rest, alone, refused := n.text, "", false
	for {
		before, after, found := strings.Cut(rest, "${")
		if escaped, is := strings.CutSuffix(before, "$"); found && is {
			b.WriteString(escaped + "${")
			rest = after
			continue
		}
		b.WriteString(before)
		if !found {
			break
		}
		name, end, closed := strings.Cut(after, "}")
		v, known := values[name]
		if !closed {
			p.fail(n.place, "write ${name} for a parameter, or $${ for ${ itself", "a ${ has no }")
			return
		}
		if !known {
			p.fail(n.place, "name it under params:, or write $${ for ${ itself", "there is no parameter %q", clip(name))
			return
		}
		if quoted := strings.Count(b.String(), `"`)%2 == 1; strings.Contains(v, `"`) || !quoted && strings.Contains(v, " ") {
			p.further[n] = true
		}
		b.WriteString(v)
		refused = refused || strings.HasPrefix(v, "-") // itself
		p.sampled[n] = p.sampled[n] || p.unknowns[name]
		if p.filled[n] = n.text; "${"+name+"}" == n.text {
			alone = v
		}
		rest = end
	}
	p.options[n] = !refused && !strings.HasPrefix(n.text, "-") && strings.HasPrefix(b.String(), "-")
	if n.text = b.String(); alone != "" && whole.MatchString(alone) {
		n.is = isInteger
	}
}

func (p *parser) phase(n *node) (ph pipeline.Phase) {
	condition := func(to **guard.Condition) func(*node) {
		return func(n *node) {
			p.leaves = 0
			c := p.condition(n, 0)
			*to = &c
		}
	}
	p.mapping(n, n, "a phase", []string{"name"}, map[string]func(*node){
		"name":       p.text("name", &ph.Name),
		keyWhen:      condition(&ph.When),
		"until":      condition(&ph.Until),
		"wait":       p.duration("wait", &ph.Wait),
		"within":     p.duration("within", &ph.Within),
		"pause":      p.duration("pause", &ph.Pause),
		"retries":    p.count("retries", &ph.Retries),
		"on_failure": p.text("on_failure", &ph.OnFailure),
		"recovery":   p.into(boolean, "recovery", func(v value) { ph.Recovery = v.truth }),
		"run":        func(n *node) { ph.Run = p.run(n) },
		"wake_on":    func(n *node) { ph.WakeOn = p.texts(n, "wake_on") },
		"holds":      func(n *node) { p.each(n, "holds", func(n *node) { ph.Holds = append(ph.Holds, p.want(n)) }) },
		"limits":     func(n *node) { p.each(n, "limits", func(n *node) { ph.Limits = append(ph.Limits, p.limit(n)) }) },
	})
	return ph
}

func (p *parser) each(n *node, where string, f func(*node)) {
	if !p.wants(n, where, isList) {
		return
	}
	if p.items += len(n.of); p.items > maxItems {
		p.stop(n.place, "the lists of the file have more than %d items, with its aliases written out", maxItems)
	}
	for _, c := range n.of {
		if p.full {
			return
		}
		f(c)
	}
}

func (p *parser) texts(n *node, where string) (list []string) {
	p.each(n, where, func(n *node) {
		if p.filled[n] != "" && n.is == isInteger {
			n.is = isText
		}
		if p.wants(n, where, isText) {
			list = append(list, n.text)
		}
	})
	return list
}

// maxItems is the most items of all lists of a pipeline together, aliases written out.
const maxItems = 10_000

func (p *parser) want(n *node) (w pipeline.Want) {
	if n.is == isMapping && len(n.keys) != 1 {
		p.fail(n.place, "", "a hold has one key: lock, read, write or semaphore; this has %d", len(n.keys))
		return w
	}
	named := func(kind string) func(*node) {
		return func(n *node) {
			w.Kind = kind
			p.text(kind, &w.Name)(n)
		}
	}
	p.mapping(n, n, "a hold", nil, map[string]func(*node){
		"lock": named("lock"), "read": named("read"), "write": named("write"),
		"semaphore": func(n *node) {
			open := false // its limit is not known yet
			w.Kind, w.Weight = "semaphore", 1
			p.mapping(n, n, "semaphore", []string{"name", "limit"}, map[string]func(*node){
				"name":   p.text("semaphore.name", &w.Name),
				"weight": p.into(positive, "semaphore.weight", func(v value) { w.Weight = v.number }),
				"limit": func(n *node) {
					p.into(positive, "semaphore.limit", func(v value) { w.Limit = v.number })(n)
					open = p.sampled[n]
				},
			})
			if open {
				w.Limit = max(w.Limit, w.Weight)
			}
		},
	})
	return w
}

func (p *parser) limit(n *node) pipeline.Limit {
	l := pipeline.Limit{Cost: 1}
	p.mapping(n, n, "a limit", []string{"limiter"}, map[string]func(*node){
		"limiter": p.text("limit.limiter", &l.Limiter),
		"key":     p.text("limit.key", &l.Key),
		"cost":    p.into(positive, "limit.cost", func(v value) { l.Cost = v.number }),
	})
	return l
}
