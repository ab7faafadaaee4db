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
	return check(data, reflect.TypeOf(to))
}

// check looks at a text that is the JSON of a value of the type.
func check(data []byte, of reflect.Type) error {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	d := json.NewDecoder(bytes.NewReader(data))
	open, _ := d.Token()
	switch {
	case open == json.Delim('{') && of.Kind() == reflect.Struct:
		return checkFields(d, of)
	case open == json.Delim('[') && of.Kind() == reflect.Slice:
		return checkList(d, of.Elem())
	}
	return nil
}

func checkFields(d *json.Decoder, of reflect.Type) error {
	seen := map[string]bool{}
	for d.More() {
		t, _ := d.Token()
		name, _ := t.(string)
		field, ok := fieldOf(of, name)
		switch {
		case !ok:
			return fmt.Errorf("unknown field %q", name)
		case seen[name]:
			return fmt.Errorf("the field %q is there twice", name)
		}
		seen[name] = true
		if err := check(next(d), field); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func checkList(d *json.Decoder, of reflect.Type) error {
	for i := 1; d.More(); i++ {
		one := next(d)
		if string(one) == "null" {
			return fmt.Errorf("number %d is null", i)
		}
		if err := check(one, of); err != nil {
			return fmt.Errorf("number %d: %w", i, err)
		}
	}
	return nil
}

func next(d *json.Decoder) (value json.RawMessage) {
	_ = d.Decode(&value) // json.Unmarshal has read it
	return value
}

// fieldOf is the type of a field, also of one that is embedded.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && !f.Anonymous {
			return f.Type, true
		}
	}
	return nil, false
}

// LoneSurrogate is where JSON escapes one half of a surrogate pair alone, for which package json
// takes another character; -1: nowhere.
func LoneSurrogate(data []byte) int {
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
