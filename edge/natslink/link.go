package natslink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/internal/causes"
	"github.com/holdfast-io/holdfast/internal/hostlist"
	"github.com/holdfast-io/holdfast/internal/natsconn"
	"github.com/holdfast-io/holdfast/internal/trust"
)

// Link is one node's way to the others. It is for one [edge.Node].
type Link struct {
	conn *natsconn.Conn
	js   nats.JetStreamContext
	opts Options
	own  bool // the connection is ours to close

	again chan struct{} // the feed is to begin anew
	lives atomic.Bool   // the stream forgets each message after a time of its own

	answers *answers // of the server, to states
	mu      sync.Mutex
	missed  func()
	err     error
	told    causes.Told
}

var (
	_ edge.Keeper  = (*Link)(nil)
	_ edge.Bounded = (*Link)(nil)
)

// Open connects to the server of a URL, nats://host:port. A server that cannot be
// reached, or does not answer, is no error: the link works as soon as it can. What the server refuses is:
// the user, a right, the stream.
func Open(ctx context.Context, rawURL string, o *Options) (*Link, error) {
	u, err := hostlist.Parse(rawURL)
	if err != nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "natslink: a URL of NATS is nats://host:port")
	}
	opts, addrs, err := fromURL(u, o)
	tlsConfig, wrong := trust.Asked(u.Query())
	if err = errors.Join(err, wrong); err != nil {
		return nil, driver.Errorf("open", natsconn.Redacted(u), fs.ErrInvalid, "%v", err)
	}
	l := newLink(opts)
	l.own = true
	l.conn, err = natsconn.Dial(ctx, natsconn.Settings{User: u.User, Addrs: addrs, TLS: tlsConfig, Later: true, Refused: l.report})
	if err == nil {
		err = l.begin(ctx)
	}
	if err != nil {
		l.Close()
		return nil, natsconn.Named(err, natsconn.Redacted(u))
	}
	return l, nil
}

// New links over the caller's connection, which is never closed. Make it with
// nats.ReconnectBufSize(-1), so that nothing old is sent after an outage, and with an
// error handler: only that is told of a right to publish that is missing.
func New(ctx context.Context, nc *nats.Conn, o *Options) (*Link, error) {
	opts, err := o.settled()
	if err == nil && nc == nil {
		err = errors.New("the connection is nil")
	}
	if err != nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "natslink: %v", err)
	}
	l := newLink(opts)
	l.conn = natsconn.Of(nc)
	if err := l.begin(ctx); err != nil {
		return nil, natsconn.Named(err, natsconn.Where(nc))
	}
	return l, nil
}

func newLink(o Options) *Link {
	l := &Link{opts: o, again: make(chan struct{}, 1), missed: func() {}}
	l.answers = newAnswers(l.tell)
	return l
}

// begin looks whether the server lets the link do what it has to, if there is one. One that does not answer
// is as one that cannot be reached.
func (l *Link) begin(ctx context.Context) (err error) {
	if l.js, err = l.conn.JetStream(); err != nil || !l.conn.IsConnected() {
		return err
	}
	if err = l.ensure(ctx); err == nil {
		err = l.tryRights(ctx)
	}
	if errors.Is(err, natsconn.ErrSilent) && ctx.Err() == nil {
		l.report(err)
		return nil
	}
	return err
}

// tryRights publishes and subscribes: a right that is missing is told before the
// server's next answer.
func (l *Link) tryRights(ctx context.Context) error {
	sub, err := l.conn.SubscribeSync(l.deltas())
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	if err := l.try(ctx, &nats.Msg{Subject: l.deltas()}, "publish and subscribe to", l.deltas()); err != nil {
		return err
	}
	flow := &nats.Msg{Subject: "$JS.FC." + l.opts.Stream + ".rights"}
	if err := l.try(ctx, flow, "publish to", "$JS.FC."+l.opts.Stream+".>"); err != nil {
		return err
	}
	states := &nats.Msg{Subject: l.opts.Subject + ".s.rights", Header: nats.Header{nats.ExpectedStreamHdr: {"none"}}} // so that no stream keeps it
	return l.try(ctx, states, "publish to", l.opts.Subject+".s.>")
}

// try publishes a message and looks whether the server minds.
func (l *Link) try(ctx context.Context, m *nats.Msg, right, subject string) error {
	if err := l.conn.PublishMsg(m); err != nil {
		return err
	}
	err := l.conn.Ask(ctx, m.Subject, func(ctx context.Context) error {
		if err := l.conn.FlushWithContext(ctx); err != nil {
			return err
		}
		if err := l.conn.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), m.Subject) {
			return err
		}
		return nil
	})
	if errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, fs.ErrPermission) { // the server's word comes by either way
		return driver.Errorf("", "", fs.ErrPermission, "the NATS user lacks the right to %s %q: give it, or use another user: %w", right, subject, err)
	}
	return err
}

// deltas is the subject of what changes.
func (l *Link) deltas() string { return l.opts.Subject + ".d" }

// Close sends what is on its way and ends the connection that Open made. Close the
// node first.
func (l *Link) Close() error {
	if !l.own || l.conn == nil {
		return nil
	}
	if l.conn.IsConnected() {
		l.conn.FlushTimeout(natsconn.Patience)
	}
	l.conn.Close()
	return nil
}

// Err is what is wrong with the link now; nil: nothing. A state that the stream refuses, does not
// answer within 10 s, or forgets before it is read, is wrong until a later one of its place is kept.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case !l.conn.IsConnected():
		return l.unsent()
	}
	return l.answers.err()
}

func (l *Link) unsent() error {
	return fmt.Errorf("natslink: not connected to NATS: %w", driver.ErrUnavailable)
}

// report remembers what is wrong, and tells each cause once until nothing is wrong any more, which nil says:
// while a server is away, every attempt fails.
func (l *Link) report(err error) {
	if l.remember(err) {
		l.tell(err)
	}
}

// remember reports that the cause is to be told.
func (l *Link) remember(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err == nil {
		l.told.Well()
		return false
	}
	return l.told.Fresh(err)
}

func (l *Link) tell(err error) {
	if l.opts.OnError != nil {
		l.opts.OnError(err)
	}
}

// MaxMessage is edge.Bounded's: what the server takes in one message, its max_payload, less what headers take.
func (l *Link) MaxMessage() int {
	if most := int(l.conn.MaxPayload()); most > 0 {
		return max(most-headerRoom, 1)
	}
	return 0 // it was never connected
}

// Send is edge.Link's.
func (l *Link) Send(message []byte) error {
	if !l.conn.IsConnected() {
		return l.unsent()
	}
	return l.conn.PublishMsg(l.pack(l.deltas(), message, 0))
}

// Keep is edge.Keeper's. It does not wait for the server's answer: a state that was refused is the
// error of the next one of its place.
func (l *Link) Keep(p edge.Place, life time.Duration, message []byte) error {
	if !l.conn.IsConnected() {
		return l.unsent()
	}
	if !l.lives.Load() {
		life = 0
	}
	m := l.pack(subjectOf(l.opts.Subject, p), message, life)
	before := l.answers.before(m.Subject)
	m.Reply = l.answers.reply(m.Subject, time.Now())
	if err := l.conn.PublishMsg(m); err != nil {
		l.answers.unsent(m, tooLarge(err, l.conn.MaxPayload()))
		return err
	}
	return before
}

func (l *Link) pack(subject string, message []byte, life time.Duration) *nats.Msg {
	parent := ""
	if l.opts.Trace != nil {
		parent = l.opts.Trace()
	}
	return pack(subject, message, parent, life)
}

// Replay is edge.Keeper's: the feed begins anew, once for all calls until then.
func (l *Link) Replay() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// Missed is edge.Keeper's.
func (l *Link) Missed(ask func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = ask
}

func (l *Link) tellMissed() {
	l.mu.Lock()
	ask := l.missed
	l.mu.Unlock()
	ask()
}

// Listen is edge.Link's.
func (l *Link) Listen(receive func([]byte)) (stop func(), err error) {
	var open gate
	take := func(m *nats.Msg) { open.pass(func() { l.take(m, receive) }) }
	sub, err := l.conn.Subscribe(l.deltas(), take)
	if err != nil {
		return nil, err
	}
	inbox := l.conn.NewInbox()
	answers, err := l.conn.Subscribe(inbox+".*", func(m *nats.Msg) { open.pass(func() { l.answers.take(m) }) })
	if err != nil {
		sub.Unsubscribe()
		return nil, err
	}
	l.answers.begin(inbox)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.follow(ctx, take) })
	running.Go(func() { l.answers.watch(ctx) })
	return func() {
		cancel()
		l.answers.begin("")
		sub.Unsubscribe()
		answers.Unsubscribe()
		running.Wait()
		open.shut()
	}, nil
}

// gate lets calls pass until it is shut, which waits for those that run: NATS goes on with
// a message after a subscription has ended.
type gate struct {
	mu   sync.RWMutex
	over bool
}

func (g *gate) pass(f func()) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.over {
		f()
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
}

// take unpacks a message. What cannot be unpacked is handed on as it is: the node
// counts it as garbage.
func (l *Link) take(m *nats.Msg, receive func([]byte)) {
	if len(m.Data) == 0 {
		return // of tryRights
	}
	message, err := unpack(m)
	if err != nil {
		message = m.Data
	}
	if v := m.Header[traceparent]; l.opts.OnTrace != nil && len(v) == 1 && trace.MatchString(v[0]) {
		l.opts.OnTrace(v[0])
	}
	receive(message)
}
