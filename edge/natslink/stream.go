package natslink

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/natsconn"
)

const (
	// heartbeat is how often the server says that there is nothing to say.
	heartbeat = time.Second
	// silence is after how long without a word the server is taken to have forgotten
	// the feed.
	silence = 10 * time.Second
	// forgetAfter is how long the server keeps a feed that nobody reads.
	forgetAfter = time.Minute
	// leastSize is what a stream has to take in one message: edge.Config.MaxMessage by
	// default, and the key that may exceed it. Whether it takes larger ones its answers tell.
	leastSize = 64 << 10
)

var (
	errCut   = errors.New("natslink: the connection was cut")
	errAgain = errors.New("natslink: the feed begins anew")
)

// ensure finds the stream, or makes it.
func (l *Link) ensure(ctx context.Context) (err error) {
	var info *nats.StreamInfo
	err = l.conn.Ask(ctx, "$JS.API.STREAM.INFO."+l.opts.Stream, func(ctx context.Context) error {
		info, err = l.js.StreamInfo(l.opts.Stream, nats.Context(ctx))
		return err
	})
	if errors.Is(err, nats.ErrStreamNotFound) {
		info, err = l.make(ctx)
	}
	if err != nil {
		return natsconn.Unopened(ctx, err)
	}
	l.lives.Store(info.Config.AllowMsgTTL)
	if wrong := l.unfit(&info.Config); wrong != "" {
		return driver.Errorf("open", "", fs.ErrInvalid, "the stream %q %s: use another", l.opts.Stream, wrong)
	}
	return nil
}

// make makes it; another node may do so at the same time.
func (l *Link) make(ctx context.Context) (info *nats.StreamInfo, err error) {
	if l.opts.Existing {
		return nil, driver.Errorf("open", "", fs.ErrNotExist, "there is no stream %q: make it, or leave create=false out", l.opts.Stream)
	}
	cfg := &nats.StreamConfig{
		Name: l.opts.Stream, Subjects: []string{l.opts.Subject + ".s.>"}, Description: "holdfast edge",
		MaxMsgsPerSubject: 1, MaxAge: l.opts.Retention, Replicas: l.opts.Replicas, Discard: nats.DiscardOld,
		MaxBytes: -1, MaxMsgSize: -1, MaxMsgs: -1, MaxConsumers: -1, Duplicates: min(l.opts.Retention, time.Minute),
		AllowMsgTTL: true, // servers before 2.11 do not know it
	}
	if l.opts.Memory {
		cfg.Storage = nats.MemoryStorage
	}
	err = l.conn.Ask(ctx, "$JS.API.STREAM.CREATE."+l.opts.Stream, func(ctx context.Context) error {
		info, err = l.js.AddStream(cfg, nats.Context(ctx))
		return err
	})
	switch {
	case errors.Is(err, nats.ErrStreamNameAlreadyInUse): // made otherwise by another at this moment
		err = l.conn.Ask(ctx, "$JS.API.STREAM.INFO."+l.opts.Stream, func(ctx context.Context) error {
			info, err = l.js.StreamInfo(l.opts.Stream, nats.Context(ctx))
			return err
		})
	case errors.Is(err, fs.ErrPermission):
		return nil, driver.Errorf("open", "", fs.ErrPermission, "there is no stream %q, and no right to make it: %w", l.opts.Stream, err)
	case natsconn.RefusesReplicas(err):
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "%d replicas are more than the cluster has servers: %w", l.opts.Replicas, err)
	case natsconn.RefusesSettings(err):
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "no stream %q of %s.s.> can be made: %w: choose another stream or subject", l.opts.Stream, l.opts.Subject, err)
	}
	return info, err
}

// unfit says why a stream cannot keep states, with the setting.
func (l *Link) unfit(c *nats.StreamConfig) string {
	switch {
	case c.Mirror != nil:
		return "is a copy of another (mirror)"
	case !slices.Contains(c.Subjects, l.opts.Subject+".s.>"):
		return fmt.Sprintf("is of other subjects than %s.s.> (subjects)", l.opts.Subject)
	case c.MaxMsgsPerSubject != 1:
		return "keeps old states (max_msgs_per_subject)"
	case c.Retention != nats.LimitsPolicy:
		return fmt.Sprintf("forgets what somebody has read (retention %s)", c.Retention)
	case c.Discard != nats.DiscardOld:
		return "refuses new states when it is full (discard)"
	case c.MaxMsgSize > 0 && c.MaxMsgSize < leastSize:
		return fmt.Sprintf("takes messages of %d bytes at most, and a state may have %d (max_msg_size)", c.MaxMsgSize, leastSize)
	case c.NoAck:
		return "does not say what it has kept (no_ack)"
	case c.Sealed:
		return "takes nothing any more (sealed)"
	}
	return ""
}

// follow hands on the states in the stream and those that come, until ctx ends. Each
// time it begins anew it reads all that is kept.
func (l *Link) follow(ctx context.Context, take func(*nats.Msg)) {
	for missed := false; ctx.Err() == nil; {
		err := l.feed(ctx, take, missed)
		if ctx.Err() != nil {
			return
		}
		if missed = !errors.Is(err, errAgain); missed {
			l.answers.forget()
			l.report(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(natsconn.ComeBack + mrand.N(natsconn.ComeBack)):
		}
	}
}

// feed reads states until the connection is cut or the server has forgotten the feed.
// Nothing was missed by the first feed, since a node that starts asks by itself, nor by one that
// was asked for.
func (l *Link) feed(ctx context.Context, take func(*nats.Msg), missed bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	select {
	case <-l.again: // this one reads all that is kept
	default:
	}
	changed := l.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer l.conn.RemoveStatusListener(changed)
	if err := l.conn.Connected(ctx); err != nil {
		return err
	}
	if err := l.ensure(ctx); err != nil {
		return err
	}
	heard := make(chan struct{}, 1)
	sub, err := l.conn.Subscribe(l.conn.NewInbox(), func(m *nats.Msg) { l.hear(m, take, heard) })
	if err != nil {
		return err
	}
	sub.SetPendingLimits(-1, -1) // the server waits for us
	name := crand.Text()
	defer l.end(sub, name)
	if err := l.consume(ctx, sub.Subject, name); err != nil {
		return l.unread(err)
	}
	go func() {
		select {
		case <-changed:
			cancel(errCut)
		case <-l.again:
			cancel(errAgain)
		case <-ctx.Done():
		}
	}()
	l.report(nil)
	if missed {
		l.tellMissed()
	}
	return listening(ctx, heard)
}

// end ends a feed without waiting for an answer: what the server does not hear it
// forgets by itself.
func (l *Link) end(sub *nats.Subscription, name string) {
	sub.Unsubscribe()
	l.conn.PublishRequest("$JS.API.CONSUMER.DELETE."+l.opts.Stream+"."+name, l.conn.NewInbox(), nil)
}

// consume has the server send the last message of each subject, and those that come.
func (l *Link) consume(ctx context.Context, to, name string) error {
	cfg := &nats.ConsumerConfig{
		Name: name, DeliverSubject: to, FilterSubject: l.opts.Subject + ".s.>",
		DeliverPolicy: nats.DeliverLastPerSubjectPolicy, AckPolicy: nats.AckNonePolicy, MaxDeliver: 1,
		FlowControl: true, Heartbeat: heartbeat, InactiveThreshold: forgetAfter, MemoryStorage: true, Replicas: 1,
	}
	return l.conn.Ask(ctx, "$JS.API.CONSUMER.CREATE."+l.opts.Stream, func(ctx context.Context) error {
		_, err := l.js.UpdateConsumer(l.opts.Stream, cfg, nats.Context(ctx)) // AddConsumer would ask twice
		return err
	})
}

// unread says what an answer of JetStream is about, and what to do: all that it tells itself is that some maximum is reached.
func (l *Link) unread(err error) error {
	if natsconn.APIError(err) == nil {
		return err
	}
	return fmt.Errorf("natslink: the states in the stream %q cannot be read, so that this node does not learn all: %w; see max_consumers of the stream, and the limits of the account: %w", l.opts.Stream, err, driver.ErrUnavailable)
}

// hear takes a message of the feed. The server sends as much as has been taken of what it
// has sent: it asks in between, and waits for an answer.
func (l *Link) hear(m *nats.Msg, take func(*nats.Msg), heard chan<- struct{}) {
	switch status := m.Header.Get("Status") != "" && len(m.Data) == 0; {
	case !status:
		l.answers.came(m.Subject)
		take(m)
	case m.Reply != "":
		l.conn.Publish(m.Reply, nil)
	case m.Header.Get(stalled) != "": // the answer was lost
		l.conn.Publish(m.Header.Get(stalled), nil)
	}
	if allRead(m) {
		l.answers.allCame(time.Now())
	}
	select {
	case heard <- struct{}{}:
	default:
	}
}

// allRead reports that the server has nothing more to send after this message: it counts what there is, or says that
// it has been idle.
func allRead(m *nats.Msg) bool {
	if m.Header.Get("Status") != "" && len(m.Data) == 0 {
		return m.Reply == "" && m.Header.Get(stalled) == ""
	}
	told, err := m.Metadata()
	return err == nil && told.NumPending == 0
}

// stalled is the header by which a server that waits says where it expects the answer.
const stalled = "Nats-Consumer-Stalled"

// listening waits until ctx ends, or the server is silent.
func listening(ctx context.Context, heard <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(silence):
			return fmt.Errorf("natslink: the server has forgotten the feed: nothing was heard for %s", silence)
		case <-heard:
		}
	}
}
