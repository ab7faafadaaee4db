package api

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// around is a registrar that puts the gateway around every call, on any gRPC
// server.
type around struct {
	grpc.ServiceRegistrar
	g *gateway
}

// RegisterService is of grpc.ServiceRegistrar.
func (a around) RegisterService(d *grpc.ServiceDesc, impl any) {
	c := *d
	c.Methods, c.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i := range c.Methods {
		c.Methods[i].Handler = a.method(c.Methods[i].Handler)
	}
	for i := range c.Streams {
		c.Streams[i].Handler = a.stream("/"+d.ServiceName+"/"+c.Streams[i].StreamName, c.Streams[i].Handler)
	}
	a.ServiceRegistrar.RegisterService(&c, impl)
}

func (a around) method(handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
		if outer == nil {
			return handle(srv, ctx, dec, a.g.unary)
		}
		return handle(srv, ctx, dec, func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return outer(ctx, r, info, func(ctx context.Context, r any) (any, error) { return a.g.unary(ctx, r, info, next) })
		})
	}
}

func (a around) stream(method string, handle grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, ss grpc.ServerStream) error { return a.g.streaming(method, srv, ss, handle) }
}

// unary is around every plain gRPC call.
func (g *gateway) unary(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	leave, err := g.gate.enter(classOf(info.FullMethod))
	var out any
	var st *status.Status
	if err == nil {
		defer leave()
		out, st = g.routed(ctx, info.FullMethod, r, handle)
	} else {
		st = g.status(err)
	}
	g.meter.called(info.FullMethod, st.Code(), began)
	if ms := failureOf(st).GetRetryAfterMs(); ms > 0 {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(ms, 10)))
	}
	return out, st.Err()
}

// routed runs a call where it belongs: what is about this node here.
func (g *gateway) routed(ctx context.Context, method string, r any, handle func(context.Context, any) (any, error)) (any, *status.Status) {
	here := func(ctx context.Context) (any, error) { return g.checked(ctx, r, handle) }
	if !relayed(method) {
		return g.answered(ctx, here)
	}
	return g.anywhere(ctx, method, r, here)
}

// checked reads what a call says beside its request, and runs it.
func (g *gateway) checked(ctx context.Context, r any, handle func(context.Context, any) (any, error)) (any, error) {
	if m, ok := r.(proto.Message); ok && proto.Size(m) > maxRequest {
		return nil, errTooLarge
	}
	ctx, err := withCaller(ctx, metadataOf(ctx))
	if err != nil {
		return nil, err
	}
	out, err := handle(ctx, r)
	return out, honest(ctx, err)
}

// metadataOf reads metadata by name.
func metadataOf(ctx context.Context) func(string) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return func(name string) string {
		if v := md.Get(name); len(v) > 0 {
			return v[0]
		}
		return ""
	}
}

// streaming is around every gRPC stream.
func (g *gateway) streaming(method string, srv any, ss grpc.ServerStream, handle grpc.StreamHandler) error {
	began := time.Now()
	ctx, err := withCaller(ss.Context(), metadataOf(ss.Context()))
	if err == nil {
		err = g.staying(ctx, method, func() error {
			return handle(srv, calledStream{ss, ctx, method != pb.SessionStream_Attach_FullMethodName})
		})
	}
	var st *status.Status
	if err != nil {
		st = g.status(err)
	}
	g.meter.called(method, st.Code(), began)
	return st.Err()
}

// staying runs a call that may stay for long, if there is room.
func (g *gateway) staying(ctx context.Context, method string, f func() error) error {
	leave, err := g.gate.settle(ctx, classOf(method))
	if err != nil {
		return err
	}
	defer leave()
	return f()
}

// calledStream is a stream whose caller is known.
type calledStream struct {
	grpc.ServerStream
	ctx   context.Context
	plain bool // its messages are requests like others
}

// RecvMsg refuses what is longer than a request may be.
func (s calledStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || !s.plain {
		return err
	}
	if p, ok := m.(proto.Message); ok && proto.Size(p) > maxRequest {
		return errTooLarge
	}
	return nil
}

func (s calledStream) Context() context.Context { return s.ctx }

// overHTTP is around every call of connect.
type overHTTP struct{ g *gateway }

func (o overHTTP) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		began := time.Now()
		ctx, err := o.with(ctx, r.Header().Get)
		var out connect.AnyResponse
		var leave func()
		if err == nil {
			leave, err = o.g.gate.enter(classOf(r.Spec().Procedure))
		}
		if err == nil {
			defer leave()
			out, err = next(ctx, r)
		}
		err = honest(ctx, err)
		return out, o.ended(ctx, r.Spec().Procedure, began, err)
	}
}

func (o overHTTP) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (o overHTTP) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		began := time.Now()
		ctx, err := o.with(ctx, c.RequestHeader().Get)
		if err == nil {
			err = o.g.staying(ctx, c.Spec().Procedure, func() error { return next(ctx, c) })
		}
		return o.ended(ctx, c.Spec().Procedure, began, err)
	}
}

// with reads headers, also as the metadata that gRPC's services look at.
func (o overHTTP) with(ctx context.Context, get func(string) string) (context.Context, error) {
	ctx, err := withCaller(ctx, get)
	return withNamespace(ctx), err
}

// withNamespace says the namespace as the metadata of gRPC.
func withNamespace(ctx context.Context) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(headerNamespace, callerOf(ctx).namespace))
}

// ended turns an error into one of connect.
func (o overHTTP) ended(ctx context.Context, procedure string, began time.Time, err error) error {
	if err == nil {
		o.g.meter.called(procedure, codes.OK, began)
		return nil
	}
	if e, ok := err.(*connect.Error); ok {
		o.g.meter.called(procedure, codes.Code(e.Code()), began)
		return e
	}
	st := o.g.status(err)
	o.g.meter.called(procedure, st.Code(), began)
	e := connect.NewError(connect.Code(st.Code()), connectText(st.Message()))
	if d, err := connect.NewErrorDetail(failureOf(st)); err == nil {
		e.AddDetail(d)
	}
	if ms := failureOf(st).GetRetryAfterMs(); ms > 0 {
		e.Meta().Set("Retry-After", retrySeconds(time.Duration(ms)*time.Millisecond))
	}
	return e
}

// connectText is an error that is only its text.
type connectText string

func (t connectText) Error() string { return string(t) }

// service and method of a full gRPC method.
func splitMethod(full string) (service, method string) {
	service, method, _ = strings.Cut(strings.TrimPrefix(full, "/"), "/")
	return strings.TrimPrefix(service, "holdfast.v1."), method
}
