package rest

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// Every short path has its place in the order of an overload.
func TestEveryRouteHasAClass(t *testing.T) {
	for i := range routes {
		r := &routes[i]
		if gives := r.verb == "release" || r.verb == "renew" || r.verb == "resign"; gives != (r.class() == admission.Keep) &&
			r.kind != "leases" && r.verb != "downgrade" && r.verb != "hand-over" {
			t.Errorf("%s %s is of class %s", r.method, r.path(), r.class())
		}
	}
}

// Which short paths may happen twice, without and with an idempotency key.
func TestRepeatable_Routes(t *testing.T) {
	for path, want := range map[string][2]bool{ // without and with a key
		"GET /v1/locks/x": {true, true}, "POST /v1/locks/x:acquire {}": {false, true}, `POST /v1/locks/x:acquire {"lease_id":5}`: {false, false},
		"POST /v1/locks/x:acquire?lease_id=5 ": {false, false}, `POST /v1/locks/x:acquire {"lea\u0073e_id":5}`: {false, false},
		"POST /v1/locks/x:release {}": {false, false}, "POST /v1/locks/x:renew {}": {true, true}, "POST /v1/counters/x:add {}": {false, true},
		"PUT /v1/kv/x {}": {false, true}, "DELETE /v1/kv/x ": {false, true}, "DELETE /v1/leases/5 ": {false, false},
		"POST /v1/leases/:open {}": {false, true}, "POST /v1/leases/5:open {}": {false, false}, "POST /v1/leases/5:keep {}": {true, true},
		"POST /v1/limiters/x:allow {}": {false, true}, "POST /v1/limiters/x:cancel {}": {false, true}, "POST /v1/limiters/x:reset {}": {false, true},
		"GET /v1/limiters/x": {true, true}, "POST /v1/limiters/x:set-rate {}": {false, true}, "POST /v1/limiters/x:settle {}": {false, true},
		"POST /v1/guards/x:evaluate {}": {true, true},
		"POST /v1/barriers/x:arrive {}": {false, true}, "POST /v1/latches/x:wait {}": {false, true},
	} {
		method, rest, _ := strings.Cut(path, " ")
		where, body, _ := strings.Cut(rest, " ")
		for i, key := range []string{"", "k"} {
			r := mustRequest(t, method, where)
			rt, name, err := find(method, r.URL.EscapedPath())
			if err != nil {
				t.Fatal(err)
			}
			if got := rt.repeatable(key != "", name, r.URL.Query(), []byte(body)); got != want[i] {
				t.Errorf("%s with key %q: %v", path, key, got)
			}
		}
	}
}

func mustRequest(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What stands behind the ? of a path is described field by field, those of embedded
// bodies too.
func TestOpenAPI_Query(t *testing.T) {
	got := map[string]bool{}
	for _, p := range queryParameters(reflect.TypeFor[restAsk]()) {
		got[p["name"].(string)] = true
	}
	for _, name := range []string{"key", "cost", "rate", "burst", "algorithm"} {
		if !got[name] {
			t.Errorf("%s is not described: %v", name, got)
		}
	}
	if got[""] {
		t.Error("something without a name is described")
	}
}

// What is wrong with a part of a body is said once.
func TestDecode_SaysItOnce(t *testing.T) {
	for _, fact := range []string{`{"is":5}`, `{"iss":true}`} {
		err := decode([]byte(`{"facts":[`+fact+`]}`), &restGuard{})
		if err == nil || strings.Count(err.Error(), "invalid argument") > 1 || strings.Count(err.Error(), "the JSON that this call takes") > 1 {
			t.Errorf("%s: %v", fact, err)
		}
	}
}
