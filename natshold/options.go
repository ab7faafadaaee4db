package natshold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
	"github.com/holdfast-io/holdfast/internal/natsconn"
	"github.com/holdfast-io/holdfast/internal/trust"
)

// Options are the settings of a backend. The zero value has the defaults. They
// say how a bucket is made; one that exists is used as it is.
type Options struct {
	// Bucket is the name of the key-value bucket, of letters, digits, _ and -;
	// empty: holdfast. Programs that shall not meet use different buckets.
	Bucket string
	// Existing: a bucket that does not exist is an error instead of being made.
	Existing bool
	// Replicas is how many servers of a cluster keep it, 1 to 5; 0: 1. Three
	// lose nothing with one of them.
	Replicas int
	// History is how many states of a key it keeps, 1 to 64; 0: 64. A watch that
	// falls further behind than that on one key, whichever it is, gets one watch:resync. A state of a
	// lock takes about 200 bytes.
	History int
	// Memory keeps it in the servers' memory only: a restart forgets everything.
	// In a cluster tokens may begin anew then.
	Memory bool

	version   uint64        // that this program knows; 0: version
	sweepAge  time.Duration // 0: sweepAge
	sweepSkew time.Duration // 0: sweepSkew
	patience  time.Duration // for each answer; 0: natsconn.Patience
}

const (
	defaultBucket = "holdfast"
	maxHistory    = nats.KeyValueMaxHistory
	maxReplicas   = 5
)

var bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// settled fills the defaults in, or says what is wrong.
func (o *Options) settled() (Options, error) {
	var s Options
	if o != nil {
		s = *o
	}
	s.Bucket = orElse(s.Bucket, defaultBucket)
	s.Replicas = orElse(s.Replicas, 1)
	s.History = orElse(s.History, maxHistory)
	s.version, s.sweepAge, s.sweepSkew = orElse(s.version, version), orElse(s.sweepAge, sweepAge), orElse(s.sweepSkew, sweepSkew)
	s.patience = orElse(s.patience, natsconn.Patience)
	switch {
	case !bucketName.MatchString(s.Bucket):
		return s, fmt.Errorf("the bucket %q has other characters than letters, digits, _ and -", s.Bucket)
	case s.Replicas < 1 || s.Replicas > maxReplicas:
		return s, fmt.Errorf("there are 1 to %d replicas, not %d", maxReplicas, s.Replicas)
	case s.History < 1 || s.History > maxHistory:
		return s, fmt.Errorf("the history is of 1 to %d states, not %d", maxHistory, s.History)
	}
	return s, nil
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// New returns a driver that uses the caller's connection, for [holdfast.New]. It
// looks for the bucket, and makes it if it has to. The connection is never
// closed. Make it with nats.ReconnectBufSize(-1): otherwise requests that were
// given up while the server was away are sent when it is back. A right that the
// user lacks shows as a request without an answer: only the connection's own
// error handler is told about it.
func New(ctx context.Context, nc *nats.Conn, o *Options) (driver.Driver, error) {
	opts, err := o.settled()
	if err == nil && nc == nil {
		err = errors.New("the connection is nil")
	}
	if err != nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "%v", err)
	}
	l := natsconn.Of(nc)
	where := natsconn.Where(nc)
	return newDriver(ctx, l, opts, where, func() error { return nil })
}

func init() { driver.Register("nats", openURL) }

// openURL opens nats://host:port/bucket.
func openURL(ctx context.Context, u *url.URL) (driver.Driver, error) {
	opts, addrs, err := fromURL(u)
	if err != nil {
		return nil, driver.Errorf("open", natsconn.Redacted(u), fs.ErrInvalid, "%v", err)
	}
	return openWith(ctx, u, opts, addrs)
}

func openWith(ctx context.Context, u *url.URL, opts Options, addrs []string) (driver.Driver, error) {
	tlsConfig, err := trust.Asked(u.Query())
	if err != nil {
		return nil, driver.Errorf("open", natsconn.Redacted(u), fs.ErrInvalid, "%v", err)
	}
	l, err := natsconn.Dial(ctx, natsconn.Settings{User: u.User, Addrs: addrs, TLS: tlsConfig})
	if err != nil {
		return nil, natsconn.Named(err, natsconn.Redacted(u))
	}
	d, err := newDriver(ctx, l, opts, u.Host, func() error { l.Close(); return nil })
	if err != nil {
		l.Close()
		return nil, natsconn.Named(err, natsconn.Redacted(u))
	}
	return d, nil
}

// newDriver finds the bucket and puts a driver on it.
func newDriver(ctx context.Context, l *natsconn.Conn, o Options, where string, end func() error) (driver.Driver, error) {
	s, err := openStore(ctx, l, o)
	if err != nil {
		return nil, err
	}
	return onstore.New(s, onstore.Options{
		Info:    driver.Info{Scheme: "nats", Features: map[driver.Feature]bool{driver.FeatureManyMachines: true}},
		Place:   fmt.Sprint("nats ", where, "/", o.Bucket, " of ", s.created.UnixNano()), // accounts of a server have buckets of the same name
		Timeout: natsconn.Patience,
		Close:   end,
	}), nil
}

// fromURL reads options and addresses.
func fromURL(u *url.URL) (opts Options, addrs []string, err error) {
	if u.Host == "" || u.Opaque != "" || u.Fragment != "" {
		return opts, nil, errors.New("a URL of NATS is nats://host:port/bucket")
	}
	opts.Bucket = strings.TrimPrefix(u.Path, "/")
	if addrs, err = natsconn.Params(u, opts.set); err != nil {
		return opts, nil, err
	}
	opts, err = opts.settled()
	return opts, addrs, err
}

func (o *Options) set(param, value string) (err error) {
	switch param {
	case "create":
		var create bool
		create, err = strconv.ParseBool(value)
		o.Existing = !create
	case "replicas":
		o.Replicas, err = strconv.Atoi(value)
	case "history":
		o.History, err = strconv.Atoi(value)
	case "storage":
		o.Memory, err = natsconn.InMemory(value)
	default:
		return fmt.Errorf("no parameter %q; there are addr, create, replicas, history, storage, holdfast_tls_ca, holdfast_tls_cert and holdfast_tls_key", param)
	}
	if err != nil {
		return fmt.Errorf("%s=%q: %v", param, value, orElse(errors.Unwrap(err), err))
	}
	return nil
}
