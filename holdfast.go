package holdfast

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/driver"
)

// Space is a set of names shared by all programs that open it. Everything is made from
// one: s.Mutex("jobs/nightly"), s.Counter("orders"). Making does no I/O; what is
// wrong with a name or an option is told by the first call.
type Space struct {
	r      *spaceState
	prefix string
	cfg    *config
	sub    bool // made from another; only the opened one closes
}

// Open opens the backend that url names, such as "file:///var/lock/app",
// "redis://host" or "mem:". The backend's package has to be imported; package
// all imports every one. A password in url appears in no error.
//
// Open connects to redis: and nats:, and to most of the servers of redlock:, and fails
// if they do not answer; it opens the directory of file: and starts the node of embed:.
// On postgres: and holdfast: the first call connects: use [Space.Ping] to learn at the
// start whether the server is there. ctx bounds the opening, not the life of the Space.
func Open(ctx context.Context, url string, opts ...Option) (*Space, error) {
	d, err := driver.Open(ctx, url)
	if err != nil {
		return nil, wrap("open", "", err)
	}
	s, err := New(d, opts...)
	if err != nil {
		_ = d.Close(ctx)
		return nil, err
	}
	return s, nil
}

// New makes a Space of a driver; backends' own constructors use it. The Space
// owns d: Close closes it. When New fails, d is not closed.
func New(d driver.Driver, opts ...Option) (*Space, error) {
	if d == nil {
		return nil, wrap("open", "", invalid("the driver is nil"))
	}
	var set setup
	set.config.spec.Owner = defaultOwner()
	for o := range given(opts) {
		o.open(&set)
	}
	r := newSpaceState(d, set.hooks)
	set.config.settle(r)
	if err := firstError(set.config.err, r.checkRequired(set.require)); err != nil {
		return nil, wrap("open", "", err)
	}
	return &Space{r: r, cfg: &set.config}, nil
}

// checkRequired names every feature that is missing at once.
func (r *spaceState) checkRequired(want []Feature) error {
	var missing []Feature
	for _, f := range want {
		if !r.info.Features[f] && !slices.Contains(missing, f) {
			missing = append(missing, f)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	have := slices.Sorted(maps.Keys(r.info.Features))
	have = slices.DeleteFunc(have, func(f Feature) bool { return !r.info.Features[f] })
	return unsupported("the %s backend lacks %q; it has %q", r.info.Scheme, missing, have)
}

// Sub returns the part of the Space with names that begin with prefix: what it is
// asked for and what it tells (List, Watch, keys) goes without the prefix. The prefix
// is put before a name as it is: s.Sub("a").Mutex("b") is "ab", s.Sub("a/").Mutex("b")
// is "a/b". It shares everything with s; closing it does nothing.
func (s *Space) Sub(prefix string) *Space {
	return &Space{r: s.r, prefix: s.prefix + prefix, cfg: s.cfg, sub: true}
}

// With returns the same Space with other defaults. Closing it does nothing.
func (s *Space) With(opts ...HoldOption) *Space {
	return &Space{r: s.r, prefix: s.prefix, cfg: s.cfg.with(opts, s.r), sub: true}
}

// Info says what the backend can do.
func (s *Space) Info() Info {
	info := s.r.info
	info.Features = maps.Clone(info.Features)
	return info
}

// Ping asks the backend for an answer.
func (s *Space) Ping(ctx context.Context) error {
	if err := s.r.ready(ctx, ""); err != nil {
		return wrap("ping", "", err)
	}
	return s.r.wrap(ctx, "ping", "", "", s.r.d.Ping(ctx))
}

// Close ends every hold and session of the Space at once, for their holders
// first, tells the hooks and closes the backend, in at most 5 seconds. Holds end
// with ErrLost and ErrClosed; a second Close returns the first result.
func (s *Space) Close() error {
	if s.sub {
		return nil
	}
	return s.r.close()
}

// Shutdown takes no new claims, waits until every hold is given back or ctx
// ends, and then closes. It returns ctx's error if holds were left.
func (s *Space) Shutdown(ctx context.Context) error {
	if s.sub {
		return wrap("shutdown", "", driver.Errorf("", "", ErrInvalid, "only the Space that Open returned can be shut down"))
	}
	return s.r.shutdown(ctx)
}
