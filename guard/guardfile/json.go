package guardfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
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
	if at := loneSurrogate(data); at >= 0 {
		p.fail(placeOf(data, at), "", "half of a surrogate pair, which is no character: escape both halves, or write the character itself")
		return nil
	}
	r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), at: place{1, 1}}
	r.dec.UseNumber()
	return r.value()
}

// loneSurrogate is where JSON escapes one half of a surrogate pair alone, for which package json
// would take another character; -1: nowhere.
func loneSurrogate(data []byte) int {
	for at := 0; at < len(data); at++ {
		if data[at] != '\\' {
			continue
		}
		first := escaped(data[at:])
		switch {
		case first < 0:
			at++ // another escape, of one character
		case !utf16.IsSurrogate(first):
			at += 5
		case utf16.DecodeRune(first, escaped(data[min(at+6, len(data)):])) == utf8.RuneError:
			return at
		default:
			at += 11
		}
	}
	return -1
}

// escaped is the code unit of \uXXXX in front; -1: it is not that.
func escaped(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
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
