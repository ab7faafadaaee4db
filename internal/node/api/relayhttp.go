package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/internal/wire"
)

// passed passes a request over HTTP on to the leader, if another node leads; false:
// it is to be answered here. As with gRPC the next leader is asked if the first goes
// and the request may happen twice, or certainly has not happened.
func (g *gateway) passed(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get(headerRelayed) != "" || !relayed(r.URL.EscapedPath()) {
		return false
	}
	t := g.tenures.known(r.Context())
	if !t.elsewhere() {
		return false
	}
	began := time.Now()
	body, err := takeBody(w, r)
	for asked := 0; t.elsewhere() && err == nil; asked++ {
		setBody(r, body)
		if err = g.ask(w, r, t); err == nil {
			return true
		}
		if !notDone(err) {
			r.Header.Set(headerTried, "1")
		}
		if asked == maxAsked || !mayAsk(r.Context(), g.status(err), repeatableHTTP(r, body)) {
			break
		}
		next := g.tenures.after(r.Context(), t)
		if next == nil {
			break
		}
		t, err = next, nil
	}
	if err != nil {
		g.refuse(w, r, began, tried(r, err))
		return true
	}
	setBody(r, body) // this node leads by now
	return false
}

// tried is an error of a request that an earlier leader may have done.
func tried(r *http.Request, err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || r.Header.Get(headerTried) == "" || decided(wire.Code(e)) {
		return err
	}
	c := *e
	c.Outcome = driver.Unknown
	return &c
}

// relayed reports whether a path is the leader's: every call but those about the
// node itself, watches, which every node serves, and streams in both directions,
// which none does over HTTP.
func relayed(path string) bool {
	switch path {
	case "/v1/watch", "/holdfast.v1.AdminService/Status", "/holdfast.v1.AdminService/Backup", "/holdfast.v1.WatchService/Watch",
		"/holdfast.v1.LockService/Watch", "/holdfast.v1.LockService/LeaseKeepAlive":
		return false
	}
	return strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/holdfast.v1.")
}

// ask has the leader answer a request that is all here, once it has passed this
// node's gate; an error is still to be told.
func (g *gateway) ask(w http.ResponseWriter, r *http.Request, t *tenure) (err error) {
	class := pathClass(r)
	leave, err := g.gate.enter(class)
	if err != nil {
		return err
	}
	defer leave()
	_, back := g.gate.away(r.Context(), class, false) // its connection has no other call
	defer back()
	l, err := g.relay.use(t)
	if err != nil {
		return g.unanswered(r.Context(), t, err, false)
	}
	defer g.relay.leave(t)
	var sent atomic.Bool
	during, cancel := t.during(r.Context())
	defer cancel()
	during = httptrace.WithClientTrace(during, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	p := httputil.ReverseProxy{
		Transport: l.web, FlushInterval: -1, ErrorLog: quiet,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&l.url)
			p.Out.Host = p.In.Host
			p.Out.Header.Set(headerRelayed, "1")
			unrepeated(p.Out.Header)
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, cause error) {
			err = g.unanswered(during, t, cause, sent.Load())
		},
	}
	p.ServeHTTP(w, r.WithContext(during))
	return err
}

// unrepeated writes the idempotency key so that the transport does not know it: it
// would send a request with one again by itself, but not all of them may be.
func unrepeated(h http.Header) {
	if v := h.Get(headerKey); v != "" {
		h.Del(headerKey)
		h[headerKey] = []string{v}
	}
}

// envelope is what gRPC-Web puts before a message.
const envelope = 5

// takeBody reads all of a request, so that none is under way whose sender is slow.
func takeBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest+envelope))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, errTooLarge
	}
	if err != nil {
		return nil, invalid("", "the body could not be read: %v", err)
	}
	return body, nil
}

// setBody gives a request its body, to be read once more.
func setBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// pathClass is the class of a request; one that is not there only fails.
func pathClass(r *http.Request) admission.Class {
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/v1/") {
		return classOf(path)
	}
	rt, _, err := find(r.Method, path)
	if err != nil {
		return admission.List
	}
	return rt.class()
}

// errorWriter tells an error in the protocol of a request.
var errorWriter = connect.NewErrorWriter()

// refuse answers a request that the leader was not asked, or could not be.
func (g *gateway) refuse(w http.ResponseWriter, r *http.Request, began time.Time, err error) {
	path, ctx := r.URL.EscapedPath(), context.WithoutCancel(r.Context())
	if strings.HasPrefix(path, "/v1/") {
		label := "unknown"
		if rt, _, err := find(r.Method, path); err == nil {
			label = rt.label()
		}
		g.failREST(ctx, w, label, began, err)
		return
	}
	if _, ok := classes[path]; !ok {
		path = "unknown" // metrics do not repeat what a caller writes
	}
	_ = errorWriter.Write(w, r, overHTTP{g}.ended(ctx, path, began, err)) // who is gone needs no answer
}
