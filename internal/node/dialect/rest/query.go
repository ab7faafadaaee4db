package rest

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// queryOf reads what stands behind the ? of a path. All of it has to be readable: a
// condition that was left out would be none.
func queryOf(u *url.URL) (url.Values, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, gateway.Invalid("", "what stands behind the ? of the path cannot be read: %v; escape %% as %%25 and ; as %%3B", err)
	}
	return q, nil
}

// request is the JSON of a call: its body, or what stands behind the ? of its path.
// Both at once would have one of them ignored.
func (r *route) request(body []byte, query url.Values) ([]byte, error) {
	switch {
	case len(query) == 0:
		return body, nil
	case len(body) > 0:
		return nil, gateway.Invalid("", "there is a body and something behind the ? of the path: give one")
	}
	fields := map[string]json.RawMessage{}
	for name, values := range query {
		t, ok := fieldOf(r.in, name)
		switch {
		case !ok:
			return nil, gateway.Invalid("", "%q behind the ? of the path is nothing that this call takes: see /openapi.json", gateway.Clip(name))
		case len(values) > 1:
			return nil, gateway.Invalid("", "%q is given %d times behind the ? of the path: give it once", name, len(values))
		case !utf8.ValidString(values[0]):
			return nil, gateway.Invalid("", "%q behind the ? of the path is not valid UTF-8", name)
		}
		if fields[name] = jsonOf(t, values[0]); json.Unmarshal(fields[name], reflect.New(t).Interface()) != nil || isNull(fields[name]) {
			return nil, gateway.Invalid("", "%q behind the ? of the path is %q: give %s", name, gateway.Clip(values[0]), wanted(t))
		}
	}
	return json.Marshal(fields)
}

// isNull: it would be read as if the field were not given, and a condition as none.
func isNull(value json.RawMessage) bool { return string(bytes.TrimSpace(value)) == "null" }

// fieldOf is the type of a field of a body.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && !f.Anonymous {
			return f.Type, true
		}
	}
	return nil, false
}

// wanted says what a field of a type takes.
func wanted(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int64, reflect.Int32, reflect.Int:
		return "a whole number"
	case reflect.Uint64, reflect.Uint32:
		return "a whole number from 0 on"
	}
	return "what /openapi.json says"
}

// jsonOf is a text as JSON: of a number or truth value as it stands, if it is one,
// so that decoding says what is wrong with it.
func jsonOf(t reflect.Type, text string) json.RawMessage {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.String && t.Kind() != reflect.Slice && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // of a string
	return quoted
}
