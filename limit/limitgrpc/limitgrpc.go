// Package limitgrpc limits the calls of a gRPC server, by the address of the client, its
// key, or whatever else a call tells:
//
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(limitgrpc.Unary(limiter, limitgrpc.Options{})),
//		grpc.StreamInterceptor(limitgrpc.Stream(limiter, limitgrpc.Options{})),
//	)
//
// A refusal is ResourceExhausted with a RetryInfo and a QuotaFailure, of which the subject is the key (with U+FFFD for bytes
// that are not UTF-8), and answers carry the header ratelimit, as those of package limithttp do.
package limitgrpc

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/internal/middleware"
	"github.com/holdfast-io/holdfast/limit"
)

// Limiter decides about one call of a key: a holdfast.Limiter or LeasedLimiter, or a
// limitlocal.Limiter. One of your own has to return when its context ends: that is what
// [Options.Timeout] ends.
type Limiter = middleware.Limiter

// Failure is what to do with a call about which the limiter cannot decide.
type Failure = middleware.Failure

const (
	// Open lets it pass.
	Open = middleware.Open
	// Closed answers Unavailable.
	Closed = middleware.Closed
	// Local asks [Options.Local].
	Local = middleware.Local
)

// Options are what the interceptors need to know. The zero value limits each client's
// address, and lets calls pass when the limiter fails.
type Options struct {
	// Key names the client of a call, by its context and full method; nil: the address of
	// the peer, of which a connection has none that is not of IP, as over a Unix socket: such calls are
	// refused with FailedPrecondition. An error is answered as it is.
	Key func(ctx context.Context, method string) (string, error)
	// Cost is what a call takes; nil: 1.
	Cost func(ctx context.Context, method string) int64
	// OnFailure is what to do when the limiter fails, and Local decides then with
	// the Failure Local; nil: as Open.
	OnFailure Failure
	Local     Limiter
	// Timeout is how long a call waits for the limiter, which has failed then; 0: 500 ms.
	// A call is counted also if its client does not wait for it.
	Timeout time.Duration
	// Shadow lets refused calls pass: all is decided and told to Observe, and nothing
	// to the client.
	Shadow bool
	// Observe is told of each decision, and why there is none; nil: nobody is. It must
	// not block.
	Observe func(ctx context.Context, method string, d limit.Decision, err error)
	_       struct{}
}

// Unary limits calls with one answer.
func Unary(l Limiter, o Options) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := o.check(ctx, l, info.FullMethod, func(h metadata.MD) { _ = grpc.SetHeader(ctx, h) }); err != nil {
			return nil, err
		}
		return next(ctx, in)
	}
}

// Stream limits the beginning of streams, not their messages.
func Stream(l Limiter, o Options) grpc.StreamServerInterceptor {
	return func(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if err := o.check(s.Context(), l, info.FullMethod, func(h metadata.MD) { _ = s.SetHeader(h) }); err != nil {
			return err
		}
		return next(server, s)
	}
}

// check is nil for a call that may go on. A header that cannot be set any more is no
// reason to refuse it.
func (o *Options) check(ctx context.Context, l Limiter, method string, header func(metadata.MD)) error {
	key, err := o.key(ctx, method)
	if err != nil {
		o.observe(ctx, method, limit.Decision{}, err)
		if o.Shadow {
			return nil
		}
		return err
	}
	d, verdict := o.decide(ctx, l, method, key)
	switch verdict {
	case middleware.Pass:
		return nil
	case middleware.Invalid:
		return status.Error(codes.InvalidArgument, "the limit cannot count this call: its key or cost is not valid")
	case middleware.Unavailable:
		return status.Error(codes.Unavailable, "the limit cannot be looked up now: try again later")
	}
	header(metadata.Pairs("ratelimit", field(d)))
	if verdict == middleware.Refused {
		return refusal(key, d)
	}
	return nil
}

func (o *Options) key(ctx context.Context, method string) (string, error) {
	if o.Key != nil {
		return o.Key(ctx, method)
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", status.Error(codes.InvalidArgument, "the call names no client")
	}
	if p.Addr == nil {
		return "", unnamed("no address")
	}
	a, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil { // all that come by it would share one limit
		return "", unnamed(strconv.Quote(p.Addr.String()) + " of the network " + strconv.Quote(p.Addr.Network()))
	}
	return middleware.KeyOf(a.Addr()), nil
}

// unnamed refuses a call of a connection that tells clients not apart. Only the server can help.
func unnamed(peer string) error {
	return status.Errorf(codes.FailedPrecondition, "the limit has no key for this call: its connection has %s instead of an address of IP; the server has to name clients by limitgrpc.Options.Key", peer)
}

func (o *Options) decide(ctx context.Context, l Limiter, method, key string) (limit.Decision, middleware.Verdict) {
	cost := int64(1)
	if o.Cost != nil {
		cost = o.Cost(ctx, method)
	}
	asker := middleware.Asker{Limiter: l, OnFailure: o.OnFailure, Local: o.Local, Shadow: o.Shadow, Timeout: o.Timeout}
	return asker.Decide(ctx, key, cost, func(d limit.Decision, err error) { o.observe(ctx, method, d, err) })
}

func (o *Options) observe(ctx context.Context, method string, d limit.Decision, err error) {
	if o.Observe != nil {
		o.Observe(ctx, method, d, err)
	}
}

// field is what the header ratelimit tells: the name of the rate, what remains, and the seconds until
// there is more.
func field(d limit.Decision) string {
	until := d.ResetAfter
	if !d.Allowed {
		until = d.RetryAfter
	}
	text := middleware.Quoted(middleware.Policy(d.Policy)) + ";r=" + strconv.FormatInt(d.Remaining, 10)
	if until >= 0 {
		text += ";t=" + middleware.Seconds(until)
	}
	return text
}

// refusal tells bytes of the key that are no text by another character: with them there would be no details.
func refusal(key string, d limit.Decision) error {
	key = strings.ToValidUTF8(key, "\ufffd")
	s := status.New(codes.ResourceExhausted, "too many calls: try again later")
	quota := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: key, Description: "calls above the rate"}}}
	detailed, err := s.WithDetails(quota)
	if d.RetryAfter >= 0 {
		detailed, err = s.WithDetails(quota, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	}
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}
