package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// A 64-bit number that may be above 2^53 is a string in JSON: many readers would lose
// its last digits. Tokens, revisions and counts of things stay below.
func TestJSON_LargeNumbersAreStrings(t *testing.T) {
	small := map[string]bool{
		"token": true, "revision": true, "created": true, "modified": true, "version": true, "weight": true, "limit": true, "used": true,
		"count": true, "term": true, "applied": true, "snapshot": true, "waiting": true,
	}
	for _, v := range []any{
		claimJSON{}, resourceJSON{}, entryJSON{}, nodeJSON{}, memberJSON{}, numbersJSON{}, eventJSON{}, eventPrev{}, counterJSON{}, errorJSON{}, sessionJSON{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if k := f.Type.Kind(); (k == reflect.Uint64 || k == reflect.Int64) && !small[name] && !strings.Contains(options, "string") {
				t.Errorf("%T.%s is a number in JSON", v, f.Name)
			}
		}
	}
	got, err := json.Marshal(memberJSON{ID: 1<<53 + 1})
	if err != nil || !strings.Contains(string(got), `"id":"9007199254740993"`) {
		t.Errorf("a member is %s, %v", got, err)
	}
}

// An event tells what it is about also if that is nothing, or 0: a reader that takes what is left out
// for "not told" would miss the end of a count.
func TestEvents_NothingAndZero(t *testing.T) {
	for _, c := range []struct {
		event      holdfast.Event
		json, text string
	}{
		{holdfast.Event{Kind: "counter", Verb: "changed"}, `"number":"0"`, " number=0"},
		{holdfast.Event{Kind: "latch", Verb: "counted"}, `"number":"0"`, " number=0"},
		{holdfast.Event{Kind: "kv", Verb: "put", KV: &driver.KV{}}, `"value":""`, " value="},
		{holdfast.Event{Kind: "election", Verb: "proclaimed", Token: 7}, `"value":""`, " value="},
	} {
		var told bytes.Buffer
		if err := encode(&told, eventOf(c.event)); err != nil || !strings.Contains(told.String(), c.json) {
			t.Errorf("%s is told as %s (%v), without %s", c.event.String(), told.String(), err, c.json)
		}
		if text := eventText(c.event); !strings.Contains(text, c.text) {
			t.Errorf("%q is without %q", text, c.text)
		}
	}
	for _, e := range []holdfast.Event{{Kind: "lock", Verb: "acquired", Token: 7, Value: []byte{}}, {Kind: "election", Verb: "queued"}, {Kind: "kv", Verb: "delete", KV: &driver.KV{}}} {
		if text := eventText(e); strings.Contains(text, "value") || strings.Contains(text, "number") {
			t.Errorf("%q tells what it has not", text)
		}
	}
}
