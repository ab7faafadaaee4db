package api_test

import (
	"fmt"
	"testing"
)

// "A holder is named, in refusals and in every listing, by the owner (holder_id) of the call
// that took it, else by that of its lease, else as lease with its number": also if the lease is
// that of the call, with an idempotency key and without.
func TestUnnamedHolders(t *testing.T) {
	r := serve(t)
	for _, name := range []string{"plain", "keyed"} {
		headers := []string{}
		if name == "keyed" {
			headers = []string{"Idempotency-Key", "once"}
		}
		a := r.want(200, "POST", "/v1/locks/"+name+":acquire", `{}`, headers...)
		want := fmt.Sprint("lease ", num(a["lease_id"]))
		if b := r.want(409, "POST", "/v1/locks/"+name+":acquire", `{"timeout_ms":0}`); b["holder"] != want {
			t.Errorf("%s: refused with %v, want %q", name, b, want)
		}
		s := r.want(200, "GET", "/v1/locks/"+name, "")
		if h := s["holders"].([]any); len(h) != 1 || h[0].(map[string]any)["holder_id"] != want {
			t.Errorf("%s: it is held by %v, want %q", name, h, want)
		}
	}
	e := r.want(200, "POST", "/v1/elections/boss:campaign", `{}`)
	if l := r.want(200, "GET", "/v1/elections/boss", ""); l["holder_id"] != fmt.Sprint("lease ", num(e["lease_id"])) {
		t.Errorf("leader %v", l)
	}
}
