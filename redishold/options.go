package redishold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/trust"
)

// Options are the settings of a backend. The zero value has the defaults.
type Options struct {
	// Prefix is what every key begins with, in braces: "{holdfast}:" for the
	// default "holdfast". The braces are a hash tag, so that a whole Space lives
	// in one slot of a Redis Cluster; programs that shall not meet use different
	// prefixes. No braces of its own.
	Prefix string
	// MaxName is the longest name in bytes, 1 to 512; 0: 512.
	MaxName int
	// Extension is how often a session is extended; 0: after a third of its TTL,
	// 10 seconds of the default 30. It has to be below MinValidity.
	Extension time.Duration
	// MinValidity is how much of its TTL a hold has at least when it is granted:
	// after an answer that took longer than the rest the session is renewed, and
	// if the server stays so slow, the grant is given back. 0: nine tenths, 27 seconds of the default 30, but at
	// least a quarter of a second is left for the answer.
	MinValidity time.Duration
	// BusyWaitMin and BusyWaitMax bound the random pause between two looks at
	// what somebody waits for; 0: 10 ms and 200 ms. Waiters are woken by a
	// message as a rule; the looks serve when one is lost and when a holder
	// died.
	BusyWaitMin, BusyWaitMax time.Duration
}

const (
	defaultPrefix  = "holdfast"
	defaultMaxName = 512
	defaultBusyMin = 10 * time.Millisecond
	defaultBusyMax = 200 * time.Millisecond
	minSlack       = 250 * time.Millisecond
)

// settled fills the defaults in, or says what is wrong.
func (o *Options) settled() (Options, error) {
	var s Options
	if o != nil {
		s = *o
	}
	s.Prefix = orElse(s.Prefix, defaultPrefix)
	s.MaxName = orElse(s.MaxName, defaultMaxName)
	s.BusyWaitMin = orElse(s.BusyWaitMin, min(defaultBusyMin, orElse(s.BusyWaitMax, defaultBusyMin)))
	s.BusyWaitMax = orElse(s.BusyWaitMax, max(defaultBusyMax, s.BusyWaitMin))
	switch {
	case strings.ContainsAny(s.Prefix, "{}"):
		return s, fmt.Errorf("the prefix %q has a brace; it is put in braces as a whole", s.Prefix)
	case s.MaxName < 1 || s.MaxName > defaultMaxName:
		return s, fmt.Errorf("MaxName is 1 to %d, not %d", defaultMaxName, s.MaxName)
	case s.Extension < 0 || s.MinValidity < 0:
		return s, errors.New("neither Extension nor MinValidity is negative; 0 is the default")
	case s.Extension > 0 && s.MinValidity > 0 && s.Extension >= s.MinValidity:
		return s, fmt.Errorf("the Extension of %s is not below the MinValidity of %s: holds would end between two of them", s.Extension, s.MinValidity)
	case s.BusyWaitMin < time.Millisecond || s.BusyWaitMax < s.BusyWaitMin:
		return s, fmt.Errorf("the busy wait of %s to %s is no range from a millisecond on", s.BusyWaitMin, s.BusyWaitMax)
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

// slack is how long an answer that makes a hold may take.
func (o *Options) slack(ttl time.Duration) time.Duration {
	if o.MinValidity > 0 {
		return max(ttl-o.MinValidity, minSlack)
	}
	return max(ttl/10, minSlack)
}

// extension is the time between two extensions of a session.
func (o *Options) extension(ttl time.Duration) time.Duration {
	if o.Extension > 0 {
		return min(o.Extension, ttl/3)
	}
	return ttl / 3
}

// New returns a driver that uses the caller's client, for [holdfast.New]. The
// client is never closed, and serves others too; messages are received on one or
// two connections of its pool (its BlockingPoolSize), which are closed with the
// Space. Make it with AlwaysPipelining: without it an answer that takes
// longer than its ConnWriteTimeout breaks the connection for the others. It does no I/O.
func New(rc rueidis.Client, o *Options) (driver.Driver, error) {
	opts, err := o.settled()
	if err != nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "%v", err)
	}
	if rc == nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "the client is nil")
	}
	return newClient(byRueidis{Client: unhurried{Client: rc}, batcher: newBatcher(rc)}, false, opts), nil
}

// NewWith is New for a client of any other library. What stands behind it is not
// known: lost-first is not declared.
func NewWith(c Client, o *Options) (driver.Driver, error) {
	opts, err := o.settled()
	if err == nil && c == nil {
		err = errors.New("the client is nil")
	}
	if err != nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "%v", err)
	}
	return newClient(byCaller{c}, false, opts), nil
}

func init() {
	driver.Register("redis", openURL)
	driver.Register("rediss", openURL)
	driver.Register("redlock", openRedLockURL)
}

// openURL opens a URL as rueidis knows them, with parameters of ours that begin
// with holdfast_.
func openURL(ctx context.Context, u *url.URL) (driver.Driver, error) {
	opts, rest, err := fromURL(u)
	if err != nil {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "%v", err)
	}
	opt, err := settings(rest)
	if err != nil {
		return nil, unreachable("open", driver.Redacted(u), err)
	}
	rc, err := connect(opt)
	if err != nil {
		return nil, unreachable("open", driver.Redacted(u), err)
	}
	c := newClient(byRueidis{rc, true, newDedicatedConn(opt, rc.Mode()), newBatcher(rc)}, true, opts)
	if err := c.checkServer(ctx); err != nil {
		_ = c.Close(ctx)
		return nil, named("open", driver.Redacted(u), err)
	}
	return c, nil
}

// patience is how long a connection may take to be made, or to answer a ping (see heardConn), before it
// counts as broken, unless the URL says otherwise.
const patience = 3 * time.Second

// errURL marks what is wrong with a URL, not with the server.
var errURL = errors.New("not a URL of Redis")

// dial connects as the URL says.
func dial(rawURL string) (rueidis.Client, error) {
	opt, err := settings(rawURL)
	if err != nil {
		return nil, err
	}
	return connect(opt)
}

// settings are those of a client for a URL.
func settings(rawURL string) (opt rueidis.ClientOption, err error) {
	opt, err = rueidis.ParseURL(rawURL)
	if err != nil {
		return opt, fmt.Errorf("%w: %v", errURL, withoutURL(err))
	}
	if err := certificates(&opt, rawURL); err != nil {
		return opt, fmt.Errorf("%w: %v", errURL, err)
	}
	opt.DisableCache = true     // nothing is cached, and old servers cannot
	opt.AlwaysPipelining = true // else a call that gives up breaks the connection for the others
	opt.Dialer.Timeout = orElse(opt.Dialer.Timeout, patience)
	opt.Dialer.KeepAlive = orElse(opt.Dialer.KeepAlive, time.Second)
	opt.ConnWriteTimeout = orElse(opt.ConnWriteTimeout, patience)
	opt.ClientName = orElse(opt.ClientName, "holdfast")
	if opt.Sentinel.MasterSet != "" {
		opt.Sentinel.Dialer, opt.Sentinel.ClientName, opt.Sentinel.TLSConfig = opt.Dialer, opt.ClientName, opt.TLSConfig
	}
	return opt, nil
}

// certificates reads those that a URL names. The name that a server has to prove
// is that of its own address, of each node and Sentinel.
func certificates(opt *rueidis.ClientOption, rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return withoutURL(err)
	}
	if opt.TLSConfig != nil {
		opt.TLSConfig.ServerName = ""
	}
	return trust.Read(opt.TLSConfig, u.Query())
}

// withoutURL drops the URL from an error's text: it may hold a password.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// fromURL takes our parameters off u.
func fromURL(u *url.URL) (opts Options, rest string, err error) {
	q := u.Query()
	for name := range q {
		if param, ours := strings.CutPrefix(name, "holdfast_"); ours && !strings.HasPrefix(param, "tls_") {
			if err := opts.set(param, q.Get(name)); err != nil {
				return opts, "", err
			}
			q.Del(name)
		}
	}
	bare := *u
	bare.RawQuery = q.Encode()
	opts, err = opts.settled()
	return opts, bare.String(), err
}

func (o *Options) set(param, value string) (err error) {
	durations := map[string]*time.Duration{
		"extension": &o.Extension, "min_validity": &o.MinValidity, "busy_wait_min": &o.BusyWaitMin, "busy_wait_max": &o.BusyWaitMax,
	}
	switch d := durations[param]; {
	case d != nil:
		*d, err = time.ParseDuration(value)
	case param == "prefix":
		o.Prefix = value
	case param == "max_name":
		o.MaxName, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("no parameter holdfast_%s; there are prefix, max_name, extension, min_validity, busy_wait_min and busy_wait_max", param)
	}
	if err != nil {
		return fmt.Errorf("holdfast_%s=%q: %w", param, value, cmp.Or(errors.Unwrap(err), err)) // Atoi's tells the value, too
	}
	return nil
}
