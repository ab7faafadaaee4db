package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/node/relay"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/proto/holdfast/v1/holdfastv1connect"
)

// Handler serves every service over HTTP: Connect with JSON, and gRPC-Web.
func (s *Services) Handler() http.Handler {
	mux := http.NewServeMux()
	s.mount(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(mux, w, r) })
}

// mount adds every service.
func (s *Services) mount(mux *http.ServeMux) {
	g := s.g
	opts := []connect.HandlerOption{connect.WithInterceptors(overHTTP{s}), connect.WithConditionalHandlerOptions(readMost), connect.WithCodec(protobuf{}), connect.WithCodec(strictJSON("json")), connect.WithCodec(strictJSON("json; charset=utf-8"))}
	add := func(path string, h http.Handler) { mux.Handle(path, h) }
	add(holdfastv1connect.NewLockServiceHandler(lockOverHTTP{gateway.Locks{Gateway: g}}, opts...))
	add(holdfastv1connect.NewRWLockServiceHandler(gateway.RWLocks{Gateway: g}, opts...))
	add(holdfastv1connect.NewSemaphoreServiceHandler(gateway.Semaphores{Gateway: g}, opts...))
	add(holdfastv1connect.NewElectionServiceHandler(gateway.Elections{Gateway: g}, opts...))
	add(holdfastv1connect.NewLatchServiceHandler(gateway.Latches{Gateway: g}, opts...))
	add(holdfastv1connect.NewBarrierServiceHandler(gateway.Barriers{Gateway: g}, opts...))
	add(holdfastv1connect.NewCounterServiceHandler(gateway.Counters{Gateway: g}, opts...))
	add(holdfastv1connect.NewSequenceServiceHandler(gateway.Sequences{Gateway: g}, opts...))
	add(holdfastv1connect.NewLimitServiceHandler(gateway.Limits{Gateway: g}, opts...))
	add(holdfastv1connect.NewGuardServiceHandler(gateway.Guards{Gateway: g}, opts...))
	add(holdfastv1connect.NewKVServiceHandler(gateway.Keys{Gateway: g}, opts...))
	add(holdfastv1connect.NewSessionServiceHandler(gateway.Sessions{Gateway: g}, opts...))
	add(holdfastv1connect.NewFenceServiceHandler(gateway.Fences{Gateway: g}, opts...))
	add(holdfastv1connect.NewAdminServiceHandler(adminOverHTTP{gateway.Admin{Gateway: g}}, opts...))
	add(holdfastv1connect.NewInspectServiceHandler(gateway.Inspector{Gateway: g}, opts...))
	path, watch := holdfastv1connect.NewWatchServiceHandler(watchOverHTTP{g}, opts...)
	add(path, s.watchLines(watch))
}

// readMost bounds the requests of a call.
func readMost(s connect.Spec) []connect.HandlerOption {
	return []connect.HandlerOption{connect.WithReadMaxBytes(gateway.MaxRequestOf(s.Procedure))}
}

// streams are the calls over HTTP that stay; their door is the interceptor, which knows
// when they begin.
var streams = map[string]bool{
	pb.WatchService_Watch_FullMethodName: true, pb.AdminService_Backup_FullMethodName: true,
	pb.LockService_Watch_FullMethodName: true, pb.LockService_LeaseKeepAlive_FullMethodName: true,
}

// serve brings a request through the door. The leader answers it in the words in which
// it came, or connect does here.
func (s *Services) serve(mux http.Handler, w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if streams[path] {
		mux.ServeHTTP(w, r)
		return
	}
	most := gateway.MaxRequestOf(path)
	body, err := relay.TakeBody(w, r, "", int64(most+envelope))
	if err == gateway.ErrTooLarge {
		err = gateway.TooLarge(most)
	}
	c := gateway.CallOf(path, keyed(r, path, body), r.Header.Values, nil)
	c.Told, c.MayWait = true, false // its connection has no other call
	if err != nil {
		c.Local, c.Class = true, admission.Keep // it is only refused
	}
	x := &exchange{answer: w.Header()}
	_, err = s.g.Through(r.Context(), known(c), func(ctx context.Context) (any, error) {
		if err != nil {
			return nil, err
		}
		return nil, x.serve(ctx, mux, w, r, body)
	}, s.relay.Proxy(w, r, c, body))
	if err != nil && err != gateway.ErrPassed && !x.told {
		relay.Mark(w.Header(), r.Header, err)
		_ = errorWriter.Write(w, r, s.connectError(err)) // a caller that is gone needs no answer
	}
}

// keyed is the request of a call with an idempotency key, which decides whether the call may
// happen twice; nil: it has none, or one that cannot be read before connect does.
func keyed(r *http.Request, path string, body []byte) any {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", ".")))
	if method, ok := d.(protoreflect.MethodDescriptor); err == nil && ok && r.Header.Get(gateway.HeaderKey) != "" {
		return requestOf(method, r.Header, body)
	}
	return nil
}

// requestOf reads a body in one of the forms that connect knows, if it is not compressed.
func requestOf(method protoreflect.MethodDescriptor, h http.Header, body []byte) any {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil || h.Get("Content-Encoding") != "" {
		return nil
	}
	m := kind.New().Interface()
	switch content, _, _ := mime.ParseMediaType(h.Get("Content-Type")); content {
	case "application/json":
		err = fromJSON(body, m)
	case "application/proto":
		err = protobuf{}.Unmarshal(body, m)
	case "application/grpc-web", "application/grpc-web+proto":
		if len(body) < envelope || body[0] != 0 {
			return nil
		}
		err = protobuf{}.Unmarshal(body[envelope:], m)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	return m
}

// known is the call of a path; one that is not there has no name of its own in the
// metrics, which do not repeat what a caller writes, and is answered here.
func known(c *gateway.Call) *gateway.Call {
	if !gateway.Known(c.Method) {
		c.Method, c.Local = "unknown", true
	}
	return c
}

// exchange is one request that connect answers.
type exchange struct {
	answer http.Header
	told   bool // it has answered, or begun to
	err    error
}

type exchangeKey struct{}

// serve has connect answer, and returns what its service said.
func (x *exchange) serve(ctx context.Context, mux http.Handler, w http.ResponseWriter, r *http.Request, body []byte) error {
	x.told, x.err = true, gateway.ErrPassed // unless a service is asked
	r = r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	mux.ServeHTTP(w, r)
	return x.err
}

// envelope is what gRPC-Web puts before a message.
const envelope = 5

// errorWriter tells an error in the protocol of a request.
var errorWriter = connect.NewErrorWriter()

// overHTTP is around every call of connect.
type overHTTP struct{ s *Services }

// WrapUnary is of connect.Interceptor. The call is through the door already.
func (o overHTTP) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		out, err := next(ctx, r)
		err = gateway.Honest(ctx, err)
		if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
			x.err = err
			relay.Mark(x.answer, r.Header(), err)
		}
		return out, o.s.connectError(err)
	}
}

// WrapStreamingClient is of connect.Interceptor.
func (o overHTTP) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is of connect.Interceptor.
func (o overHTTP) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		call := gateway.CallOf(c.Spec().Procedure, nil, c.RequestHeader().Values, nil)
		return o.s.connectError(o.s.g.Stay(ctx, call, func(ctx context.Context) error { return next(ctx, c) }))
	}
}

// connectError turns an error into one of connect; nil stays nil.
func (s *Services) connectError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*connect.Error); ok {
		return e
	}
	st := s.status(err)
	e := connect.NewError(connect.Code(st.Code()), connectText(st.Message()))
	if d, err := connect.NewErrorDetail(wire.FailureOf(st)); err == nil {
		e.AddDetail(d)
	}
	if ms := wire.FailureOf(st).GetRetryAfterMs(); ms > 0 {
		e.Meta().Set("Retry-After", strconv.FormatInt(int64(math.Ceil((time.Duration(ms)*time.Millisecond).Seconds())), 10))
	}
	return e
}

// connectText is an error that is only its text.
type connectText string

func (t connectText) Error() string { return string(t) }

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
	return fromJSON(data, m.(proto.Message))
}

// lockOverHTTP is LockService without its streams in both directions, which
// HTTP/1.1 cannot carry.
type lockOverHTTP struct{ gateway.Locks }

func (lockOverHTTP) LeaseKeepAlive(context.Context, *connect.BidiStream[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, connectText("over HTTP keep leases alive with SessionService/Keep"))
}

func (lockOverHTTP) Watch(context.Context, *connect.BidiStream[pb.LockWatchRequest, pb.LockWatchResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, connectText("over HTTP watch with WatchService/Watch or GET /v1/watch"))
}

// watchOverHTTP is WatchService over connect.
type watchOverHTTP struct{ g *gateway.Gateway }

func (w watchOverHTTP) Watch(ctx context.Context, r *pb.WatchRequest, out *connect.ServerStream[pb.WatchResponse]) error {
	return w.g.Follow(ctx, r, out.Send)
}

// adminOverHTTP is AdminService over connect.
type adminOverHTTP struct{ gateway.Admin }

func (a adminOverHTTP) Backup(ctx context.Context, _ *pb.BackupRequest, client *connect.ServerStream[pb.BackupResponse]) error {
	return backup(ctx, a.Admin, client.Send)
}
