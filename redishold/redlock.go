package redishold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// redlock is a mutex on a majority of independent servers. It declares only
// what it can keep: mutexes with tokens, waits and Inspect.
type redlock struct {
	driver.Base
	nodes []*node
	opts  Options
	fault func(op, name string, err error)

	life context.Context
	kill context.CancelFunc
	work sync.WaitGroup
	wake chan struct{}
	once sync.Once

	mu     sync.Mutex
	closed bool
	holds  map[string]*lock  // by id
	queues map[string]*turns // by name
}

var _ driver.Driver = (*redlock)(nil)

// node is one of the servers. One that was down when it was asked first is
// dialled again with the next question.
type node struct {
	url  string          // "" : the caller's client
	life context.Context // the driver's

	mu       sync.Mutex
	rc       rueidis.Client
	admitted bool     // it does not evict locks
	dialling *dialled // the one attempt that is under way; nil: there is none
	closed   bool

	debts debts
}

// dialled is what came of an attempt to connect.
type dialled struct {
	over chan struct{} // closed when the rest is known
	rc   rueidis.Client
	err  error
}

// client is the connection to the node, made if there is none. A node that evicts
// locks has none: it would not count. All that ask wait for the same attempt, and
// none longer than ctx: a node that is dark delays nobody else.
func (n *node) client(ctx context.Context) (rueidis.Client, error) {
	n.mu.Lock()
	switch {
	case n.closed:
		n.mu.Unlock()
		return nil, errClosed
	case n.admitted:
		defer n.mu.Unlock()
		return n.rc, nil
	}
	if n.dialling == nil {
		n.dialling = &dialled{over: make(chan struct{})}
		go n.connect(n.dialling)
	}
	d := n.dialling
	n.mu.Unlock()
	select {
	case <-d.over:
		return d.rc, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-n.life.Done():
		return nil, errClosed
	}
}

// connect makes one attempt. It may outlast the driver by the time of a dial, and
// closes then what it made.
func (n *node) connect(d *dialled) {
	d.rc, d.err = n.dial()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		n.drop()
	}
	n.admitted = d.err == nil && !n.closed
	n.dialling = nil
	close(d.over)
}

// dial makes the connection unless there is one, and looks whether the server
// evicts.
func (n *node) dial() (rueidis.Client, error) {
	n.mu.Lock()
	rc := n.rc
	n.mu.Unlock()
	if rc == nil {
		var err error
		if rc, err = dial(n.url); err != nil {
			return nil, err
		}
		n.mu.Lock()
		n.rc = rc
		n.mu.Unlock()
	}
	return rc, evicts(n.life, rc)
}

// evicts refuses a server that evicts keys that have an expiry, as every lock here
// has. One that does not answer is not refused.
func evicts(ctx context.Context, rc rueidis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	info, err := rc.Do(ctx, rc.B().Info().Section("memory").Build()).ToString()
	if _, refused := serverSays(err); err != nil && !refused {
		return err
	}
	_, policy, _ := strings.Cut(info, "maxmemory_policy:")
	policy, _, _ = strings.Cut(policy, "\r")
	return fitPolicy(policy, "allkeys-", "volatile-")
}

func (n *node) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.drop()
}

// drop closes a connection that is the node's own.
func (n *node) drop() {
	if n.url != "" && n.rc != nil {
		n.rc.Close()
		n.rc = nil
	}
}

// NewRedLock returns a driver for mutexes on a majority of independent servers,
// for [holdfast.New]. The clients are never closed. It does no I/O.
func NewRedLock(clients []rueidis.Client, o *Options) (driver.Driver, error) {
	opts, err := o.settled()
	if err == nil && len(clients) == 0 {
		err = errors.New("there is no server; give an odd number of independent ones")
	}
	if err != nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "%v", err)
	}
	nodes := make([]*node, len(clients))
	for i, rc := range clients {
		if rc == nil {
			return nil, driver.Errorf("open", "", fs.ErrInvalid, "client %d is nil", i+1)
		}
		nodes[i] = &node{rc: unhurried{Client: rc}}
	}
	return newRedLock(nodes, opts), nil
}

// OpenRedLock is NewRedLock by URLs, one a server. It fails if fewer than a
// majority can be reached; the others are dialled when they are asked.
func OpenRedLock(ctx context.Context, urls []string, o *Options) (driver.Driver, error) {
	opts, err := o.settled()
	if err == nil && len(urls) == 0 {
		err = errors.New("there is no server; give an odd number of independent ones")
	}
	if err != nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "%v", err)
	}
	nodes := make([]*node, len(urls))
	for i, u := range urls {
		if _, err := rueidis.ParseURL(u); err != nil {
			return nil, driver.Errorf("open", "", fs.ErrInvalid, "server %d: %v", i+1, withoutURL(err))
		}
		nodes[i] = &node{url: u}
	}
	r := newRedLock(nodes, opts)
	v, err := r.ping(ctx)
	if err == nil {
		err = v.unfit()
	}
	if err != nil {
		_ = r.Close(ctx)
		return nil, err
	}
	return r, nil
}

// openRedLockURL opens redlock://host:port?addr=host:port&addr=…: what the URL
// says beside the addresses holds for each of the servers.
func openRedLockURL(ctx context.Context, u *url.URL) (driver.Driver, error) {
	opts, rest, err := fromURL(u)
	if err != nil {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "%v", err)
	}
	base, err := url.Parse(rest)
	if err != nil {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "%v", withoutURL(err))
	}
	q := base.Query()
	hosts := append([]string{base.Host}, q["addr"]...)
	q.Del("addr")
	base.RawQuery, base.Scheme = q.Encode(), "redis"
	urls := make([]string, len(hosts))
	for i, host := range hosts {
		base.Host = host
		urls[i] = base.String()
	}
	return OpenRedLock(ctx, urls, &opts)
}

func newRedLock(nodes []*node, opts Options) *redlock {
	r := &redlock{nodes: nodes, opts: opts, holds: map[string]*lock{}, queues: map[string]*turns{},
		wake: make(chan struct{}, 1), fault: func(string, string, error) {}}
	r.life, r.kill = context.WithCancel(context.Background())
	for _, n := range nodes {
		n.life = r.life
	}
	return r
}

// Info declares mutexes with tokens. It has no lost-first: a server that forgets
// its locks in a restart may help to grant one that is still held.
func (r *redlock) Info() driver.Info {
	return driver.Info{
		Scheme: "redlock", MinTTL: time.Second, MaxTTL: 24 * time.Hour, MaxName: r.opts.MaxName,
		Features: map[driver.Feature]bool{driver.FeatureFencing: true, driver.FeatureManyMachines: true},
	}
}

// OnFault sets what is told about background failures.
func (r *redlock) OnFault(f func(op, name string, err error)) { r.fault = f }

func (r *redlock) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return gaveup.Error(ctx, driver.NotDone)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	return nil
}

// enter begins a call that takes or frees locks, and leave ends it: Close waits for it, and
// for what it spawns.
func (r *redlock) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.work.Add(1)
	}
	return !r.closed
}

func (r *redlock) leave() { r.work.Done() }

func (r *redlock) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.work.Go(f)
	return true
}

// keys are the lock and the token of a name, and the mark of a lock that was
// given up, under one hash tag.
func (r *redlock) keys(name, id string) []string {
	base := "{" + r.opts.Prefix + ":" + name + "}:"
	return []string{base + "lock", base + "token", base + "gone:" + id}
}

// Ping asks for a sign of life of a majority.
func (r *redlock) Ping(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	_, err := r.ping(ctx)
	return err
}

// ping asks all servers, and waits for those that answer about as soon as a
// majority does.
func (r *redlock) ping(ctx context.Context) (*vote, error) {
	v := r.vote(ctx, func(ctx context.Context, rc rueidis.Client) ([]string, error) {
		return []string{"ok"}, rc.Do(ctx, rc.B().Ping().Build()).Error()
	})
	v.decide(ctx)
	v.rest(ctx)
	return v, v.verdict(ctx)
}

// Close frees every lock of the client.
func (r *redlock) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	holds := r.holds
	r.holds = map[string]*lock{}
	r.mu.Unlock()
	var all sync.WaitGroup
	for _, k := range holds {
		k.session.End(driver.ErrClosed)
		all.Go(func() { r.freeAll(ctx, k) })
	}
	r.kill()
	all.Wait()
	waitFor(ctx, r.work.Wait)
	waitFor(ctx, r.hangUp) // of a server that does not answer that takes half a second more
	return nil
}

// hangUp closes the connections.
func (r *redlock) hangUp() {
	for _, n := range r.nodes {
		n.close()
	}
}

// waitFor runs what ends by itself, and waits as long as ctx lets it.
func waitFor(ctx context.Context, f func()) {
	over := make(chan struct{})
	go func() { f(); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// majority is how many servers make a decision, and hopeless how many of n have
// to fail until there can be none.
func majority(n int) int { return n/2 + 1 }
func hopeless(n int) int { return n/2 + n%2 }

// noMajority is the error when too many servers cannot be asked.
func noMajority(faults, n int, last error) *driver.Error {
	return &driver.Error{Kind: driver.ErrUnavailable, RetryAfter: retryIn,
		Err: fmt.Errorf("%d of %d servers do not answer, and %d have to; the last said: %w", faults, n, majority(n), last)}
}
