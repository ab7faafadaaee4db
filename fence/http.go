package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

// The headers of a fenced request and of its refusal.
const (
	HeaderToken    = "Holdfast-Token"    // decimal; required
	HeaderResource = "Holdfast-Resource" // percent-encoded
	HeaderMode     = "Holdfast-Mode"     // exclusive (also if absent) or shared
	HeaderError    = "Holdfast-Error"    // in a refusal: its kind, such as stale
)

// Handler runs next inside gate.Do, with the token, resource and mode of the
// request's headers. What it refuses does not reach next and is answered with a
// JSON object with a "message" that says why:
//
//	400  a header is missing, malformed or given twice
//	412  the token is stale, or was used before at a strict gate
//	429  the gate remembers no more resources
//	499  the client went away, or
//	504  the request's time ran out, before its turn came
//	500  the gate itself failed, for example its disk
//
// 412 and not 409: the token is a condition on the state of the resource, and
// sending the same request again can never succeed.
//
// The client names the resource, so it can name a wrong one. Where that matters
// let [Middleware.Target] say what the request is about. The resource is kept
// until next returns: bound the time that a slow client can take to send its
// body (http.Server.ReadTimeout).
//
// Danger: a gate believes the token. A caller that sends a token which it was not
// granted, [MaxToken] at worst, has every later holder refused until Forget of the
// gate: let only authenticated callers reach the handler.
func Handler(gate Doer, next http.Handler) http.Handler {
	return Middleware{Gate: gate}.Wrap(next)
}

// Middleware is [Handler] with options.
type Middleware struct {
	Gate Doer
	// Target says which resource a request is about, and how; the headers for
	// these two are then not looked at. nil: the headers say it. An error that
	// is no *driver.Error is answered with 400.
	Target func(*http.Request) (resource string, mode Mode, err error)
	// Fault is told the errors answered with 500; the client is not, since they
	// may name files. nil: they are dropped.
	Fault func(*http.Request, error)
}

// Wrap returns the handler.
func (m Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := m.pass(r)
		if err == nil {
			err = m.Gate.Do(r.Context(), p.Resource, p.Token, p.Mode, func(ctx context.Context) error {
				next.ServeHTTP(w, r.WithContext(ctx))
				return nil
			})
		}
		if err != nil {
			m.answer(w, r, err)
		}
	})
}

func (m Middleware) pass(r *http.Request) (Pass, error) {
	target := m.Target
	if target == nil {
		target = targetOf
	}
	resource, mode, err := target(r)
	if err != nil {
		return Pass{}, invalid(resource, err)
	}
	text, err := header(r.Header, HeaderToken, true)
	if err != nil {
		return Pass{}, invalid(resource, err)
	}
	token, err := ParseToken(text)
	if err != nil {
		return Pass{}, fmt.Errorf("%s: %w", HeaderToken, err)
	}
	return Pass{resource, token, mode}, nil
}

// targetOf reads resource and mode from the headers.
func targetOf(r *http.Request) (string, Mode, error) {
	text, err := header(r.Header, HeaderResource, true)
	if err != nil {
		return "", 0, err
	}
	resource, err := url.PathUnescape(text)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w; percent-encode the name", HeaderResource, err)
	}
	if err := checkName(resource); err != nil {
		return "", 0, fmt.Errorf("%s: %w", HeaderResource, err)
	}
	text, err = header(r.Header, HeaderMode, false)
	if err != nil {
		return "", 0, err
	}
	mode, err := parseMode(text)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", HeaderMode, err)
	}
	return resource, mode, nil
}

// header returns the one value of a header. Given twice it is an error: a proxy
// and this package could believe in different ones.
func header(h http.Header, name string, required bool) (string, error) {
	values := h.Values(name)
	switch {
	case len(values) > 1:
		return "", fmt.Errorf("the header %s is given %d times", name, len(values))
	case len(values) == 1:
		return values[0], nil
	case required:
		return "", fmt.Errorf("the header %s is missing", name)
	}
	return "", nil
}

func invalid(resource string, err error) error {
	if _, ok := errors.AsType[*driver.Error](err); ok {
		return err
	}
	return driver.Errorf("fence request", resource, fs.ErrInvalid, "%w", err)
}

// escape makes a name fit into a header and keeps it readable.
func escape(name string) string {
	return strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
}

// problem is the body of a refusal.
type problem struct {
	Error         string `json:"error"`
	Message       string `json:"message"`
	Resource      string `json:"resource,omitempty"`
	Token         Token  `json:"token,omitempty"`
	Mode          string `json:"mode,omitempty"`
	LastExclusive Token  `json:"last_exclusive,omitempty"`
	LastShared    Token  `json:"last_shared,omitempty"`
	Repeated      bool   `json:"repeated,omitempty"`
}

// answers maps kinds to statuses; what is not here is a fault of the server.
var answers = []struct {
	kind   error
	name   string
	status int
}{
	{driver.ErrStale, "stale", http.StatusPreconditionFailed},
	{fs.ErrInvalid, "invalid", http.StatusBadRequest},
	{fs.ErrPermission, "permission", http.StatusForbidden},
	{fs.ErrNotExist, "not-exist", http.StatusNotFound},
	{driver.ErrExhausted, "exhausted", http.StatusTooManyRequests},
	{context.DeadlineExceeded, "deadline", http.StatusGatewayTimeout},
	{context.Canceled, "canceled", 499},
	{errors.ErrUnsupported, "unsupported", http.StatusNotImplemented},
}

func (m Middleware) answer(w http.ResponseWriter, r *http.Request, err error) {
	e, _ := errors.AsType[*driver.Error](err)
	for _, a := range answers {
		if e != nil && errors.Is(e.Kind, a.kind) {
			send(w, a.status, describe(a.name, e, err))
			return
		}
	}
	if m.Fault != nil {
		m.Fault(r, err)
	}
	send(w, http.StatusInternalServerError, problem{Error: "internal", Message: "the gate could not be asked; the request was not carried out"})
}

func describe(name string, e *driver.Error, err error) problem {
	p := problem{Error: name, Message: err.Error(), Resource: e.Name}
	if r, ok := errors.AsType[*Refusal](err); ok {
		p.Token, p.Mode, p.Repeated = r.Token, modeName(r.Mode), r.Repeated
		p.LastExclusive, p.LastShared = r.LastExclusive, r.LastShared
	}
	return p
}

func send(w http.ResponseWriter, status int, p problem) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(HeaderError, p.Error)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(p)
}
