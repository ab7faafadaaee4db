package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
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
