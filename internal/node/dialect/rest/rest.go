// Package rest maps the short paths of a node, JSON over HTTP for shells and programs
// without a library, to the plain calls of package gateway. The list routes has every
// path but /v1/watch. A new one is a line there, a function that calls the gateway, the
// types of its bodies, and its place in class and repeatable.
package rest

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/node/relay"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// route is one short path: POST /v1/{kind}/{name}:{verb}, or another method on
// /v1/{kind}/{name} without a verb.
type route struct {
	method, kind, verb string
	says               string // what it does, for people
	in, out            reflect.Type
	serve              func(ctx context.Context, g *gateway.Gateway, name string, body []byte) (any, error)
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
func on[I, O any](method, kind, verb, says string, f func(ctx context.Context, g *gateway.Gateway, name string, in *I) (O, error)) route {
	return route{
		method: method, kind: kind, verb: verb, says: says, in: reflect.TypeFor[I](), out: reflect.TypeFor[O](),
		serve: func(ctx context.Context, g *gateway.Gateway, name string, body []byte) (any, error) {
			in := new(I)
			if err := decode(body, in); err != nil {
				return nil, err
			}
			return f(ctx, g, name, in)
		},
	}
}

// Handler serves the short paths, all below /v1/.
type Handler struct {
	g     *gateway.Gateway
	relay *relay.Relay
}

// New is the short paths of a gateway.
func New(g *gateway.Gateway, r *relay.Relay) *Handler { return &Handler{g, r} }

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.EscapedPath() == watchPath {
		h.serveEvents(w, r)
		return
	}
	out, err := h.answer(w, r)
	switch err {
	case nil:
		WriteJSON(w, http.StatusOK, out)
	case gateway.ErrPassed:
	case errMethod:
		w.Header().Set("Allow", strings.Join(allowed(r.URL.EscapedPath()), ", "))
		fail(w, err, "")
	default:
		relay.Mark(w.Header(), r.Header, err)
		fail(w, err, h.g.AskInstead(err))
	}
}

// answer finds the route and brings the call through the door.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request) (any, error) {
	rt, name, err := find(r.Method, r.URL.EscapedPath())
	c := &gateway.Call{Method: "REST/unknown", Class: admission.List, Local: true, Beside: r.Header.Values}
	var body []byte
	var query url.Values
	if err == nil {
		c.Method, c.Class = "REST/"+rt.label(), admission.Keep // it is only refused
		body, err = relay.TakeBody(w, r, name, gateway.MaxRequest)
	}
	if err == nil {
		query, err = queryOf(r.URL)
	}
	if err == nil {
		c.Local, c.Class, c.Twice = false, rt.class(), rt.repeatable(r.Header.Get(gateway.HeaderKey) != "", name, query, body)
	}
	return h.g.Through(r.Context(), c, func(ctx context.Context) (any, error) {
		if err != nil {
			return nil, err
		}
		return h.here(ctx, rt, name, body, query)
	}, h.relay.Proxy(w, r, c, body))
}

// here answers a call on this node.
func (h *Handler) here(ctx context.Context, rt *route, name string, body []byte, query url.Values) (any, error) {
	op := strings.Trim(rt.verb+" "+rt.kind, " ")
	body, err := rt.request(body, query)
	if err != nil {
		return nil, gateway.Named(err, op, name)
	}
	out, err := rt.serve(ctx, h.g, name, body)
	return out, gateway.Named(err, op, name)
}

// class is what a short path is under overload.
func (r *route) class() admission.Class {
	switch {
	case r.method == "GET" || r.kind == "guards":
		return admission.List
	case r.kind == "leases" && r.verb == "open":
		return admission.Create
	case r.kind == "leases" || r.verb == "release" || r.verb == "resign" || r.verb == "renew" || r.verb == "downgrade":
		return admission.Keep
	}
	return admission.Grant
}

// bodyNamesLease reports whether the JSON of a body names a lease.
func bodyNamesLease(body []byte) bool {
	var in struct {
		LeaseID json.RawMessage `json:"lease_id"`
	}
	return len(body) > 0 && json.Unmarshal(body, &in) == nil && in.LeaseID != nil
}

// repeatable reports whether a call may happen twice.
func (r *route) repeatable(key bool, name string, query url.Values, body []byte) bool {
	switch r.verb {
	case "renew", "keep", "evaluate":
		return true
	case "acquire", "campaign":
		return key && !query.Has("lease_id") && !bodyNamesLease(body)
	case "open":
		return key && name == ""
	case "wait", "arrive", "add", "subtract", "set", "compare-and-set", "reserve", "resize", "count-down", "allow", "settle", "cancel", "set-rate", "reset":
		return key
	case "":
		return r.method == http.MethodGet || key && r.kind != "leases"
	}
	return false
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
			return nil, "", gateway.Invalid("", "the path is not escaped rightly: %v", err)
		}
		return rt, name, nil
	}
	if known || escaped == watchPath {
		return nil, "", errMethod
	}
	return nil, "", errNoPath
}

// watchPath is the path of the events; it has no name.
const watchPath = "/v1/watch"

// allowed are the methods of a path.
func allowed(escaped string) (methods []string) {
	if escaped == watchPath {
		return []string{http.MethodGet}
	}
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodPost, http.MethodPut} {
		if rt, _, _ := find(method, escaped); rt != nil {
			methods = append(methods, method)
		}
	}
	return methods
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
	Holder       string      `json:"holder,omitempty" doc:"the holder"`
	RetryAfterMS int64       `json:"retry_after_ms,omitempty" doc:"when to try again"`
	Holders      []restClaim `json:"holders,omitempty" doc:"the holders, at most 16"`
	Leader       string      `json:"leader,omitempty" doc:"where to ask instead"`
}

// restClaim is a holder or waiter.
type restClaim struct {
	HolderID    string `json:"holder_id" doc:"the holder's name, for people"`
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

// Refusal is the JSON of an error of a call that certainly changed nothing.
func Refusal(err error) any { return failure{Error: err.Error(), NotDone: true} }

// fail answers with an error.
func fail(w http.ResponseWriter, err error, leader string) {
	f, code := failure{Error: err.Error(), Leader: leader}, wire.HTTPCode(err)
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
	case err == gateway.ErrTooLarge:
		code = http.StatusRequestEntityTooLarge
	}
	WriteJSON(w, code, f)
}

// retrySeconds is a time to wait as HTTP says it.
func retrySeconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
}

// serveEvents tells what happens as server-sent events.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	out := &eventStream{w: w}
	c := gateway.CallOf(pb.WatchService_Watch_FullMethodName, nil, r.Header.Values, nil)
	err := h.g.Stay(r.Context(), c, func(ctx context.Context) error {
		req, at, err := watchOf(r)
		if err != nil {
			return err
		}
		out.at = at
		return h.g.Follow(ctx, req, out.tell)
	})
	switch {
	case err != nil && r.Context().Err() != nil: // its caller has gone
	case err != nil && out.begun:
		panic(http.ErrAbortHandler) // an answer that ends as it should would be all of it
	case err != nil:
		fail(w, err, h.g.AskInstead(err))
	}
}

// WriteJSON answers a request with v.
func WriteJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a caller that is gone needs no answer
}
