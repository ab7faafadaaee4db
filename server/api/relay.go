package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// headerRelayed marks a call that another node passed on: it goes no further.
const headerRelayed = "holdfast-relayed"

// relay asks the leader for callers who came to another node.
type relay struct {
	mu   sync.Mutex
	tls  *tls.Config           // nil: plain text
	cas  func() *x509.CertPool // nil: those of tls
	addr string
	conn *grpc.ClientConn
	web  *http.Transport
}

// secure has the leader asked over TLS; it is called before anybody is.
func (r *relay) secure(cfg *tls.Config, cas func() *x509.CertPool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tls, r.cas = cfg, cas
	r.web.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&tls.Dialer{Config: trusting(cfg, cas)}).DialContext(ctx, network, addr)
	}
}

// trusting is cfg for a connection that begins now.
func trusting(cfg *tls.Config, cas func() *x509.CertPool) *tls.Config {
	if cfg = cfg.Clone(); cas != nil {
		cfg.RootCAs = cas()
	}
	return cfg
}

// current is TLS that asks with each connection whom to trust.
type current struct {
	credentials.TransportCredentials
	cfg *tls.Config
	cas func() *x509.CertPool
}

func (c current) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(trusting(c.cfg, c.cas)).ClientHandshake(ctx, authority, raw)
}

// Clone is of credentials.TransportCredentials.
func (c current) Clone() credentials.TransportCredentials { return c }

// credentials are those of the gRPC side.
func (r *relay) credentials() credentials.TransportCredentials {
	if r.tls == nil {
		return insecure.NewCredentials()
	}
	return current{credentials.NewTLS(r.tls), r.tls, r.cas}
}

// url is the leader's place on the HTTP side.
func (r *relay) url(addr string) *url.URL {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tls != nil {
		return &url.URL{Scheme: "https", Host: addr}
	}
	return &url.URL{Scheme: "http", Host: addr}
}

// to is a connection to the leader.
func (r *relay) to(addr string) (*grpc.ClientConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.addr == addr {
		return r.conn, nil
	}
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(r.credentials()))
	if err != nil {
		return nil, err
	}
	if r.conn != nil {
		r.conn.Close()
	}
	r.addr, r.conn = addr, c
	return c, nil
}

func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		r.conn.Close()
		r.conn, r.addr = nil, ""
	}
	r.web.CloseIdleConnections()
}

// elsewhere is where a call that this node refused may succeed: it certainly did
// nothing here, another node leads, and nobody has passed the call on before.
func elsewhere(ctx context.Context, st *status.Status) string {
	f := failureOf(st)
	if st.Code() != codes.Unavailable || !f.GetNotDone() || metadataOf(ctx)(headerRelayed) != "" {
		return ""
	}
	return f.GetLeader()
}

// passedOn is what a call has to say besides its request: what it is about, and
// which trace it belongs to (W3C Trace Context, and its baggage).
var passedOn = []string{headerNamespace, headerKey, "traceparent", "tracestate", "baggage"}

// pass asks the leader instead.
func (g *gateway) pass(ctx context.Context, addr, method string, r any) (any, error) {
	c, err := g.relay.to(addr)
	if err != nil {
		return nil, err
	}
	out, err := answerOf(method)
	if err != nil {
		return nil, err
	}
	md := []string{headerRelayed, "1"}
	for _, name := range passedOn {
		if v := metadataOf(ctx)(name); v != "" {
			md = append(md, name, v)
		}
	}
	defer g.gate.away(classOf(method))()
	return out, c.Invoke(metadata.AppendToOutgoingContext(ctx, md...), method, r, out)
}

// answerOf is an empty answer of a method, /service/method.
func answerOf(full string) (proto.Message, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(full, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, err
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}
