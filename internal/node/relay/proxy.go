package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// TakeBody reads all of a request, at most so many bytes: a slow sender keeps no call
// under way, and the body can be sent to the leader, and to the next one.
func TakeBody(w http.ResponseWriter, r *http.Request, name string, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, gateway.ErrTooLarge
	}
	if err != nil {
		return nil, gateway.Invalid(name, "the body could not be read: %v", err)
	}
	return body, nil
}

// Proxy has the leader answer a request over HTTP, the call c, to its caller itself; body is
// all of the request's. There returns gateway.ErrPassed if it did.
func (r *Relay) Proxy(w http.ResponseWriter, req *http.Request, c *gateway.Call, body []byte) gateway.There {
	return func(ctx context.Context, t *gateway.Tenure, _ int) (any, error) {
		l, err := r.use(t)
		if err != nil {
			return nil, gateway.Unanswered(ctx, t, err, false)
		}
		defer r.leave(t, l)
		during, cancel := t.During(ctx)
		defer cancel()
		if err := l.proxy(w, withBody(during, req, body), t, c.Twice); err != nil {
			return nil, err
		}
		return nil, gateway.ErrPassed
	}
}

// withBody is a request with its body, to be read once more.
func withBody(ctx context.Context, req *http.Request, body []byte) *http.Request {
	req = req.WithContext(ctx)
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return req
}

// quiet drops what net/http says about callers' mistakes: they are told.
var quiet = log.New(io.Discard, "", 0)

// judgedHere are the headers by which the door of this node has judged the page that a
// request comes from: to the leader it is a node that asks.
var judgedHere = []string{"Origin", "Sec-Fetch-Site"}

// proxy asks the leader; an error is still to be told.
func (l *leaderLink) proxy(w http.ResponseWriter, req *http.Request, t *gateway.Tenure, twice bool) (err error) {
	var sent atomic.Bool
	during := req.Context()
	p := httputil.ReverseProxy{
		Transport: l.web, FlushInterval: -1, ErrorLog: quiet,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&l.url)
			for _, name := range judgedHere {
				p.Out.Header.Del(name)
			}
			p.Out.Header.Set(gateway.HeaderRelayed, "1")
			if gateway.Tried(during) {
				p.Out.Header.Set(gateway.HeaderTried, "1")
			}
			unrepeated(p.Out.Header)
		},
		ModifyResponse: func(r *http.Response) error { return refused(r, twice) },
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, cause error) {
			err = gateway.Unanswered(during, t, cause, sent.Load() && cause != errRefused)
		},
	}
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	p.ServeHTTP(w, req.WithContext(httptrace.WithClientTrace(during, trace)))
	return err
}

var (
	// errRefused: the node that was asked does not lead, and has done nothing.
	errRefused = errors.New("it does not lead any more, and has done nothing")
	// errUnable: it could not serve the call to its end.
	errUnable = errors.New("it could not go on, as a node that does not lead any more: it may have been done; look before you repeat it, or repeat it with the same idempotency key")
)

// refused keeps the answer of a node from the caller if the next leader is asked: since nothing was
// done, or since the call may happen twice.
func refused(r *http.Response, twice bool) error {
	unable := r.Header.Get(gateway.HeaderUnable) != ""
	r.Header.Del(gateway.HeaderUnable) // it is for nodes alone
	switch {
	case r.Header.Get(gateway.HeaderNotDone) != "":
		return errRefused
	case unable && twice:
		return errUnable
	}
	return nil
}

// Mark tells another node that has passed a request on, beside an answer, that nothing was
// done, or that it may have been but not to its end.
func Mark(answer, request http.Header, err error) {
	switch {
	case request.Get(gateway.HeaderRelayed) == "":
	case gateway.NothingDone(err):
		answer.Set(gateway.HeaderNotDone, "1")
	case gateway.MaybeDone(err):
		answer.Set(gateway.HeaderUnable, "1")
	}
}

// unrepeated writes the idempotency key so that the transport does not know it, and leaves
// out another that only the transport knows: it would send a request with one again by
// itself, but not all of them may be.
func unrepeated(h http.Header) {
	h.Del("X-Idempotency-Key")
	if v := h.Get(gateway.HeaderKey); v != "" {
		h.Del(gateway.HeaderKey)
		h[gateway.HeaderKey] = []string{v}
	}
}
