package remote

import (
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/trust"
)

// DefaultPort is that of an endpoint without one.
const DefaultPort = "7420"

// minTTL is the least that a server with default ticks takes; one that takes
// less, or wants more, says so when a session is opened.
const minTTL = time.Second

func init() {
	driver.Register("holdfast", openURL)
	driver.Register("holdfasts", openURL)
	host.Accept(func(c *Config, h *host.Host) { c.host = h })
}

// Config says which server.
type Config struct {
	// Endpoints are host:port of some or all nodes, at least one.
	Endpoints []string
	// Namespace keeps the names of one tenant apart from those of others; "" is
	// "default". It is no protection: a client that reaches the server may name any.
	Namespace string
	// TLS is for connections to the server; nil: plain TCP, which anybody between
	// the two can read and change.
	TLS *tls.Config

	host *host.Host // nil: the real machine
}

// Open returns a Space on a server. It does not wait for a connection: the first
// call does.
func Open(cfg Config, opts ...holdfast.Option) (*holdfast.Space, error) {
	d, err := New(cfg)
	if err != nil {
		return nil, err
	}
	s, err := holdfast.New(d, opts...)
	if err != nil {
		_ = d.Close(context.Background())
		return nil, err
	}
	return s, nil
}

// New returns a driver on a server, for [holdfast.New].
func New(cfg Config) (driver.Driver, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "no endpoint: name at least one node as host:port")
	}
	e := newEngine(cfg)
	return e.g.New(client.Full("holdfast", minTTL, driver.FeatureDurable, driver.FeatureManyMachines)), nil
}

// openURL opens what ParseURL reads.
func openURL(_ context.Context, u *url.URL) (driver.Driver, error) {
	cfg, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	return New(cfg)
}

// ParseURL reads holdfast://host:port,host:port/namespace, or with holdfasts
// the same over TLS; a slash in the namespace is written as %2F. The files that holdfast_tls_ca, holdfast_tls_cert and
// holdfast_tls_key name are read at once.
func ParseURL(u *url.URL) (Config, error) {
	bad := func(why string) (Config, error) {
		return Config{}, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "%s: use holdfast://host:port,host:port/namespace", why)
	}
	switch {
	case u.Scheme != "holdfast" && u.Scheme != "holdfasts":
		return bad("not a Holdfast server")
	case u.Opaque != "" || u.Host == "":
		return bad("no host")
	case u.User != nil || u.Fragment != "":
		return bad("user and fragment mean nothing here")
	}
	path := strings.Trim(u.EscapedPath(), "/")
	if strings.Contains(path, "/") {
		return bad("there is one namespace, and a slash in it is written as %2F")
	}
	namespace, err := url.PathUnescape(path)
	if err != nil {
		return bad(err.Error())
	}
	cfg := Config{Namespace: namespace}
	for host := range strings.SplitSeq(u.Host, ",") {
		endpoint, ok := withPort(host)
		if !ok {
			return bad("a host is missing")
		}
		cfg.Endpoints = append(cfg.Endpoints, endpoint)
	}
	if err := cfg.trust(u); err != nil {
		return Config{}, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "%s", err)
	}
	return cfg, nil
}

// trust sets how the servers are believed.
func (c *Config) trust(u *url.URL) error {
	if u.Scheme == "holdfasts" {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return err
	}
	for name := range params {
		if !trust.Is(name) {
			return fmt.Errorf("no parameter %s; there are holdfast_tls_ca, holdfast_tls_cert and holdfast_tls_key", name)
		}
	}
	err = trust.Read(c.TLS, params)
	if err != nil && c.TLS == nil {
		return fmt.Errorf("%w: write holdfasts:// for TLS, or leave the parameters out", err)
	}
	return err
}

// withPort adds the default port where there is none.
func withPort(host string) (string, bool) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), DefaultPort
	}
	return net.JoinHostPort(name, port), name != "" && port != ""
}
