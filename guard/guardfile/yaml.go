package guardfile

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v4"
)

// shapes are those of the tags of YAML.
var shapes = map[string]shape{
	"!!map": isMapping, "!!seq": isList, "!!str": isText, "!!int": isInteger, "!!float": isFraction,
	"!!bool": isBoolean, "!!null": isNothing, "!!timestamp": isDate, "!!merge": isMerge,
}

func (p *parser) readYAML(data []byte) *node {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		p.fail(place{1, 1}, "a file begins with guards:", "the file is empty")
		return nil
	} else if err != nil {
		p.syntax(err)
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		p.fail(place{second.Line, max(second.Column, 1)}, "put all guards under one guards:", "a second document begins here")
		return nil
	} else if err != io.EOF {
		p.syntax(err)
		return nil
	}
	return plant(doc.Content[0], map[*yaml.Node]*node{})
}

// syntax notes what the parser of YAML has to say.
func (p *parser) syntax(err error) {
	at, text := place{1, 1}, err.Error()
	var e *yaml.LoadError
	if errors.As(err, &e) {
		at, text = place{max(e.Mark.Line, 1), max(e.Mark.Column, 1)}, e.Message
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
	n := &node{place: place{y.Line, y.Column}, text: y.Value, is: shapes[y.ShortTag()]}
	if n.is == "" {
		n.is = shape("a value with the tag " + y.ShortTag())
	}
	done[y] = n
	for i, c := range y.Content {
		if y.Kind == yaml.MappingNode && i%2 == 0 {
			n.keys = append(n.keys, plant(c, done))
		} else {
			n.of = append(n.of, plant(c, done))
		}
	}
	return n
}
