package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/internal/node/dialect/rest"
	"github.com/holdfast-io/holdfast/internal/node/dialect/rpc"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/node/relay"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

// lonely is the gateway of a node that never hears of the others.
func lonely(t *testing.T) *gateway.Gateway {
	t.Helper()
	var founders []server.Member
	for i := range 3 {
		founders = append(founders, server.Member{ID: uint64(i + 1), Peer: services.Addr(t)})
	}
	node, err := server.New(server.Config{Dir: t.TempDir(), ID: 1, Founders: founders, Listen: founders[0].Peer, Tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	g := gateway.New(node, func(error) string { return "" })
	t.Cleanup(func() { g.Drain(context.Background()); g.Close() })
	return g
}

// Over HTTP the next leader is told that an earlier one may have done it.
func TestTriedBefore(t *testing.T) {
	g := lonely(t)
	h := rest.New(g, relay.New(g))
	var told []string
	next := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" { // gRPC asks for a sign of life
			told = append(told, r.Header.Get(gateway.HeaderTried))
		}
	}))
	defer next.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" {
			return
		}
		told = append(told, r.Header.Get(gateway.HeaderTried))
		g.Lead(server.Leader{ID: 8, Addr: next.Listener.Addr().String()})
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	}))
	defer first.Close()
	g.Lead(server.Leader{ID: 9, Addr: first.Listener.Addr().String()})
	r := httptest.NewRequest("POST", "/v1/counters/n:add", strings.NewReader("{}"))
	r.Header.Set(gateway.HeaderKey, "once")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 200 || !slices.Equal(told, []string{"", "1"}) {
		t.Errorf("two leaders were told %q: %d %s", told, w.Code, w.Body)
	}
}

// A node that is asked as the next one, and does not lead or has no place, does not say
// that nothing was done.
func TestTriedBefore_Refused(t *testing.T) {
	g := lonely(t)
	h := rest.New(g, relay.New(g))
	for what, code := range map[string]int{"it does not lead": 503, "it has no place": 429} {
		if code == 429 {
			g.Limit(1, 1, 1)
		} else {
			g.Limit(100, 100, 100)
		}
		for tried, want := range map[string]bool{"": true, "1": false} {
			r := httptest.NewRequest("POST", "/v1/counters/n:add", strings.NewReader("{}"))
			r.Header.Set(gateway.HeaderRelayed, "1")
			r.Header.Set(gateway.HeaderTried, tried)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != code || strings.Contains(w.Body.String(), `"not_done":true`) != want {
				t.Errorf("%s, asked as the next (%q): %d %s", what, tried, w.Code, w.Body)
			}
		}
	}
}

// If the next leader cannot do what an earlier one may have done, nobody knows whether it
// was done.
func TestTriedBefore_NextCannot(t *testing.T) {
	g := lonely(t)
	g.Lead(server.Leader{ID: 9, Addr: "first"})
	var asked []string
	there := func(ctx context.Context, x *gateway.Tenure, _ int) (any, error) {
		asked = append(asked, x.Addr)
		if x.Addr == "first" {
			g.Lead(server.Leader{ID: 8, Addr: "next"})
			return nil, &driver.Error{Kind: driver.ErrUnavailable}
		}
		if !gateway.Tried(ctx) {
			t.Error("the next leader is not told")
		}
		return nil, driver.Errorf("ask the leader", x.Addr, driver.ErrUnavailable, "it could not be reached")
	}
	c := &gateway.Call{Method: "REST/test", Class: admission.Grant, Twice: true, Beside: func(string) []string { return nil }}
	_, err := g.Through(t.Context(), c, nil, there)
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Outcome != driver.Unknown || !slices.Equal(asked, []string{"first", "next"}) {
		t.Errorf("%q were asked: %v", asked, err)
	}
}

// A leader that says over HTTP, too, that it does not lead and has done nothing, is
// followed by the next one: its caller is not told.
func TestNothingDone_OverHTTP(t *testing.T) {
	const add = "/holdfast.v1.CounterService/Add"
	deposed := lonely(t)
	short, connect := rest.New(deposed, relay.New(deposed)), rpc.New(deposed, relay.New(deposed)).Handler()
	for path, handler := range map[string]http.Handler{"/v1/counters/n:add": short, add: connect} {
		body := "{}"
		if path == add {
			body = `{"name":"n"}`
		}
		g := lonely(t)
		next := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
		asked := 0
		first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" { // gRPC asks for a sign of life
				asked++
				handler.ServeHTTP(w, r)
				g.Lead(server.Leader{ID: 8, Addr: next.Listener.Addr().String()})
			}
		}))
		g.Lead(server.Leader{ID: 9, Addr: first.Listener.Addr().String()})
		var h http.Handler = rest.New(g, relay.New(g))
		if path == add {
			h = rpc.New(g, relay.New(g)).Handler()
		}
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != 200 || asked != 1 {
			t.Errorf("%s: the first leader was asked %d times, its caller told %d %s", path, asked, w.Code, w.Body)
		}
		next.Close()
		first.Close()
	}
}

// A leader that says over HTTP that it cannot go on, and may have done something, is followed by the
// next one if the call may happen twice; otherwise its caller is told, in its words.
func TestMaybeDone_OverHTTP(t *testing.T) {
	for key, want := range map[string]string{"": "503 words of the first", "once": "200 by the next, tried 1"} {
		g := lonely(t)
		next := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "by the next, tried "+r.Header.Get(gateway.HeaderTried))
		}))
		defer next.Close()
		first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" { // gRPC asks for a sign of life
				relay.Mark(w.Header(), r.Header, &driver.Error{Kind: driver.ErrUnavailable})
				w.WriteHeader(503)
				_, _ = io.WriteString(w, "words of the first")
				g.Lead(server.Leader{ID: 8, Addr: next.Listener.Addr().String()})
			}
		}))
		defer first.Close()
		g.Lead(server.Leader{ID: 9, Addr: first.Listener.Addr().String()})
		r := httptest.NewRequest("POST", "/v1/barriers/b:arrive", strings.NewReader("{}"))
		r.Header.Set(gateway.HeaderKey, key)
		w := httptest.NewRecorder()
		rest.New(g, relay.New(g)).ServeHTTP(w, r)
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want || w.Header().Get(gateway.HeaderUnable) != "" {
			t.Errorf("with key %q: %s, %v", key, got, w.Header())
		}
	}
}

// A call that a proxy or a client has marked as one to be repeated is not repeated by the
// node that passes it on.
func TestRelay_RepeatsNothing(t *testing.T) {
	for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
		g := lonely(t)
		asked := 0
		ctx, cancel := context.WithCancel(t.Context())
		leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "POST" {
				return
			}
			if asked++; asked > 1 { // the first keeps the connection
				time.AfterFunc(200*time.Millisecond, cancel) // no other leader is waited for
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				c.Close()
			}
		}))
		g.Lead(server.Leader{ID: 9, Addr: leader.Listener.Addr().String()})
		h := rest.New(g, relay.New(g))
		for range 2 {
			r := httptest.NewRequest("POST", "/v1/counters/n:add", nil)
			if header != "" {
				r.Header.Set(header, "1")
			}
			h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		}
		cancel()
		leader.Close()
		if asked != 2 {
			t.Errorf("with %q two calls came %d times", header, asked)
		}
	}
}

// A node that knows no leader says so, and when to try again; it names none to be asked.
func TestNoLeader(t *testing.T) {
	g := lonely(t)
	h := rest.New(g, relay.New(g))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/counters/n:add", strings.NewReader("{}")))
	body := w.Body.String()
	if w.Code != 503 || !strings.Contains(body, "knows no leader") || !strings.Contains(body, `"retry_after_ms":1000`) || !strings.Contains(body, `"not_done":true`) {
		t.Errorf("it says %d %s", w.Code, body)
	}
}
