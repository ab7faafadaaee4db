package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/dialect/rest"
	"github.com/holdfast-io/holdfast/internal/node/dialect/rpc"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// callerCheck judges a caller by its connection and by the host that it names, before
// anything else is read of a call, in every dialect.
type callerCheck struct {
	names map[string]bool // that the node answers to, as hostOf writes them
	peers func() *x509.CertPool
	// advertised is the address at which the group tells clients to find this node.
	advertised func(context.Context) string
}

// callerCheck is that of a port at an address.
func (s *Service) callerCheck(cfg *Config, at net.Addr) *callerCheck {
	d := &callerCheck{names: map[string]bool{"localhost": true, hostOf(at.String()): true}, peers: cfg.PeerCAs, advertised: s.advertised}
	for _, name := range cfg.Hosts {
		d.names[hostOf(name)] = true
	}
	return d
}

func (s *Service) advertised(ctx context.Context) string {
	st, err := s.node.Status(ctx)
	if err != nil {
		return ""
	}
	for _, e := range st.Members.Endpoints {
		if e.ID == st.ID {
			return e.Client
		}
	}
	return ""
}

// hostOf is the host of an address, with or without a port, in one spelling; ports do
// not matter, since a tunnel changes them, nor does the zone of an IPv6 address, which only the
// machine itself knows and callers leave out.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// visit is a connection as callerCheck sees it. gRPC carries it as credentials.AuthInfo.
type visit struct {
	check    *callerCheck
	local    string // the host at which the caller came in
	asked    string // the name that the caller checks the certificate by; "": there is no TLS
	operator bool
}

// AuthType is of credentials.AuthInfo.
func (*visit) AuthType() string { return "holdfast" }

// Operator reports whether the caller may change the members of the group.
func (v *visit) Operator() bool { return v.operator }

// visit is the caller of a connection. It is an operator on the machine of the node,
// and with a certificate that the nodes would take for that of one of them.
func (d *callerCheck) visit(c net.Conn) *visit {
	v := &visit{check: d, local: hostOf(c.LocalAddr().String()), operator: rpc.SameMachine(c.RemoteAddr(), c.LocalAddr())}
	if t, ok := c.(*tls.Conn); ok {
		st := t.ConnectionState()
		v.asked = hostOf(st.ServerName)
		v.operator = v.operator || d.isPeer(st.PeerCertificates)
	}
	return v
}

// isPeer reports whether the signer of the nodes' certificates has signed this one.
func (d *callerCheck) isPeer(shown []*x509.Certificate) bool {
	if d.peers == nil || len(shown) == 0 {
		return false
	}
	roots := d.peers()
	if roots == nil { // else those of the system would do
		return false
	}
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range shown[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := shown[0].Verify(o)
	return err == nil
}

// asking has callers asked for a certificate of a node, without which they are served
// as well.
func (d *callerCheck) asking(cfg *tls.Config) *tls.Config {
	if cfg == nil || d.peers == nil || cfg.ClientAuth != tls.NoClientCert {
		return cfg
	}
	cfg = cfg.Clone()
	cfg.ClientAuth, cfg.ClientCAs = tls.RequestClientCert, d.peers()
	return cfg
}

// Admit refuses a call that names a host other than this node, or that the page of
// another host has made in a browser. A call that names none comes from no browser.
func (v *visit) Admit(ctx context.Context, host, origin string) error {
	if _, from, ok := strings.Cut(origin, "://"); origin != "" && (!ok || !strings.EqualFold(from, host)) {
		return foreignOrigin(origin)
	}
	if host == "" || v.knows(hostOf(host)) || hostOf(v.check.advertised(ctx)) == hostOf(host) {
		return nil
	}
	return &foreignHost{driver.Errorf("call", "", fs.ErrPermission, "the call names the host %q, which is not this node: "+
		"a name server may have sent the page of a stranger here (DNS rebinding). Use an address of the node, or have it answer to that name (holdfast serve --host %s)", host, hostOf(host))}
}

// knows reports whether a host is this node for certain: a name that it was given, where
// the caller came in, or what the caller has checked the certificate by.
func (v *visit) knows(host string) bool {
	ip, err := netip.ParseAddr(host)
	return v.check.names[host] || host == v.local || err == nil && ip.IsLoopback() || v.asked != "" && host == v.asked
}

func foreignOrigin(origin string) error {
	return driver.Errorf("call", "", fs.ErrPermission, "the call comes from a page of %q in a browser, which must not use a node behind its user's back: "+
		"call the node from a program, or from a page of the node's own address", origin)
}

// foreignHost is the refusal of a call that names another host.
type foreignHost struct{ why error }

func (f *foreignHost) Error() string { return f.why.Error() }

func (f *foreignHost) Unwrap() error { return f.why }

// around puts the check before everything that is served over HTTP.
func (d *callerCheck) around(h http.Handler) http.Handler {
	browsers := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := r.Context().Value(visitKey{}).(*visit)
		err := v.Admit(r.Context(), r.Host, r.Header.Get("Origin"))
		if err == nil && browsers.Check(r) != nil {
			err = foreignOrigin("another site")
		}
		if err != nil {
			code := http.StatusForbidden
			if _, host := err.(*foreignHost); host {
				code = http.StatusMisdirectedRequest
			}
			rest.WriteJSON(w, code, rest.Refusal(err))
			return
		}
		if v.operator {
			r = r.WithContext(gateway.ByOperator(r.Context()))
		}
		h.ServeHTTP(w, r)
	})
}

type visitKey struct{}

// connected remembers the visit of each request of a connection over HTTP.
func (d *callerCheck) connected(ctx context.Context, c net.Conn) context.Context {
	if a, ok := c.(*attended); ok {
		ctx, c = context.WithValue(ctx, attendedKey{}, a), a.Conn
	}
	return context.WithValue(ctx, visitKey{}, d.visit(c))
}

// visits remembers the visit of each call of a connection of gRPC, which is past its
// handshake.
type visits struct {
	credentials.TransportCredentials
	d *callerCheck
}

// ServerHandshake is of credentials.TransportCredentials.
func (v visits) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, v.d.visit(c), nil
}

// Clone is of credentials.TransportCredentials.
func (v visits) Clone() credentials.TransportCredentials { return v }
