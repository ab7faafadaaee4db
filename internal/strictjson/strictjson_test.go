package strictjson_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/strictjson"
)

type part struct {
	Status string `json:"status"`
}

type whole struct {
	part
	ID    string   `json:"id"`
	Texts []string `json:"texts,omitempty"`
	Parts []part   `json:"parts"`
	Any   any      `json:"any"`
}

func TestUnmarshal(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":"1","status":"open","texts":["a"],"parts":[{"status":"x"},{}],"any":{"A":1,"a":[null]}}`:         "",
		" { \"id\" : \"1\" , \"texts\" : [ \"]}\" , \"\\\\\" ] ,\n\t\"parts\" : [ { } , {\"status\":\"\"} ] } ": "", `{"any":[{"id":[{}],"x":"}]\""},[],-1e5,true],"parts":[]}`: "",
		`{"any":[{"a":"\\"}],"ID":""}`: `unknown field "ID"`, `{"any":-1.5e+3,"any":1}`: `the field "any" is there twice`,
		`{"texts":null,"id":null}`: "", `{"id":"\ud83d\ude00 \\ud800"}`: "",
		`{"status":"open","Status":"closed"}`:      `unknown field "Status"`,
		`{"ſtatus":"closed"}`:                      `unknown field "ſtatus"`,
		`{"part":{}}`:                              `unknown field "part"`,
		`{"":""}`:                                  `unknown field ""`,
		`{"id":"1","id":"1"}`:                      `the field "id" is there twice`,
		`{"id":"1","i\u0064":"1"}`:                 `the field "id" is there twice`,
		`{"parts":[{},{"status":"","STATUS":""}]}`: `parts: number 2: unknown field "STATUS"`,
		`{"parts":[null]}`:                         "parts: number 1 is null",
		`{"texts":["a", null ]}`:                   "texts: number 2 is null",
		`{"id":1}`:                                 "cannot unmarshal",
		`{} {}`:                                    "after top-level value",
		"{\"id\":\"\xff\"}":                        "not UTF-8",
		`{"id":"\ud800"}`:                          "surrogate pair at byte 7",
	} {
		var to whole
		if err := strictjson.Unmarshal([]byte(text), &to); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
