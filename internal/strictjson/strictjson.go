// Package strictjson decodes JSON of which no part may be lost or mean something else. Package json takes the last of two
// fields with one name, a field with its name in other letters, null for nothing, and other characters for text that is none.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// Unmarshal is json.Unmarshal, and refuses fields that to does not have in exactly these letters or that are there twice, lists with
// null in them, and text that is no UTF-8. After an error what to has means nothing.
func Unmarshal(data []byte, to any) error {
	if !utf8.Valid(data) {
		return errors.New("it has text that is not UTF-8")
	}
	if at := LoneSurrogate(data); at >= 0 {
		return fmt.Errorf("it has half of a surrogate pair at byte %d, which is no character: escape both halves", at)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return err
	}
	return (&reader{data: data}).check(reflect.TypeOf(to))
}

// reader is at a place of a text that package json has read, so that it is valid.
type reader struct {
	data []byte
	at   int
}

// check looks at the value that comes next, which is for the type.
func (r *reader) check(of reflect.Type) error {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch open := r.peek(); {
	case open == '{' && of.Kind() == reflect.Struct:
		return r.checkFields(fieldsOf(of))
	case open == '[' && of.Kind() == reflect.Slice:
		return r.checkList(of.Elem())
	}
	r.value()
	return nil
}

func (r *reader) checkFields(fields map[string]field) error {
	seen := make([]bool, len(fields))
	for r.at++; r.more(); {
		name := r.name()
		f, ok := fields[name]
		switch {
		case !ok:
			return fmt.Errorf("unknown field %q", name)
		case seen[f.number]:
			return fmt.Errorf("the field %q is there twice", name)
		}
		seen[f.number] = true
		r.peek()
		r.at++ // the colon
		if err := r.check(f.of); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (r *reader) checkList(of reflect.Type) error {
	i := 1
	for r.at++; r.more(); i++ {
		if r.peek() == 'n' {
			return fmt.Errorf("number %d is null", i)
		}
		if err := r.check(of); err != nil {
			return fmt.Errorf("number %d: %w", i, err)
		}
	}
	return nil
}

// peek is the byte that comes next but for blanks.
func (r *reader) peek() byte {
	for bytes.IndexByte([]byte(" \t\r\n"), r.data[r.at]) >= 0 {
		r.at++
	}
	return r.data[r.at]
}

// more goes to the next part of an object or list; false: there is none, and it was left.
func (r *reader) more() bool {
	next := r.peek()
	if next == ',' || next == '}' || next == ']' {
		r.at++
	}
	return next != '}' && next != ']'
}

// name reads that of a field.
func (r *reader) name() (name string) {
	r.peek()
	from := r.at
	r.text()
	if quoted := r.data[from:r.at]; bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	_ = json.Unmarshal(r.data[from:r.at], &name) // it was read before
	return name
}

// text skips one, with its quotes.
func (r *reader) text() {
	for r.at++; r.data[r.at] != '"'; r.at++ {
		if r.data[r.at] == '\\' {
			r.at++
		}
	}
	r.at++
}

// value skips one, with all that is in it.
func (r *reader) value() {
	for depth := 0; r.at < len(r.data); {
		switch r.data[r.at] {
		case '"':
			r.text()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
		default:
			r.at++
			continue
		}
		if depth < 0 || depth == 0 && r.data[r.at] == ',' {
			return // of what it is a part of
		}
		r.at++
	}
}

// field is one that a type has: its place among the others, and its type.
type field struct {
	number int
	of     reflect.Type
}

var fields sync.Map // by type: what fieldsOf has found

// fieldsOf are the fields of a type by their names, also those of one that is embedded.
func fieldsOf(t reflect.Type) map[string]field {
	if known, ok := fields.Load(t); ok {
		return known.(map[string]field)
	}
	found := map[string]field{}
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" && !f.Anonymous {
			found[tag] = field{len(found), f.Type}
		}
	}
	fields.Store(t, found)
	return found
}

// LoneSurrogate is where JSON escapes one half of a surrogate pair alone, for which package json
// takes another character; -1: nowhere.
func LoneSurrogate(data []byte) int {
	for at := 0; at < len(data); at++ {
		next := bytes.IndexByte(data[at:], '\\')
		if next < 0 {
			return -1
		}
		at += next
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
