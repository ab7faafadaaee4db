package fence_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// hello answers 200, and tells what pass it saw.
var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	p, ok := fence.FromContext(r.Context())
	json.NewEncoder(w).Encode(map[string]any{"ok": ok, "pass": p})
})

// ask sends headers, given as pairs, to a handler.
func ask(h http.Handler, headers ...string) *http.Response {
	r := httptest.NewRequest("PUT", "/doc", strings.NewReader("body"))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func fields(t *testing.T, resp *http.Response) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	tokenH    = "Holdfast-Token"
	resourceH = "Holdfast-Resource"
	modeH     = "Holdfast-Mode"
)

func TestHandlerLetsPass(t *testing.T) {
	var g fence.Gate
	h := fence.Handler(&g, hello)
	tests := []struct {
		headers []string
		want    fence.Pass
	}{
		{[]string{tokenH, "5", resourceH, "a/b"}, fence.Pass{Resource: "a/b", Token: 5}},
		{[]string{tokenH, "5", resourceH, "c", modeH, "shared"}, fence.Pass{Resource: "c", Token: 5, Mode: fence.Shared}},
		{[]string{tokenH, "6", resourceH, "%C3%A9%20%25", modeH, "exclusive"}, fence.Pass{Resource: "é %", Token: 6}},
	}
	for _, tt := range tests {
		resp := ask(h, tt.headers...)
		var got struct {
			OK   bool
			Pass fence.Pass
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != 200 || !got.OK || got.Pass != tt.want {
			t.Errorf("%v: %s, %+v, %v", tt.headers, resp.Status, got, err)
		}
		if err := fence.ResponseError(resp); err != nil {
			t.Error(err)
		}
	}
}

func TestHandlerRefusesStaleTokens(t *testing.T) {
	var g fence.Gate
	ran := 0
	h := fence.Handler(&g, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ }))
	ask(h, tokenH, "101", resourceH, "jobs/7")
	resp := ask(h, tokenH, "100", resourceH, "jobs/7", modeH, "shared")
	m := fields(t, resp)
	if resp.StatusCode != 412 || resp.Header.Get("Holdfast-Error") != "stale" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s, %v", resp.Status, resp.Header)
	}
	want := map[string]any{"error": "stale", "resource": "jobs/7", "token": 100.0, "mode": "shared", "last_exclusive": 101.0}
	for k, v := range want {
		if m[k] != v {
			t.Errorf("%s: %v, want %v", k, m[k], v)
		}
	}
	if msg, _ := m["message"].(string); !strings.Contains(msg, "acquire again") {
		t.Errorf("message %q", msg)
	}
	if ran != 1 {
		t.Errorf("the handler ran %d times", ran)
	}
}

func TestHandlerRefusesMalformedHeaders(t *testing.T) {
	tests := []struct {
		headers []string
		word    string
	}{
		{[]string{resourceH, "r"}, "Holdfast-Token is missing"},
		{[]string{tokenH, "5"}, "Holdfast-Resource is missing"},
		{[]string{tokenH, "", resourceH, "r"}, "not a token"},
		{[]string{tokenH, "5, 6", resourceH, "r"}, "not a token"},
		{[]string{tokenH, "0", resourceH, "r"}, "token 0"},
		{[]string{tokenH, "18446744073709551615", resourceH, "r"}, "2^53"},
		{[]string{tokenH, "5", tokenH, "6", resourceH, "r"}, "Holdfast-Token is given 2 times"},
		{[]string{tokenH, "5", resourceH, "r", resourceH, "s"}, "Holdfast-Resource is given 2 times"},
		{[]string{tokenH, "5", resourceH, "r", modeH, "shared", modeH, "exclusive"}, "Holdfast-Mode is given 2 times"},
		{[]string{tokenH, "5", resourceH, "r", modeH, "Shared"}, "not a mode"},
		{[]string{tokenH, "5", resourceH, "%zz"}, "percent-encode"},
		{[]string{tokenH, "5", resourceH, "%00"}, "control character"},
		{[]string{tokenH, "5", resourceH, ""}, "no name"},
	}
	for _, tt := range tests {
		var g fence.Gate
		resp := ask(fence.Handler(&g, hello), tt.headers...)
		m := fields(t, resp)
		if msg, _ := m["message"].(string); resp.StatusCode != 400 || m["error"] != "invalid" || !strings.Contains(msg, tt.word) {
			t.Errorf("%v: %s, %v", tt.headers, resp.Status, m)
		}
		if g.Len() != 0 {
			t.Errorf("%v is remembered", tt.headers)
		}
	}
}

// failing is a gate that cannot be asked.
type failing struct{ err error }

func (f failing) Do(context.Context, string, fence.Token, fence.Mode, func(context.Context) error) error {
	return f.err
}

func TestHandlerAnswersEveryKind(t *testing.T) {
	private := &driver.Error{Op: "fence do", Err: &fs.PathError{Op: "open", Path: "/private/gate", Err: os.ErrPermission}}
	tests := []struct {
		err    error
		status int
		kind   string
	}{
		{driver.Errorf("x", "", driver.ErrExhausted, "full"), 429, "exhausted"},
		{driver.Errorf("x", "", driver.ErrInvalid, "bad"), 400, "invalid"},
		{driver.Errorf("x", "", driver.ErrNotFound, "none"), 404, "not-exist"},
		{driver.Errorf("x", "", context.DeadlineExceeded, "late"), 504, "deadline"},
		{driver.Errorf("x", "", context.Canceled, "gone"), 499, "canceled"},
		{driver.Errorf("x", "", errors.ErrUnsupported, "no"), 501, "unsupported"},
		{private, 500, "internal"},
		{errors.New("plain"), 500, "internal"},
	}
	for _, tt := range tests {
		var told error
		m := fence.Middleware{Gate: failing{tt.err}, Fault: func(_ *http.Request, err error) { told = err }}
		resp := ask(m.Wrap(hello), tokenH, "5", resourceH, "r")
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != tt.status || resp.Header.Get("Holdfast-Error") != tt.kind {
			t.Errorf("%v: %s, %s", tt.err, resp.Status, body)
		}
		if (told == tt.err) != (tt.status == 500) || strings.Contains(string(body), "/private") {
			t.Errorf("%v: told %v, body %s", tt.err, told, body)
		}
	}
	if resp := ask(fence.Handler(failing{private}, hello), tokenH, "5", resourceH, "r"); resp.StatusCode != 500 {
		t.Errorf("without Fault: %s", resp.Status)
	}
}

// A client must not choose what it is fenced by where that matters.
func TestMiddlewareTarget(t *testing.T) {
	var g fence.Gate
	m := fence.Middleware{Gate: &g, Target: func(r *http.Request) (string, fence.Mode, error) {
		switch r.Header.Get("Case") {
		case "plain":
			return "", 0, errors.New("what do you mean")
		case "missing":
			return "", 0, driver.Errorf("look up", "doc", fs.ErrNotExist, "no such document")
		}
		return r.URL.Path, fence.Shared, nil
	}}
	h := m.Wrap(hello)
	if resp := ask(h, tokenH, "5", resourceH, "elsewhere", modeH, "nonsense"); resp.StatusCode != 200 {
		t.Errorf("%s %v", resp.Status, fields(t, resp))
	}
	if x, s := g.Last("/doc"); x != 0 || s != 5 {
		t.Errorf("last %d, %d", x, s)
	}
	if resp := ask(h, "Case", "plain", tokenH, "5"); resp.StatusCode != 400 {
		t.Errorf("%s %v", resp.Status, fields(t, resp))
	}
	if resp := ask(h, "Case", "missing", tokenH, "5"); resp.StatusCode != 404 {
		t.Errorf("%s %v", resp.Status, fields(t, resp))
	}
}

// doer lets a handler take part in lateWrite.
type doer struct{ http.Handler }

func (d doer) Do(ctx context.Context, resource string, token fence.Token, mode fence.Mode, f func(context.Context) error) error {
	r := httptest.NewRequest("PUT", "/", nil).WithContext(context.WithValue(ctx, doer{}, f))
	tr := fence.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w.Result(), nil
	}), Pass: fence.Pass{Resource: resource, Token: token, Mode: mode}}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return err
	}
	return fence.ResponseError(resp)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// work runs what doer put into the request.
var work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	r.Context().Value(doer{}).(func(context.Context) error)(r.Context())
})

// "Runs the handler under Gate.Do": the resource is kept until it returns.
func TestHandlerKeepsTheResource(t *testing.T) {
	if got := lateWrite(t, doer{fence.Handler(&fence.Gate{}, work)}); got != 21 {
		t.Errorf("the older request wrote last: %d", got)
	}
}

func TestACrowdAtAHandler(t *testing.T) { crowd(t, doer{fence.Handler(&fence.Gate{}, work)}, 20) }

func TestAPanickingHandlerFreesTheResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		h := fence.Handler(&g, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() {
				if r := recover(); r != http.ErrAbortHandler {
					t.Errorf("recovered %v", r)
				}
			}()
			ask(h, tokenH, "5", resourceH, "r")
		})
		wg.Wait()
		if err := g.Forget("r"); err != nil {
			t.Error(err)
		}
	})
}

func TestTransport(t *testing.T) {
	var g fence.Gate
	server := httptest.NewServer(fence.Handler(&g, hello))
	defer server.Close()
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	client := &http.Client{Transport: &fence.Transport{Base: own, Pass: fence.Pass{Resource: "fixed", Token: 7}}}
	names := []string{"r", "a/b", " led by a space", "100%", "é", `"quoted"`, "*", "a;b,c", "%2F"}
	for i, name := range names {
		ctx := fence.NewContext(t.Context(), fence.Pass{Resource: name, Token: fence.Token(10 + i), Mode: fence.Shared})
		if err := put(ctx, client, server.URL); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if x, s := g.Last(name); x != 0 || s != fence.Token(10+i) {
			t.Errorf("%q: last %d, %d", name, x, s)
		}
	}
	if err := put(t.Context(), client, server.URL); err != nil {
		t.Error(err)
	}
	if x, _ := g.Last("fixed"); x != 7 {
		t.Errorf("last %d", x)
	}
	g.Check("fixed", 8, fence.Exclusive)
	err := put(t.Context(), client, server.URL)
	wantError(t, err, driver.ErrStale, `"fixed"`, "7", "8", "acquire again")
	if r, ok := errors.AsType[*fence.Refusal](err); !ok || *r != (fence.Refusal{Token: 7, LastExclusive: 8}) {
		t.Errorf("%+v", r)
	}
}

func put(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, "PUT", url, strings.NewReader("body"))
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return fence.ResponseError(resp)
}

// closing tells whether a request's body was closed, as a RoundTripper must.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestTransportSendsNothingWithoutAToken(t *testing.T) {
	tr := &fence.Transport{Base: roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("sent")
		return nil, io.EOF
	})}
	u, _ := url.Parse("http://user:secret@host/doc")
	for _, ctx := range []context.Context{
		t.Context(),
		fence.NewContext(t.Context(), fence.Pass{Resource: "r", Token: 1 << 63}),
	} {
		body := &closing{Reader: strings.NewReader("body")}
		_, err := tr.RoundTrip((&http.Request{Method: "PUT", URL: u, Body: body}).WithContext(ctx))
		wantError(t, err, fs.ErrInvalid)
		if !body.closed || strings.Contains(err.Error(), "secret") {
			t.Errorf("closed: %v, error: %v", body.closed, err)
		}
	}
}

func TestTransportLeavesTheRequestAlone(t *testing.T) {
	u, _ := url.Parse("http://host/doc")
	r := &http.Request{Method: "GET", URL: u}
	tr := &fence.Transport{Pass: fence.Pass{Resource: "r", Token: 5}, Base: roundTrip(func(sent *http.Request) (*http.Response, error) {
		if sent.Header.Get(tokenH) != "5" || sent.Header.Get(modeH) != "exclusive" {
			t.Errorf("sent %v", sent.Header)
		}
		return nil, io.EOF
	})}
	if _, err := tr.RoundTrip(r); err != io.EOF || r.Header != nil {
		t.Errorf("%v, %v", err, r.Header)
	}
}

func TestResponseErrorOfABrokenBody(t *testing.T) {
	for _, body := range []string{"", "{", "[]", `{"token":-1}`, `{"token":5,"mode":"odd","message":"m"}`} {
		resp := &http.Response{Status: "412 Precondition Failed", Header: http.Header{"Holdfast-Error": {"stale"}}, Body: io.NopCloser(strings.NewReader(body))}
		wantError(t, fence.ResponseError(resp), driver.ErrStale)
	}
	// 412 may come from elsewhere, and the body then belongs to the caller.
	resp := &http.Response{StatusCode: 412, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("mine"))}
	if err := fence.ResponseError(resp); err != nil {
		t.Error(err)
	}
	if rest, _ := io.ReadAll(resp.Body); string(rest) != "mine" {
		t.Errorf("left %q", rest)
	}
}
