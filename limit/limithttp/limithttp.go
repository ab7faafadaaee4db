// Package limithttp limits the requests of an HTTP server, by the address of the client,
// its key, or whatever else a request tells:
//
//	limited := limithttp.New(limiter, limithttp.Options{Rate: rate})
//	http.ListenAndServe(addr, limited(handler))
//
// Answers carry RateLimit and RateLimit-Policy (the fields of the IETF's draft) and, of a
// refusal, Retry-After, the status 429 and a problem as JSON (RFC 9457).
//
// Several limits are handlers around each other, each with a Rate of another Name, and each tells its
// own. What an outer one has taken stays taken if an inner one refuses.
package limithttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/middleware"
	"github.com/holdfast-io/holdfast/limit"
)

// Limiter decides about one request of a key: a holdfast.Limiter or LeasedLimiter, or a
// limitlocal.Limiter. One of your own has to return when its context ends: that is what
// [Options.Timeout] ends.
type Limiter = middleware.Limiter

// Failure is what to do with a request about which the limiter cannot decide.
type Failure = middleware.Failure

const (
	// Open lets it pass.
	Open = middleware.Open
	// Closed answers 503.
	Closed = middleware.Closed
	// Local asks [Options.Local].
	Local = middleware.Local
)

// Options are what New needs to know. The zero value limits each client's address, and
// lets requests pass when the limiter fails.
type Options struct {
	// Key names the client of a request; nil: [Client]() without proxies. An error is
	// answered with 400.
	Key func(*http.Request) (string, error)
	// Cost is what a request takes; nil: 1. With 0 it only looks.
	Cost func(*http.Request) int64
	// Rate is the limiter's, for RateLimit-Policy; with a Count of 0 that is not told.
	// Its Name is that of the policy; "" is "default". What is not ASCII in it, and %, is escaped as in a URL.
	Rate limit.Rate
	// OnFailure is what to do when the limiter fails, and Local decides then with
	// the Failure Local; nil: as Open.
	OnFailure Failure
	Local     Limiter
	// Timeout is how long a request waits for the limiter, which has failed then; 0: 500 ms.
	// A request is counted also if its client does not wait for it.
	Timeout time.Duration
	// Shadow lets refused requests pass: all is decided and told to Observe, and
	// nothing to the client.
	Shadow bool
	// Legacy adds X-RateLimit-Limit, -Remaining and -Reset, in seconds.
	Legacy bool
	// Observe is told of each decision, and why there is none; nil: nobody is. It must
	// not block.
	Observe func(r *http.Request, d limit.Decision, err error)
	_       struct{}
}

// New returns what limits a handler by l.
func New(l Limiter, o Options) func(http.Handler) http.Handler {
	if o.Key == nil {
		o.Key = Client()
	}
	asker := middleware.Asker{Limiter: l, OnFailure: o.OnFailure, Local: o.Local, Shadow: o.Shadow, Timeout: o.Timeout}
	return func(next http.Handler) http.Handler {
		return &handler{asker, o, next}
	}
}

type handler struct {
	asker middleware.Asker
	o     Options
	next  http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := h.o.Key(r)
	if err != nil {
		h.observe(r, limit.Decision{}, err)
		if h.o.Shadow {
			h.next.ServeHTTP(w, r)
			return
		}
		problem(w, http.StatusBadRequest, "about:blank", "The request names no client", nil)
		return
	}
	d, verdict := h.decide(r, key)
	switch verdict {
	case middleware.Pass:
		h.next.ServeHTTP(w, r)
	case middleware.Allowed:
		h.tell(w.Header(), d)
		h.next.ServeHTTP(w, r)
	case middleware.Refused:
		h.tell(w.Header(), d)
		h.refuse(w, d)
	case middleware.Invalid:
		problem(w, http.StatusBadRequest, "about:blank", "The limit cannot count this request: its key or cost is not valid", nil)
	default:
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", "The limit cannot be looked up now", nil)
	}
}

func (h *handler) decide(r *http.Request, key string) (limit.Decision, middleware.Verdict) {
	cost := int64(1)
	if h.o.Cost != nil {
		cost = h.o.Cost(r)
	}
	return h.asker.Decide(r.Context(), key, cost, func(d limit.Decision, err error) { h.observe(r, d, err) })
}

func (h *handler) observe(r *http.Request, d limit.Decision, err error) {
	if h.o.Observe != nil {
		h.o.Observe(r, d, err)
	}
}

// policy is the name of the rate as a string of structured fields.
func (h *handler) policy() string { return middleware.Quoted(middleware.Policy(h.o.Rate.Name)) }

func (h *handler) tell(header http.Header, d limit.Decision) {
	until := d.ResetAfter
	if !d.Allowed {
		until = d.RetryAfter
	}
	field := h.policy() + ";r=" + strconv.FormatInt(d.Remaining, 10)
	if until >= 0 {
		field += ";t=" + middleware.Seconds(until)
	}
	header.Add("RateLimit", field) // handlers in each other tell one policy each
	if rate := h.o.Rate; rate.Count > 0 {
		policy := h.policy() + ";q=" + strconv.FormatInt(rate.Count, 10)
		if rate.Per > 0 {
			policy += ";w=" + middleware.Seconds(rate.Per)
		}
		header.Add("RateLimit-Policy", policy)
	}
	if h.o.Legacy && leavesLess(header, d) {
		header.Set("X-RateLimit-Limit", strconv.FormatInt(d.Limit, 10))
		header.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
		header.Set("X-RateLimit-Reset", middleware.Seconds(d.ResetAfter))
	}
}

// leavesLess reports that a decision leaves less than that which a handler around this one has told.
func leavesLess(header http.Header, d limit.Decision) bool {
	told, err := strconv.ParseInt(header.Get("X-RateLimit-Remaining"), 10, 64)
	return err != nil || d.Remaining < told
}

func (h *handler) refuse(w http.ResponseWriter, d limit.Decision) {
	if d.RetryAfter >= 0 {
		w.Header().Set("Retry-After", middleware.Seconds(d.RetryAfter))
	}
	policies := []string{middleware.Policy(h.o.Rate.Name)}
	problem(w, http.StatusTooManyRequests, "https://iana.org/assignments/http-problem-types#quota-exceeded", "Too many requests", policies)
}

func problem(w http.ResponseWriter, status int, kind, title string, policies []string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Policies []string `json:"violated-policies,omitempty"`
	}{kind, title, status, policies})
}
