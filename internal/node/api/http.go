package api

import (
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-io/holdfast/internal/node/dialect/rest"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// quiet drops what net/http says about callers' mistakes: they are told.
var quiet = log.New(io.Discard, "", 0)

// timely bounds how long a caller may take to send a request and to take its answer, whatever
// becomes of the request: what is refused is read to its end too.
func timely(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = inTime(w, r, limit)
		h.ServeHTTP(newTimedAnswer(w, limit), r)
	})
}

// handler is all that is served over HTTP.
func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", s.metrics())
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) { rest.WriteJSON(w, http.StatusOK, rest.OpenAPI()) })
	services := s.rpc.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.EscapedPath(); {
		case strings.HasPrefix(path, "/v1/"): // not by the mux, which would clean the names in paths
			s.rest.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/holdfast.v1."):
			services.ServeHTTP(w, r)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// metrics are for Prometheus.
func (s *Service) metrics() http.Handler {
	return promhttp.HandlerFor(s.gateway.Metrics(), promhttp.HandlerOpts{})
}

// ready tells whether the node can serve: it leads, or knows the leader and where that is.
func (s *Service) ready(w http.ResponseWriter, r *http.Request) {
	st, err := s.node.Status(r.Context())
	code, answer := http.StatusOK, map[string]any{"ready": true, "leader": st.Leader, "member": st.ID, "serving": st.Serving}
	reason := gateway.Unready(&st)
	if err != nil {
		reason = "the node has stopped"
	}
	if reason != "" {
		code = http.StatusServiceUnavailable
		answer["ready"], answer["reason"] = false, reason
	}
	if st.Full { // it goes on with what frees something, and with reads
		answer["disk_full"] = true
	}
	rest.WriteJSON(w, code, answer)
}

// inTime cuts a caller off that sends its request too slowly. Once all of it is
// there the connection is only watched for its end, however long the answer
// takes.
func inTime(w http.ResponseWriter, r *http.Request, limit time.Duration) *http.Request {
	if r.ContentLength == 0 || r.Body == nil {
		return r
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(limit))
	r.Body = &timedBody{ReadCloser: r.Body, c: c}
	return r
}

type timedBody struct {
	io.ReadCloser
	c *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

// timedAnswer cuts a caller off that does not take its answer: each piece of it has limit to
// be taken. Between pieces there may be any time, as in a watch.
type timedAnswer struct {
	http.ResponseWriter
	c     *http.ResponseController
	limit time.Duration
}

// newTimedAnswer takes the deadline of the answer before off the connection.
func newTimedAnswer(w http.ResponseWriter, limit time.Duration) *timedAnswer {
	a := &timedAnswer{w, http.NewResponseController(w), limit}
	_ = a.c.SetWriteDeadline(time.Time{})
	return a
}

// answerPiece is how much of an answer a caller has to take within the limit.
const answerPiece = 64 << 10

func (a *timedAnswer) Write(p []byte) (n int, err error) {
	for first := true; err == nil && (first || n < len(p)); first = false {
		_ = a.c.SetWriteDeadline(time.Now().Add(a.limit))
		var done int
		done, err = a.ResponseWriter.Write(p[n:min(n+answerPiece, len(p))])
		n += done
	}
	return n, err
}

// Flush is of http.Flusher.
func (a *timedAnswer) Flush() { _ = a.FlushError() }

// FlushError is of http.ResponseController.
func (a *timedAnswer) FlushError() error {
	_ = a.c.SetWriteDeadline(time.Now().Add(a.limit))
	return a.c.Flush()
}

// Unwrap is of http.ResponseController.
func (a *timedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
