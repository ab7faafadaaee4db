package api_test

import (
	"strings"
	"testing"
)

// A watch in JSON that makes no sense is refused before it begins, in the namespace of
// its caller; one with envelopes is another protocol.
func TestWatchLines(t *testing.T) {
	r := serve(t)
	const path = "/holdfast.v1.WatchService/Watch"
	for body, says := range map[string]string{
		`{"prefix":7}`: "not the JSON", `{"colour":"red"}`: "not the JSON", `nonsense`: "not the JSON", ``: "not the JSON",
		`{"glob":"["}`: "malformed", `{"patterns":["lock"]}`: "lock",
	} {
		if out := r.want(400, "POST", path, body); out["code"] != "invalid_argument" || !strings.Contains(out["message"].(string), says) {
			t.Errorf("%.50s is answered with %v", body, out)
		}
	}
	r.want(400, "POST", path, "{}", "Holdfast-Namespace", strings.Repeat("x", 600))
	r.want(429, "POST", path, strings.Repeat(" ", 1<<17))
	if code, _ := r.do("GET", path, ""); code != 405 {
		t.Errorf("GET is answered with %d", code)
	}
	if code, _ := r.do("POST", path, "{}", "Content-Type", "text/plain"); code != 415 {
		t.Errorf("text is answered with %d", code)
	}
	r.want(200, "POST", "/v1/counters/n:add", `{"amount":1}`, "Holdfast-Namespace", "team")
	r.want(200, "POST", "/v1/counters/n:add", `{"amount":2}`)
	seen := r.typed(`curl -sN localhost:7420`+path+` -H 'Content-Type: application/json; charset=utf-8' -H 'Holdfast-Namespace: team' -d '{"prefix":"n","fromRevision":"1"}'`, 2)
	if !strings.Contains(seen[1], `"number":"1"`) {
		t.Errorf("the namespace's watch tells %s", seen)
	}
}
