package guardfile

import (
	"bytes"
	"errors"
	"io"
	"regexp"

	"go.yaml.in/yaml/v4"
)

// shapes are those of the tags of YAML.
var shapes = map[string]shape{
	"!!map": isMapping, "!!seq": isList, "!!str": isText, "!!int": isInteger, "!!float": isFraction,
	"!!bool": isBoolean, "!!null": isNothing, "!!timestamp": isDate, "!!merge": isMerge,
}

func (p *parser) readYAML(data []byte) *node {
	dec := yaml.NewDecoder(bytes.NewReader(asVersion11(data)))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		p.fail(place{1, 1}, "a file begins with "+p.first, "the file is empty")
		return nil
	} else if err != nil {
		p.syntax(data, err)
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		p.fail(place{second.Line, max(second.Column, 1)}, p.together(), "a second document begins here")
		return nil
	} else if err != io.EOF {
		p.syntax(data, err)
		return nil
	}
	return plant(doc.Content[0], map[*yaml.Node]*node{})
}

// together is the hint for a second document.
func (p *parser) together() string {
	if p.first == "guards:" {
		return "put all guards under one guards:"
	}
	return "a file has one pipeline"
}

// version12 is the directive of YAML 1.2 before a document, behind comments and other
// directives only.
var version12 = regexp.MustCompile(`^(?:\x{FEFF})?(?:[ \t]*(?:#.*)?\r?\n|%.*\n)*?%YAML[ \t]+1\.(2)[ \t]*(?:[ \t]#.*)?\r?\n`)

// asVersion11 has a document of YAML 1.2 say 1.1, the one directive that our reader of
// YAML takes; it reads both alike. Places stay what they are.
func asVersion11(data []byte) []byte {
	m := version12.FindSubmatchIndex(data)
	if m == nil {
		return data
	}
	changed := bytes.Clone(data)
	changed[m[2]] = '1'
	return changed
}

// whole are numbers without a point or an exponent, of any size.
var whole = regexp.MustCompile(`^[-+]?[0-9][0-9_]*$`)

// shapeOf is that of a scalar, list or mapping. A whole number that has no place in 64
// bits is a float for the reader of YAML, and still whole.
func shapeOf(y *yaml.Node) shape {
	tag := y.ShortTag()
	switch is := shapes[tag]; {
	case is == isFraction && whole.MatchString(y.Value):
		return isInteger
	case is != "":
		return is
	}
	return shape("a value with the tag " + tag)
}

// syntax notes what the parser of YAML has to say. Of a character that it does not take it knows
// the offset alone.
func (p *parser) syntax(data []byte, err error) {
	at, text := place{1, 1}, err.Error()
	var e *yaml.LoadError
	if errors.As(err, &e) {
		at, text = place{e.Mark.Line, max(e.Mark.Column, 1)}, e.Message
		if e.Mark.Line < 1 {
			at = placeOf(data, e.Mark.Index)
		}
	}
	p.fail(at, "", "not YAML: %s", text)
}

// plant makes our node of theirs, each once.
func plant(y *yaml.Node, done map[*yaml.Node]*node) *node {
	if y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	if n := done[y]; n != nil {
		return n
	}
	n := &node{place: place{y.Line, y.Column}, text: y.Value, is: shapeOf(y)}
	done[y] = n
	for i, c := range y.Content {
		if y.Kind == yaml.MappingNode && i%2 == 0 {
			n.keys = append(n.keys, plantKey(c, done))
		} else {
			n.of = append(n.of, plant(c, done))
		}
	}
	return n
}

// plantKey makes a node of a key: one by an alias stands where the alias does.
func plantKey(y *yaml.Node, done map[*yaml.Node]*node) *node {
	n := plant(y, done)
	if y.Kind != yaml.AliasNode {
		return n
	}
	key := *n
	key.place = place{y.Line, y.Column}
	return &key
}
