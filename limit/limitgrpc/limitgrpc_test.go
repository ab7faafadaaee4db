package limitgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/limit/limitgrpc"
	"github.com/holdfast-io/holdfast/limit/limitlocal"
)

var rate = limit.Rate{Count: 2, Per: time.Minute}

func local(t testing.TB) *limitlocal.Limiter {
	l, err := limitlocal.New(rate)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func Example() {
	limiter, err := limitlocal.New(rate) // or space.Limiter("api", rate)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(limitgrpc.Unary(limiter, limitgrpc.Options{})),
		grpc.StreamInterceptor(limitgrpc.Stream(limiter, limitgrpc.Options{})),
	)
	fmt.Println(len(server.GetServiceInfo()))
	// Output: 0
}

// serve is a client of a limited server.
func serve(t *testing.T, l limitgrpc.Limiter, o limitgrpc.Options) grpc_health_v1.HealthClient {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limitgrpc.Unary(l, o)), grpc.StreamInterceptor(limitgrpc.Stream(l, o)))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

// answers are those of a limiter to one request after the other.
type answers chan limit.Decision

func (a answers) AllowN(context.Context, string, int64) (limit.Decision, error) { return <-a, nil }

// atOnce are the first three answers of a limiter, all of one moment: what is told of seconds does not depend on how
// long the requests take.
func atOnce(t *testing.T) answers {
	all := make(answers, 3)
	synctest.Test(t, func(t *testing.T) {
		l := local(t)
		for range cap(all) {
			d, err := l.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			all <- d
		}
	})
	return all
}

func TestRefusal(t *testing.T) {
	c := serve(t, atOnce(t), limitgrpc.Options{})
	var header metadata.MD
	for _, want := range []string{`"default";r=1;t=30`, `"default";r=0;t=60`} {
		if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header)); err != nil || header.Get("ratelimit")[0] != want {
			t.Fatal(err, header)
		}
	}
	stream, err := c.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	s := status.Convert(err)
	var retry, quota bool
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration() == 30*time.Second
		case *errdetails.QuotaFailure:
			quota = d.Violations[0].Subject == "127.0.0.1"
		}
	}
	if s.Code() != codes.ResourceExhausted || !retry || !quota {
		t.Errorf("the third of 2 is answered %v with %v", s, s.Details())
	}
}

// failing is a limiter that cannot be reached.
type failing struct{}

func (failing) AllowN(context.Context, string, int64) (limit.Decision, error) {
	return limit.Decision{}, errors.New("unreachable")
}

func TestFailure(t *testing.T) {
	for name, c := range map[string]struct {
		l    limitgrpc.Limiter
		o    limitgrpc.Options
		want [3]codes.Code
	}{
		"open": {failing{}, limitgrpc.Options{}, [3]codes.Code{}},
		"invalid": {invalid{}, limitgrpc.Options{OnFailure: limitgrpc.Local, Local: local(t)},
			[3]codes.Code{codes.InvalidArgument, codes.InvalidArgument, codes.InvalidArgument}},
		"closed": {failing{}, limitgrpc.Options{OnFailure: limitgrpc.Closed}, [3]codes.Code{codes.Unavailable, codes.Unavailable, codes.Unavailable}},
		"local":  {failing{}, limitgrpc.Options{OnFailure: limitgrpc.Local, Local: local(t)}, [3]codes.Code{2: codes.ResourceExhausted}},
		"shadow": {local(t), limitgrpc.Options{Shadow: true}, [3]codes.Code{}},
		"cost": {local(t), limitgrpc.Options{Cost: func(context.Context, string) int64 { return 3 }},
			[3]codes.Code{codes.ResourceExhausted, codes.ResourceExhausted, codes.ResourceExhausted}},
		"key": {local(t), limitgrpc.Options{Key: func(context.Context, string) (string, error) { return "", status.Error(codes.Unauthenticated, "who?") }},
			[3]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated}},
	} {
		seen := 0
		c.o.Observe = func(context.Context, string, limit.Decision, error) { seen++ }
		client := serve(t, c.l, c.o)
		var got [3]codes.Code
		for i := range got {
			_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			got[i] = status.Code(err)
		}
		if got != c.want || seen != 3 && name != "key" {
			t.Errorf("%s: %v, not %v; %d decisions were told", name, got, c.want, seen)
		}
	}
}

// silent is a limiter that never answers.
type silent struct{}

func (silent) AllowN(ctx context.Context, _ string, _ int64) (limit.Decision, error) {
	<-ctx.Done()
	return limit.Decision{}, ctx.Err()
}

// A limiter that is silent has failed after Options.Timeout, however long the client waits.
func TestSilent(t *testing.T) {
	for name, c := range map[string]struct {
		o     limitgrpc.Options
		want  codes.Code
		after time.Duration
	}{
		"default": {limitgrpc.Options{}, codes.OK, 500 * time.Millisecond},
		"open":    {limitgrpc.Options{Timeout: time.Second}, codes.OK, time.Second},
		"closed":  {limitgrpc.Options{Timeout: time.Second, OnFailure: limitgrpc.Closed}, codes.Unavailable, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			c.o.Key = func(context.Context, string) (string, error) { return "k", nil }
			next := func(context.Context, any) (any, error) { return nil, nil }
			_, err := limitgrpc.Unary(silent{}, c.o)(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, next)
			if took := time.Since(start); status.Code(err) != c.want || took != c.after {
				t.Errorf("%s: %v after %s, not %v after %s", name, err, took, c.want, c.after)
			}
		})
	}
}

// invalid is a limiter that cannot count what it is asked for.
type invalid struct{}

func (invalid) AllowN(context.Context, string, int64) (limit.Decision, error) {
	return limit.Decision{}, fmt.Errorf("the key is too long: %w", fs.ErrInvalid)
}

// TestKeys: a client has one key, however its address is written.
func TestKeys(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8:2::1]:5": "2001:db8:2::/64",
		"[fe80::1%eth0]:5": "fe80::/64",
	} {
		var got string
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: address(from)})
		seen := limiterFunc(func(key string) (limit.Decision, error) {
			got = key
			return limit.Decision{Allowed: true}, nil
		})
		next := func(context.Context, any) (any, error) { return nil, nil }
		if _, err := limitgrpc.Unary(seen, limitgrpc.Options{})(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, next); err != nil || got != want {
			t.Errorf("%s is %q (%v), not %q", from, got, err, want)
		}
	}
}

// TestNoAddress: what comes by a connection without an address of IP is refused, and says what to do: it would share
// one key with all others. With keys of the server's own it passes.
func TestNoAddress(t *testing.T) {
	asked := 0
	seen := limiterFunc(func(string) (limit.Decision, error) {
		asked++
		return limit.Decision{Allowed: true}, nil
	})
	next := func(context.Context, any) (any, error) { return nil, nil }
	call := func(from net.Addr, o limitgrpc.Options) error {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: from})
		_, err := limitgrpc.Unary(seen, o)(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, next)
		return err
	}
	for _, from := range []net.Addr{nil, address("@"), address("bufconn"), address(""), &net.UnixAddr{Name: "/run/s", Net: "unix"}} {
		if err := call(from, limitgrpc.Options{}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "Options.Key") || asked != 0 {
			t.Errorf("%v is answered with %v", from, err)
		}
	}
	named := func(context.Context, string) (string, error) { return "k", nil }
	if err := call(nil, limitgrpc.Options{Key: named}); err != nil || asked != 1 {
		t.Errorf("with a key of its own: %v", err)
	}
}

// TestPolicyNames: the header has the name of the rate, in ASCII.
func TestPolicyNames(t *testing.T) {
	decision := make(answers, 1)
	client := serve(t, decision, limitgrpc.Options{})
	for name, want := range map[string]string{"": `"default";r=1;t=0`, "api": `"api";r=1;t=0`, `a"\` + "\u00e9": `"a\"\\%C3%A9";r=1;t=0`} {
		decision <- limit.Decision{Allowed: true, Remaining: 1, Policy: name}
		var header metadata.MD
		if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header)); err != nil || len(header["ratelimit"]) != 1 || header["ratelimit"][0] != want {
			t.Errorf("%q is told as %q: %v", name, header["ratelimit"], err)
		}
	}
}

// address is one of a connection.
type address string

func (address) Network() string  { return "any" }
func (a address) String() string { return string(a) }

// limiterFunc decides by the key.
type limiterFunc func(key string) (limit.Decision, error)

func (f limiterFunc) AllowN(_ context.Context, key string, _ int64) (limit.Decision, error) {
	return f(key)
}

// A key of 10 MB, and a cost that can never be, are refused, and the call is not made.
func TestBadKeysAndCosts(t *testing.T) {
	for what, c := range map[string]struct {
		key  string
		cost int64
		want codes.Code
	}{
		"a key of 10 MB":        {strings.Repeat("k", 10<<20), 1, codes.InvalidArgument},
		"a cost above the rate": {"k", 3, codes.ResourceExhausted},
		"a negative cost":       {"k", -1, codes.ResourceExhausted},
	} {
		o := limitgrpc.Options{
			Key:  func(context.Context, string) (string, error) { return c.key, nil },
			Cost: func(context.Context, string) int64 { return c.cost },
		}
		next := func(context.Context, any) (any, error) { return nil, errors.New("it was made") }
		_, err := limitgrpc.Unary(local(t), o)(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, next)
		if s := status.Convert(err); s.Code() != c.want || len(s.Message()) > 300 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRefusal_AnyKey: a refusal tells when to come back whatever bytes the key has, and however far that is.
func TestRefusal_AnyKey(t *testing.T) {
	const far = 1<<63 - 1
	l := limiterFunc(func(string) (limit.Decision, error) { return limit.Decision{RetryAfter: far}, nil })
	c := serve(t, l, limitgrpc.Options{Key: func(context.Context, string) (string, error) { return "k\xff\xfe", nil }})
	var header metadata.MD
	_, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header))
	var retry time.Duration
	var subject string
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration()
		case *errdetails.QuotaFailure:
			subject = d.Violations[0].Subject
		}
	}
	if retry != far || subject != "k\ufffd" {
		t.Errorf("it is to come back in %s, for %q: %v", retry, subject, err)
	}
	if got := header.Get("ratelimit"); len(got) != 1 || got[0] != `"default";r=0;t=9223372037` {
		t.Errorf("the header is %q", got)
	}
}
