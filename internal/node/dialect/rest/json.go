package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/strictjson"
)

// decode reads a request; no body is an empty one. It is stricter than package json,
// which would store another text than the caller sent: text that is not UTF-8 is
// refused, and so is a field that the call does not have in exactly these letters, or
// that is given twice.
func decode(body []byte, in any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if err := cmp.Or(gateway.CheckJSON(body), checkText(body)); err != nil {
		return err
	}
	if err := checkFields(body, reflect.TypeOf(in).Elem()); err != nil {
		return err
	}
	if err := json.Unmarshal(body, in); err != nil {
		return notTheJSON(err)
	}
	return nil
}

// notTheJSON says so once: a part that reads itself has said it already.
func notTheJSON(err error) error {
	if said, ok := errors.AsType[*driver.Error](err); ok {
		return said
	}
	return gateway.Invalid("", "the body is not the JSON that this call takes: %v", err)
}

// checkText refuses JSON with text that package json would replace.
func checkText(body []byte) error {
	if !utf8.Valid(body) {
		return gateway.Invalid("", "the body is not valid UTF-8: give other bytes in base64, where the call takes that")
	}
	if at := strictjson.LoneSurrogate(body); at >= 0 {
		return gateway.Invalid("", "the body has half of a surrogate pair at byte %d, which is no character: escape both halves", at)
	}
	return nil
}

// checkFields refuses JSON that is no object of a call's fields, each at most once.
func checkFields(body []byte, of reflect.Type) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil {
		return notTheJSON(err)
	} else if t != json.Delim('{') {
		return gateway.Invalid("", "the body has to be a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		if err := checkField(d, of, seen); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return notTheJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return gateway.Invalid("", "something follows the JSON of the body")
	}
	return nil
}

// checkField reads one field.
func checkField(d *json.Decoder, of reflect.Type, seen map[string]bool) error {
	t, err := d.Token()
	if err != nil {
		return notTheJSON(err)
	}
	name, _ := t.(string) // of an object
	if _, ok := fieldOf(of, name); !ok {
		return gateway.Invalid("", "unknown field %q: see /openapi.json, where names are written as they have to be", gateway.Clip(name))
	}
	if seen[name] {
		return gateway.Invalid("", "%q is given twice: give it once", name)
	}
	seen[name] = true
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		return notTheJSON(err)
	}
	return nil
}
