package guardfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/internal/strictjson"
)

func (p *parser) readJSON(data []byte) *node {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		at := 0
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = int(e.Offset) - 1
		}
		for at > 0 && !utf8.RuneStart(data[at]) {
			at--
		}
		p.fail(placeOf(data, at), "", "not JSON: %s", err)
		return nil
	}
	if at := strictjson.LoneSurrogate(data); at >= 0 {
		p.fail(placeOf(data, at), "", "half of a surrogate pair, which is no character: escape both halves, or write the character itself")
		return nil
	}
	r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), at: place{1, 1}}
	r.dec.UseNumber()
	return r.value()
}

// jsonReader makes nodes of a text that is known to be JSON.
type jsonReader struct {
	data []byte
	dec  *json.Decoder
	done int   // the bytes before it have been counted
	at   place // of the byte at done
}

func (r *jsonReader) value() *node {
	n := &node{place: r.next()}
	token, _ := r.dec.Token()
	switch v := token.(type) {
	case json.Delim:
		r.parts(n, v)
	case string:
		n.is, n.text = isText, v
	case json.Number:
		n.is, n.text = isInteger, v.String()
		if strings.ContainsAny(n.text, ".eE") {
			n.is = isFraction
		}
	case bool:
		n.is, n.text = isBoolean, map[bool]string{true: "true", false: "false"}[v]
	default:
		n.is = isNothing
	}
	return n
}

// parts reads what is between brackets.
func (r *jsonReader) parts(n *node, open json.Delim) {
	n.is = isList
	if open == '{' {
		n.is = isMapping
	}
	for r.dec.More() {
		if n.is == isMapping {
			n.keys = append(n.keys, r.value())
		}
		n.of = append(n.of, r.value())
	}
	r.dec.Token() // the closing bracket
}

// next is the place of the token that comes.
func (r *jsonReader) next() place {
	offset := int(r.dec.InputOffset())
	for offset < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[offset]) >= 0 {
		offset++
	}
	from := placeOf(r.data[r.done:], offset-r.done)
	if from.line == 1 {
		from.column += r.at.column - 1
	}
	from.line += r.at.line - 1
	r.done, r.at = offset, from
	return from
}
