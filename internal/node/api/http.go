package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/proto/holdfast/v1/holdfastv1connect"
)

// quiet drops what net/http says about callers' mistakes: they are told.
var quiet = log.New(io.Discard, "", 0)

// handler is all that is served over HTTP.
func (s *Service) handler(peek time.Duration) http.Handler {
	mux := http.NewServeMux()
	s.mount(mux)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", s.metrics())
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, openAPI()) })
	var plain http.Handler = mux
	rest := restHandler{s}
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = inTime(w, r, peek)
		if s.plain.passed(w, r) {
			return
		}
		if rest.serves(r) { // before the mux, which would clean the names in paths
			rest.ServeHTTP(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
	// A page in a browser must not use a node behind its user's back.
	return http.NewCrossOriginProtection().Handler(all)
}

// mount adds every service as JSON, Connect and gRPC-Web.
func (s *Service) mount(mux *http.ServeMux) {
	g := s.plain
	opts := []connect.HandlerOption{connect.WithInterceptors(overHTTP{g}), connect.WithReadMaxBytes(maxRequest), connect.WithCodec(strictJSON("json")), connect.WithCodec(strictJSON("json; charset=utf-8"))}
	for _, add := range []func() (string, http.Handler){
		func() (string, http.Handler) {
			return holdfastv1connect.NewLockServiceHandler(lockOverHTTP{lockService{gateway: g}}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewRWLockServiceHandler(rwService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewSemaphoreServiceHandler(semaphoreService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewElectionServiceHandler(electionService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewLatchServiceHandler(latchService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewBarrierServiceHandler(barrierService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewCounterServiceHandler(counterService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewSequenceServiceHandler(sequenceService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewKVServiceHandler(kvService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewSessionServiceHandler(sessionService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewFenceServiceHandler(fenceService{gateway: g}, opts...)
		},
		func() (string, http.Handler) {
			return holdfastv1connect.NewAdminServiceHandler(adminOverHTTP{adminService{gateway: g}}, opts...)
		},
		func() (string, http.Handler) { return holdfastv1connect.NewInspectServiceHandler(s, opts...) },
		func() (string, http.Handler) {
			path, h := holdfastv1connect.NewWatchServiceHandler(watchOverHTTP{s}, opts...)
			return path, s.watchLines(h)
		},
	} {
		mux.Handle(add())
	}
}

// strictJSON is the JSON of connect, but that a field which a call does not have is
// refused instead of ignored.
type strictJSON string

// Name is of connect.Codec.
func (n strictJSON) Name() string { return string(n) }

// Marshal is of connect.Codec.
func (strictJSON) Marshal(m any) ([]byte, error) { return protojson.Marshal(m.(proto.Message)) }

// Unmarshal is of connect.Codec.
func (strictJSON) Unmarshal(data []byte, m any) error {
	if len(data) == 0 {
		return errors.New("the body is empty: it has to be a JSON object")
	}
	return protojson.Unmarshal(data, m.(proto.Message))
}

// register adds the plain services to a gRPC server.
func (g *gateway) register(r grpc.ServiceRegistrar) {
	pb.RegisterLockServiceServer(r, lockService{gateway: g})
	pb.RegisterRWLockServiceServer(r, rwService{gateway: g})
	pb.RegisterSemaphoreServiceServer(r, semaphoreService{gateway: g})
	pb.RegisterElectionServiceServer(r, electionService{gateway: g})
	pb.RegisterLatchServiceServer(r, latchService{gateway: g})
	pb.RegisterBarrierServiceServer(r, barrierService{gateway: g})
	pb.RegisterCounterServiceServer(r, counterService{gateway: g})
	pb.RegisterSequenceServiceServer(r, sequenceService{gateway: g})
	pb.RegisterKVServiceServer(r, kvService{gateway: g})
	pb.RegisterSessionServiceServer(r, sessionService{gateway: g})
	pb.RegisterFenceServiceServer(r, fenceService{gateway: g})
	pb.RegisterAdminServiceServer(r, adminService{gateway: g})
}

// lockOverHTTP is LockService without its streams in both directions, which
// HTTP/1.1 cannot carry.
type lockOverHTTP struct{ lockService }

func (lockOverHTTP) LeaseKeepAlive(context.Context, *connect.BidiStream[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, connectText("over HTTP keep leases alive with SessionService/Keep"))
}

func (lockOverHTTP) Watch(context.Context, *connect.BidiStream[pb.LockWatchRequest, pb.LockWatchResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, connectText("over HTTP watch with WatchService/Watch or GET /v1/watch"))
}

// watchOverHTTP is WatchService over connect.
type watchOverHTTP struct{ s *Service }

func (w watchOverHTTP) Watch(ctx context.Context, r *pb.WatchRequest, out *connect.ServerStream[pb.WatchResponse]) error {
	return w.s.Watch(r, &sender{ctx: ctx, send: out.Send})
}

// sender is a gRPC stream that goes elsewhere.
type sender struct {
	ctx  context.Context
	send func(*pb.WatchResponse) error
}

func (s *sender) Context() context.Context       { return s.ctx }
func (s *sender) Send(r *pb.WatchResponse) error { return s.send(r) }
func (s *sender) SendMsg(m any) error            { return s.send(m.(*pb.WatchResponse)) }
func (s *sender) RecvMsg(any) error              { return io.EOF }
func (s *sender) SetHeader(metadata.MD) error    { return nil }
func (s *sender) SendHeader(metadata.MD) error   { return nil }
func (s *sender) SetTrailer(metadata.MD)         {}

var _ grpc.ServerStreamingServer[pb.WatchResponse] = (*sender)(nil)

// metrics are for Prometheus.
func (s *Service) metrics() http.Handler {
	return promhttp.HandlerFor(s.plain.meter.registry, promhttp.HandlerOpts{})
}

// ready tells whether the node can serve: it leads, or knows who does.
func (s *Service) ready(w http.ResponseWriter, r *http.Request) {
	st, err := s.node.Status(r.Context())
	code, answer := http.StatusOK, map[string]any{"ready": true, "leader": st.Leader, "member": st.ID, "serving": st.Serving}
	if err != nil || !st.Serving && (st.Leader == 0 || st.Leader == st.ID) {
		code = http.StatusServiceUnavailable
		answer["ready"], answer["reason"] = false, "there is no leader"
		if err != nil {
			answer["reason"] = "the node has stopped"
		}
	}
	writeJSON(w, code, answer)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // who is gone needs no answer
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
