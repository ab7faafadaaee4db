package rpc

import (
	"context"
	"net"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// around is a registrar that puts the gateway's door before every call, on any gRPC
// server.
type around struct {
	grpc.ServiceRegistrar
	s   *Services
	own bool // the server has our codec
}

// RegisterService is of grpc.ServiceRegistrar.
func (a around) RegisterService(d *grpc.ServiceDesc, impl any) {
	c := *d
	c.Methods, c.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i := range c.Methods {
		c.Methods[i].Handler = a.method("/"+d.ServiceName+"/"+c.Methods[i].MethodName, c.Methods[i].Handler)
	}
	for i := range c.Streams {
		c.Streams[i].Handler = a.stream("/"+d.ServiceName+"/"+c.Streams[i].StreamName, c.Streams[i].Handler)
	}
	a.ServiceRegistrar.RegisterService(&c, impl)
}

func (a around) method(full string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
		in := request{most: gateway.MaxRequestOf(full)}
		receive := func(v any) error {
			in.to = v.(proto.Message)
			return in.take(dec, a.own)
		}
		door := func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return a.s.unary(ctx, full, r, in.bad, next)
		}
		if outer == nil {
			return handle(srv, ctx, receive, door)
		}
		return handle(srv, ctx, receive, func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return outer(ctx, r, info, func(ctx context.Context, r any) (any, error) { return door(ctx, r, info, next) })
		})
	}
}

func (a around) stream(method string, handle grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, ss grpc.ServerStream) error {
		return a.s.streaming(method, srv, calledStream{ss, ss.Context(), method != pb.SessionStream_Attach_FullMethodName, a.own}, handle)
	}
}

// unary is around every plain gRPC call; bad is what is wrong with its request.
func (s *Services) unary(ctx context.Context, method string, r any, bad error, handle grpc.UnaryHandler) (out any, err error) {
	if bad != nil {
		err = s.refuse(ctx, method, bad)
	} else {
		out, err = s.Call(ctx, method, r, handle)
	}
	st := s.status(err)
	if ms := wire.FailureOf(st).GetRetryAfterMs(); ms > 0 {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(ms, 10)))
	}
	return out, st.Err()
}

// refuse brings a call with a request that is not answered through the door, to be counted.
func (s *Services) refuse(ctx context.Context, method string, why error) error {
	c := gateway.CallOf(method, nil, metadataOf(ctx), connOf(ctx))
	c.Local, c.Class = true, admission.Keep // it is only refused
	_, err := s.g.Through(ctx, c, func(context.Context) (any, error) { return nil, why }, nil)
	return err
}

// Call brings a request through the door; handle answers it here.
func (s *Services) Call(ctx context.Context, method string, r any, handle func(context.Context, any) (any, error)) (any, error) {
	if operates(ctx) {
		ctx = gateway.ByOperator(ctx)
	}
	return s.g.Through(ctx, gateway.CallOf(method, r, metadataOf(ctx), connOf(ctx)), func(ctx context.Context) (any, error) {
		return handle(ctx, r)
	}, s.relay.Ask(method, r))
}

// Visit is what the port knows of a connection; credentials.AuthInfo carries it.
type Visit interface {
	// Operator reports whether the caller may change the members of the group.
	Operator() bool
	// Admit refuses a call by the host that it names and the page that it comes from.
	Admit(ctx context.Context, host, origin string) error
}

// admit asks the port whether a call may come in. A server of another's has its own door.
func admit(ctx context.Context) error {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	v, ok := p.AuthInfo.(Visit)
	if !ok {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return v.Admit(ctx, first(md.Get(":authority")), first(md.Get("origin")))
}

// operates reports whether the caller may change the members of the group. On a server
// of another's only the addresses say so.
func operates(ctx context.Context) bool {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return false
	}
	if v, ok := p.AuthInfo.(Visit); ok {
		return v.Operator()
	}
	return SameMachine(p.Addr, p.LocalAddr)
}

// SameMachine reports whether both ends of a connection are on one machine: no other
// can answer from a loopback address, or from the one that it calls.
func SameMachine(remote, local net.Addr) bool {
	r, ok := remote.(*net.TCPAddr)
	if !ok {
		return remote != nil && remote.Network() == "unix"
	}
	l, ok := local.(*net.TCPAddr)
	return r.IP.IsLoopback() || ok && r.IP.Equal(l.IP)
}

// connOf is the connection of a call; nil: it is not known.
func connOf(ctx context.Context) any {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr
	}
	return nil
}

// metadataOf reads metadata by name.
func metadataOf(ctx context.Context) gateway.Beside {
	md, _ := metadata.FromIncomingContext(ctx)
	return func(name string) []string {
		if name == gateway.HeaderNamespace {
			return wire.NamespacesOf(md)
		}
		return md.Get(name)
	}
}

func first(values []string) string {
	if len(values) > 0 {
		return values[0]
	}
	return ""
}

// streaming is around every gRPC stream.
func (s *Services) streaming(method string, srv any, ss calledStream, handle grpc.StreamHandler) error {
	c := gateway.CallOf(method, nil, metadataOf(ss.ctx), connOf(ss.ctx))
	err := s.g.Stay(ss.ctx, c, func(ctx context.Context) error {
		ss.ctx = ctx
		return handle(srv, ss)
	})
	return s.status(err).Err()
}

// calledStream is a stream of a known caller.
type calledStream struct {
	grpc.ServerStream
	ctx   context.Context
	plain bool // its messages are requests like others
	own   bool // the server has our codec
}

// RecvMsg refuses what is longer than a request may be, or has more parts.
func (s calledStream) RecvMsg(m any) error {
	if !s.plain {
		return s.ServerStream.RecvMsg(m)
	}
	in := request{to: m.(proto.Message), most: gateway.MaxRequest}
	return in.whole(s.ServerStream.RecvMsg, s.own)
}

func (s calledStream) Context() context.Context { return s.ctx }
