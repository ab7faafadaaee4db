package remote

import (
	"context"
	"crypto/tls"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
)

// DefaultPort is that of an endpoint without one.
const DefaultPort = "7420"

// minTTL is the least that a server with default ticks takes; one that takes
// less, or wants more, says so when a session is opened.
const minTTL = time.Second

func init() {
	driver.Register("holdfast", openURL)
	driver.Register("holdfasts", openURL)
}

// Config says which server.
type Config struct {
	// Endpoints are host:port of some or all nodes, at least one.
	Endpoints []string
	// Namespace is the tenant; "" is "default".
	Namespace string
	// TLS is for connections to the server; nil: plain TCP.
	TLS *tls.Config
}

// Open returns a Space on a server. It does not wait for a connection: the first
// call does.
func Open(cfg Config, opts ...holdfast.Option) (*holdfast.Space, error) {
	d, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return holdfast.New(d, opts...)
}

// New returns a driver on a server, for [holdfast.New].
func New(cfg Config) (driver.Driver, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "no endpoint: name at least one node as host:port")
	}
	e := newEngine(cfg)
	return e.g.New(client.Full("holdfast", minTTL, driver.FeatureDurable, driver.FeatureManyMachines)), nil
}

// openURL opens holdfast://host:port,host:port/namespace.
func openURL(_ context.Context, u *url.URL) (driver.Driver, error) {
	bad := func(why string) (driver.Driver, error) {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "%s: use holdfast://host:port,host:port/namespace", why)
	}
	switch {
	case u.Opaque != "" || u.Host == "":
		return bad("no host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return bad("user, query and fragment mean nothing here")
	}
	cfg := Config{Namespace: strings.Trim(u.Path, "/")}
	if strings.Contains(cfg.Namespace, "/") {
		return bad("a namespace has no slash")
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		endpoint, ok := withPort(host)
		if !ok {
			return bad("a host is missing")
		}
		cfg.Endpoints = append(cfg.Endpoints, endpoint)
	}
	if u.Scheme == "holdfasts" {
		cfg.TLS = &tls.Config{}
	}
	return New(cfg)
}

// withPort adds the default port where there is none.
func withPort(host string) (string, bool) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), DefaultPort
	}
	return net.JoinHostPort(name, port), name != "" && port != ""
}
