package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/server/admission"
)

// passed passes a request over HTTP on to the leader, if another node leads;
// false: it is to be answered here.
func (g *gateway) passed(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get(headerRelayed) != "" || !relayed(r.URL.EscapedPath()) {
		return false
	}
	addr := g.leader(r.Context())
	if addr == "" {
		return false
	}
	began := time.Now()
	if err := g.ask(w, r, addr); err != nil {
		g.refuse(w, r, began, err)
	}
	return true
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

// ask has the leader answer a request, once it is all here and has passed this
// node's gate; an error is still to be told.
func (g *gateway) ask(w http.ResponseWriter, r *http.Request, addr string) (err error) {
	if err := takeBody(w, r); err != nil {
		return err
	}
	class := pathClass(r)
	leave, err := g.gate.enter(class)
	if err != nil {
		return err
	}
	defer leave()
	defer g.gate.away(class)()
	p := httputil.ReverseProxy{
		Transport: g.relay.web, FlushInterval: -1, ErrorLog: quiet,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(g.relay.url(addr))
			p.Out.Host = p.In.Host
			p.Out.Header.Set(headerRelayed, "1")
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, cause error) {
			err = &driver.Error{Op: "relay", Kind: driver.ErrUnavailable, Err: cause}
		},
	}
	p.ServeHTTP(w, r)
	return err
}

// envelope is what gRPC-Web puts before a message.
const envelope = 5

// takeBody reads all of a request, so that none is under way whose sender is slow.
func takeBody(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest+envelope))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return errTooLarge
		}
		return invalid("", "the body could not be read: %v", err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
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
	path := r.URL.EscapedPath()
	if strings.HasPrefix(path, "/v1/") {
		label := "unknown"
		if rt, _, err := find(r.Method, path); err == nil {
			label = rt.label()
		}
		g.failREST(r.Context(), w, label, began, err)
		return
	}
	if _, ok := classes[path]; !ok {
		path = "unknown" // metrics do not repeat what a caller writes
	}
	_ = errorWriter.Write(w, r, overHTTP{g}.ended(r.Context(), path, began, err)) // who is gone needs no answer
}
