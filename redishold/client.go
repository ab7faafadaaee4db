package redishold

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
	"github.com/holdfast-io/holdfast/internal/limits"
)

// client is one Space's driver.
type client struct {
	driver.Base
	rc    engine
	own   bool // the connections are ours to close
	opts  Options
	key   string   // what every key begins with
	keys  []string // of every script
	id    string   // of this client: where its messages go
	fault func(op, name string, err error)

	life    context.Context
	kill    context.CancelFunc
	work    sync.WaitGroup
	started sync.Once

	admitted atomic.Bool // the server is fit for use

	wakeKeeper, wakePoller chan struct{}

	mu      sync.Mutex
	closed  bool
	shared  map[driver.Spec]*user
	users   map[driver.SessionID]*user
	claims  map[string]*keyClaim // that wait or hold, by id
	waits   int                  // claims in a queue
	help    bool                 // the server has work left over, and this client does it
	looked  time.Duration        // how long the last look took
	acked   []string             // requests that were answered, or that nobody repeats any more
	acking  bool                 // the server is soon told of them
	unheard map[string]time.Time // requests that were not answered, and when, by driver.Now
	lookAt  time.Time            // when it looks again which of them are old
	adds    adder
	rates   limits.Rates

	hub hub
}

var _ driver.Driver = (*client)(nil)

func newClient(rc engine, own bool, opts Options) *client {
	c := &client{
		rc: rc, own: own, opts: opts, key: "{" + opts.Prefix + "}:", id: newName(),
		shared: map[driver.Spec]*user{}, users: map[driver.SessionID]*user{}, claims: map[string]*keyClaim{},
		wakeKeeper: make(chan struct{}, 1), wakePoller: make(chan struct{}, 1),
		fault: func(string, string, error) {},
	}
	c.keys = []string{c.key}
	if rc.cluster() {
		// A script that names two keys is refused while their slot moves. With one
		// it would run on the new node, where the others may not yet be.
		c.keys = append(c.keys, c.key+"rev")
	}
	c.life, c.kill = context.WithCancel(context.Background())
	c.hub.init(c)
	return c
}

func newName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// features are what a server can do by its scripts.
var features = []driver.Feature{
	driver.FeatureFencing, driver.FeatureFIFO, driver.FeatureShared, driver.FeatureWeighted, driver.FeatureForce,
	driver.FeatureAll, driver.FeatureCounter, driver.FeatureSequence, driver.FeatureKV, driver.FeatureTxn,
	driver.FeatureWatch, driver.FeatureElection, driver.FeatureLatch, driver.FeatureSession, driver.FeatureManyMachines,
	driver.FeatureSweep, driver.FeatureLimit,
}

// Info says what Redis can do. Behind Sentinel or in a cluster a failover may
// forget what was answered, so that lost-first is not among it.
func (c *client) Info() driver.Info {
	i := driver.Info{Scheme: "redis", Features: map[driver.Feature]bool{}, MinTTL: time.Second, MaxTTL: 24 * time.Hour, MaxName: c.opts.MaxName}
	for _, f := range features {
		i.Features[f] = true
	}
	i.Features[driver.FeatureLostFirst] = c.rc.single()
	return i
}

// OnFault sets what is told about background failures.
func (c *client) OnFault(f func(op, name string, err error)) { c.fault = f }

// begin starts every call.
func (c *client) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return gaveup.Error(ctx, driver.NotDone)
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return errClosed
	}
	return c.checkServer(ctx)
}

// call runs a script and turns what is no answer into an error. One that found more
// of others' work to do than it may at a time is run again: nothing else has happened,
// unless it is the end of a session (EndSession).
func (c *client) call(ctx context.Context, s *script, args ...string) ([]string, error) {
	for {
		reply, err := c.rc.run(ctx, s, c.keys, args)
		if err != nil {
			return nil, failure(ctx, err)
		}
		if reply[0] != "more" {
			return reply, nil
		}
	}
}

// ask is call for an answer about a name that may be a refusal.
func (c *client) ask(ctx context.Context, name string, s *script, args ...string) ([]string, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	reply, err := c.call(ctx, s, args...)
	if err != nil {
		return nil, err
	}
	return reply, refusal(name, reply)
}

// start has the background work begin with the first session or watch.
func (c *client) start() {
	c.started.Do(func() {
		c.spawn(c.keep)
		c.spawn(c.poll)
		c.spawn(c.listen)
	})
}

// spawn runs f beside the callers; Close waits for it, so f ends with c.life.
func (c *client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// Ping asks the server for a sign of life.
func (c *client) Ping(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if err := c.rc.do(ctx, []string{"PING"})[0].err; err != nil {
		return failure(ctx, err)
	}
	return nil
}

// Close ends every session of the client in one pipeline. What cannot be told
// to the server ends there by its TTL.
func (c *client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	tasks := make([]task, 0, len(c.users))
	sessions := make([]*driver.Session, 0, len(c.users))
	for _, u := range c.users {
		tasks = append(tasks, task{c.keys, []string{u.sid}})
		sessions = append(sessions, u.session)
	}
	c.mu.Unlock()
	for _, l := range sessions {
		l.End(driver.ErrClosed)
	}
	c.kill()
	c.endAll(ctx, tasks)
	c.rc.do(ctx, []string{"DEL", c.key + "w:" + c.id}, []string{"ZREM", c.key + "due", "w" + c.id})
	c.work.Wait()
	if c.own {
		c.rc.close()
	}
	return nil
}

// endAll ends sessions, in one pipeline as far as one run of the script is enough.
func (c *client) endAll(ctx context.Context, tasks []task) {
	for len(tasks) > 0 {
		var more []task
		for i, a := range c.rc.runAll(ctx, endScript, tasks) {
			if a.err == nil && a.reply[0] == "more" {
				more = append(more, tasks[i])
			}
		}
		tasks = more
	}
}

// nudge wakes a loop that may be asleep.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
