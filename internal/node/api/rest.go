package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/wire"
)

// route is one short path: POST /v1/{kind}/{name}:{verb}, or another method on
// /v1/{kind}/{name} without a verb.
type route struct {
	method, kind, verb string
	says               string // what it does, for people
	in, out            reflect.Type
	serve              func(ctx context.Context, g *gateway, name string, body []byte) (any, error)
}

// path is the route as OpenAPI writes it.
func (r *route) path() string {
	p := "/v1/" + r.kind + "/{name}"
	if r.verb != "" {
		p += ":" + r.verb
	}
	return p
}

// label names the route without the name in its path.
func (r *route) label() string { return strings.Trim(r.kind+"."+r.verb, ".") + " " + r.method }

// on makes a route of a function.
func on[I, O any](method, kind, verb, says string, f func(ctx context.Context, g *gateway, name string, in *I) (O, error)) route {
	return route{
		method: method, kind: kind, verb: verb, says: says, in: reflect.TypeFor[I](), out: reflect.TypeFor[O](),
		serve: func(ctx context.Context, g *gateway, name string, body []byte) (any, error) {
			in := new(I)
			if err := decode(body, in); err != nil {
				return nil, err
			}
			return f(ctx, g, name, in)
		},
	}
}

// restHandler serves the short paths.
type restHandler struct{ s *Service }

func (h restHandler) serves(r *http.Request) bool {
	return strings.HasPrefix(r.URL.EscapedPath(), "/v1/")
}

func (h restHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := h.s.plain
	began := time.Now()
	ctx, err := withCaller(r.Context(), r.Header.Get)
	if err == nil && r.Method == http.MethodGet && r.URL.EscapedPath() == "/v1/watch" {
		h.s.serveEvents(ctx, w, r)
		return
	}
	var out any
	label := "unknown"
	if err == nil {
		out, label, err = h.answer(ctx, w, r)
	}
	if err != nil {
		g.failREST(ctx, w, label, began, err)
		return
	}
	g.meter.called("REST/"+label, 0, began)
	writeJSON(w, http.StatusOK, out)
}

// failREST answers with an error, and counts it.
func (g *gateway) failREST(ctx context.Context, w http.ResponseWriter, label string, began time.Time, err error) {
	st := g.status(err)
	g.meter.called("REST/"+label, st.Code(), began)
	fail(w, err, httpCode(st), failureOf(st).GetLeader())
}

// answer finds the route and runs it; label names it without its name.
func (h restHandler) answer(ctx context.Context, w http.ResponseWriter, r *http.Request) (out any, label string, err error) {
	rt, name, err := find(r.Method, r.URL.EscapedPath())
	if err != nil {
		return nil, "unknown", err
	}
	label = rt.label()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, label, errTooLarge
		}
		return nil, label, invalid(name, "the body could not be read: %v", err)
	}
	if body, err = rt.request(body, r.URL.Query()); err != nil {
		return nil, label, named(err, strings.Trim(rt.verb+" "+rt.kind, " "), name)
	}
	leave, err := h.s.plain.gate.enter(rt.class())
	if err != nil {
		return nil, label, honest(ctx, err)
	}
	defer leave()
	out, err = rt.serve(ctx, h.s.plain, name, body)
	return out, label, named(honest(ctx, err), strings.Trim(rt.verb+" "+rt.kind, " "), name)
}

// find is the route of a path, and the name in it. The name is everything
// between kind and verb, with its slashes; %2F, %3A and the like are decoded.
func find(method, escaped string) (*route, string, error) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(escaped, "/v1/"), "/")
	known := false
	for i := range routes {
		rt := &routes[i]
		name, verb := rest, ""
		if cut := strings.LastIndexByte(rest, ':'); cut >= 0 && rt.verb != "" {
			name, verb = rest[:cut], rest[cut+1:]
		}
		if rt.kind != kind || rt.verb != verb {
			continue
		}
		if known = true; rt.method != method {
			continue
		}
		name, err := url.PathUnescape(name)
		if err != nil {
			return nil, "", invalid("", "the path is not escaped rightly: %v", err)
		}
		return rt, name, nil
	}
	if known {
		return nil, "", errMethod
	}
	return nil, "", errNoPath
}

var (
	errNoPath error = driver.Errorf("call", "", errors.ErrUnsupported, "there is no such path: see /openapi.json")
	errMethod error = driver.Errorf("call", "", errors.ErrUnsupported, "this path has another method: see /openapi.json")
)

// failure is the JSON of an error.
type failure struct {
	Error        string      `json:"error" doc:"what went wrong, and what to do"`
	Kind         string      `json:"kind,omitempty" doc:"held, lost, released, conflict, deadlock, not found, invalid argument, stale, compacted, exhausted, unavailable or closed; absent: the status says it"`
	NotDone      bool        `json:"not_done" doc:"the call certainly changed nothing"`
	Holder       string      `json:"holder,omitempty" doc:"who has it"`
	RetryAfterMS int64       `json:"retry_after_ms,omitempty" doc:"when to try again"`
	Holders      []restClaim `json:"holders,omitempty" doc:"all who have it"`
	Leader       string      `json:"leader,omitempty" doc:"where to ask instead"`
}

// restClaim is a holder or waiter.
type restClaim struct {
	HolderID    string `json:"holder_id" doc:"who, for people"`
	Token       uint64 `json:"token,omitempty" doc:"the fencing token; absent: it waits"`
	Weight      int64  `json:"weight,omitempty" doc:"how much of a semaphore"`
	Mode        string `json:"mode,omitempty" doc:"exclusive or shared"`
	HeldMS      int64  `json:"held_ms" doc:"since when it holds or waits"`
	ExpiresInMS int64  `json:"expires_in_ms" doc:"time left unless it is renewed"`
	Position    int    `json:"position,omitempty" doc:"its place in the queue; absent: it holds"`
	Revoked     bool   `json:"revoked,omitempty" doc:"its end is decided"`
}

func restClaims(list []driver.Claim) (out []restClaim) {
	for i := range list {
		c := &list[i]
		mode := "exclusive"
		if c.Mode == driver.Shared {
			mode = "shared"
		}
		out = append(out, restClaim{
			HolderID: c.Owner, Token: uint64(c.Token), Weight: c.Weight, Mode: mode, HeldMS: c.Held.Milliseconds(),
			ExpiresInMS: c.ExpiresIn.Milliseconds(), Position: c.Position, Revoked: c.Revoked,
		})
	}
	return out
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error, code int, leader string) {
	f := failure{Error: err.Error(), Leader: leader}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		f.NotDone, f.RetryAfterMS, f.Holders = e.Outcome == driver.NotDone, e.RetryAfter.Milliseconds(), restClaims(e.Holders)
		f.Kind = wire.KindOf(e)
		if len(e.Holders) > 0 {
			f.Holder = e.Holders[0].Owner
		}
		if e.RetryAfter > 0 {
			w.Header().Set("Retry-After", retrySeconds(e.RetryAfter))
		}
	}
	switch {
	case err == errNoPath:
		code = http.StatusNotFound
	case err == errMethod:
		code = http.StatusMethodNotAllowed
	case err == errTooLarge:
		code = http.StatusRequestEntityTooLarge
	}
	writeJSON(w, code, f)
}

// plainError is an error that may be a status.
func plainError(err error) error {
	if _, ok := errors.AsType[*driver.Error](err); ok {
		return err
	}
	return wire.Error(err)
}

// retrySeconds is a time to wait as HTTP says it.
func retrySeconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
}

// serveEvents tells what happens as server-sent events.
func (s *Service) serveEvents(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	req, err := watchOf(r)
	if err != nil {
		fail(w, err, http.StatusBadRequest, "")
		return
	}
	out := http.NewResponseController(w)
	begun := false
	send := func(event string, id uint64, v any) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-store")
		}
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\nid: %d\ndata: %s\n\n", event, id, data); err != nil {
			return err
		}
		return out.Flush()
	}
	err = s.plain.staying(ctx, "/holdfast.v1.WatchService/Watch", func() error { return s.events(ctx, req, send) })
	if err != nil && !begun {
		fail(w, plainError(err), httpCode(s.plain.status(err)), "")
	}
}
