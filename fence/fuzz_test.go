package fence_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// Whatever the headers say, the answer is 200 with exactly that pass, or 400
// with a JSON body and nothing remembered.
func FuzzHeaders(f *testing.F) {
	f.Add("5", "r", "shared")
	f.Add("05", "a%2Fb", "")
	f.Add("9007199254740992", "%", "exclusive")
	f.Add("18446744073709551617", "%ff", "EXCLUSIVE")
	f.Fuzz(func(t *testing.T, token, resource, mode string) {
		var g fence.Gate
		var seen fence.Pass
		h := fence.Handler(&g, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen, _ = fence.FromContext(r.Context())
		}))
		resp := ask(h, tokenH, token, resourceH, resource, modeH, mode)
		switch resp.StatusCode {
		case 200:
			if strconv.FormatUint(uint64(seen.Token), 10) != token || seen.Token == 0 || seen.Token > fence.MaxToken {
				t.Errorf("%q was read as %d", token, seen.Token)
			}
			if seen.Resource == "" || len(seen.Resource) > 512 || !utf8.ValidString(seen.Resource) {
				t.Errorf("%q was read as %q", resource, seen.Resource)
			}
			if (seen.Mode == fence.Shared) != (mode == "shared") {
				t.Errorf("%q was read as %d", mode, seen.Mode)
			}
		case 400:
			var m map[string]string
			if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || m["message"] == "" || g.Len() != 0 {
				t.Errorf("%v, %v, %d remembered", m, err, g.Len())
			}
		default:
			t.Errorf("%s", resp.Status)
		}
	})
}

// What a Transport writes, a Handler reads.
func FuzzTransport(f *testing.F) {
	f.Add("a/b", uint64(5), uint8(1))
	f.Add(" %2F+é\u2028", uint64(fence.MaxToken), uint8(0))
	f.Fuzz(func(t *testing.T, resource string, token uint64, mode uint8) {
		var seen fence.Pass
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen, _ = fence.FromContext(r.Context()) })
		sent := fence.Pass{Resource: resource, Token: fence.Token(token), Mode: fence.Mode(mode)}
		tr := fence.Transport{Pass: sent, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			for name, values := range r.Header {
				if strings.ContainsFunc(values[0], func(r rune) bool { return r <= ' ' || r > '~' }) {
					t.Errorf("%s: %q", name, values[0])
				}
			}
			var flat []string
			for name, values := range r.Header {
				flat = append(flat, name, values[0])
			}
			return ask(fence.Handler(&fence.Gate{}, h), flat...), nil
		})}
		r, err := http.NewRequest("PUT", "http://host/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.RoundTrip(r); err == nil && seen != sent {
			t.Errorf("sent %+v, seen %+v", sent, seen)
		}
	})
}

// A server can answer with anything.
func FuzzResponseError(f *testing.F) {
	f.Add("stale", `{"token":5,"mode":"shared","last_exclusive":7}`)
	f.Add("invalid", `{"message":"m"}`)
	f.Add("other", `[`)
	f.Fuzz(func(t *testing.T, kind, body string) {
		resp := &http.Response{Header: http.Header{"Holdfast-Error": {kind}}, Body: io.NopCloser(strings.NewReader(body))}
		err := fence.ResponseError(resp)
		if (err == nil) != (kind == "") || errors.Is(err, driver.ErrStale) != (kind == "stale") {
			t.Errorf("%q: %v", kind, err)
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
