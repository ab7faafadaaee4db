// Package edgeserver answers for an edge node: checks by HTTP, gRPC and JSON, metrics, a
// page that shows how nodes agree, and alerts when they do not.
package edgeserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/limit/limithttp"
	edgev1 "github.com/holdfast-io/holdfast/proto/holdfast/edge/v1"
	"github.com/holdfast-io/holdfast/proto/holdfast/edge/v1/edgev1connect"
)

// Config is what is served.
type Config struct {
	Node    *edge.Node
	Limiter *edge.Limiter
	Rate    limit.Rate // of Limiter
	// TopKeys is how many keys /metrics names, those with the greatest counts; 0:
	// none, since keys may be addresses or secrets.
	TopKeys int
	// LinkErr is what is wrong with the link; nil: nothing is told.
	LinkErr func() error
}

// maxBody bounds a request's form.
const maxBody = 64 << 10

// Handler answers all paths.
func Handler(c *Config) http.Handler {
	mux := http.NewServeMux()
	limited := limithttp.New(c.Limiter, limithttp.Options{Rate: c.Rate, Key: keyOf, Cost: cost, OnFailure: limithttp.Closed})
	mux.Handle("/v1/check", posted(checked(limited(http.HandlerFunc(allowed)), "key", "cost")))
	mux.Handle("GET /v1/count", checked(http.HandlerFunc(c.count), "key"))
	mux.HandleFunc("GET /healthz", c.health)
	mux.Handle("GET /metrics", metrics(c))
	mux.HandleFunc("GET /v1/nodes", c.nodes)
	mux.HandleFunc("GET /{$}", c.page)
	mux.Handle(edgev1connect.NewEdgeServiceHandler(&service{limiter: c.Limiter}, connect.WithReadMaxBytes(maxBody)))
	return mux
}

// posted allows GET and POST: a check changes what is counted, but a proxy that asks
// before each request often can do nothing but GET.
func posted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodPost {
			w.Header().Set("Allow", "GET, POST")
			http.Error(w, "ask with GET or POST", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

var errCost = errors.New("the cost is no number from 0 on")

// checked refuses a form that says something else than one value of each of these names, and a key: what was meant
// would not be counted.
func checked(next http.Handler, names ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkForm(r, names); err != nil {
			refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkForm(r *http.Request, names []string) error {
	if err := parseForm(r); err != nil {
		return fmt.Errorf("the form cannot be read: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Form)) {
		switch {
		case !slices.Contains(names, name):
			return fmt.Errorf("the parameter %.100q is unknown; there are %q", name, names)
		case len(r.Form[name]) > 1:
			return fmt.Errorf("the parameter %q is given %d times; give it once", name, len(r.Form[name]))
		}
	}
	if r.Form.Has("cost") { // one that is empty is no cost of 1: what was meant was not filled in
		text := r.FormValue("cost")
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < 0 {
			return fmt.Errorf("%w: %.100q", errCost, text)
		}
	}
	return checkKey(r.FormValue("key"))
}

func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("the request names no key: add the parameter key")
	case len(key) > edge.MaxName:
		return fmt.Errorf("the parameter \"key\" has %d bytes; at most %d are allowed", len(key), edge.MaxName)
	}
	return nil
}

// refuse answers a request that is wrong with a problem, as limithttp does.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusBadRequest)
	json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": err.Error(), "status": http.StatusBadRequest})
}

func keyOf(r *http.Request) (string, error) { return r.FormValue("key"), nil }

// parseForm reads all of the form, so that a part which cannot be read is refused: the rest
// of it would be another question.
func parseForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	if err := r.ParseMultipartForm(maxBody); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return err
	}
	return nil
}

func cost(r *http.Request) int64 {
	n, err := strconv.ParseInt(r.FormValue("cost"), 10, 64)
	if err != nil {
		return 1
	}
	return n
}

func allowed(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]any{"allowed": true}) }

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// count tells what all nodes have taken from a key in the present window.
func (c *Config) count(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("key")
	writeJSON(w, map[string]any{"key": key, "count": c.Limiter.Count(key, time.Now())})
}

// health is good also while others cannot be heard: the node decides without them.
func (c *Config) health(w http.ResponseWriter, _ *http.Request) {
	state := map[string]any{"status": "ok", "sync_age_seconds": c.Node.SyncAge().Seconds()}
	if c.LinkErr != nil {
		if err := c.LinkErr(); err != nil {
			state["link"] = err.Error()
		}
	}
	writeJSON(w, state)
}

// service is the gRPC side.
type service struct{ limiter *edge.Limiter }

func (s *service) Check(ctx context.Context, r *edgev1.CheckRequest) (*edgev1.CheckResponse, error) {
	n := int64(1)
	if r.Cost != nil {
		n = *r.Cost
	}
	if n < 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errCost)
	}
	if r.Key == "" { // it was left out rather than meant
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the request names no key: set the field key"))
	}
	d, err := s.limiter.AllowN(ctx, r.Key, n)
	switch {
	case errors.Is(err, fs.ErrInvalid):
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	case err != nil:
		return nil, connect.NewError(connect.CodeResourceExhausted, err)
	}
	return &edgev1.CheckResponse{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfterMs: millis(d.RetryAfter), ResetAfterMs: millis(d.ResetAfter),
	}, nil
}

// millis is rounded up, so that nobody comes too early; -1 stands for never.
func millis(d time.Duration) int64 {
	if d == limit.Never {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
