package natshold

import (
	"context"
	crand "crypto/rand"
	"errors"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/natsconn"
)

const (
	// heartbeat is how often the server says that there is nothing to say.
	heartbeat = time.Second
	// silence is after how long without a word the server is taken to have
	// forgotten the feed.
	silence = 2500 * time.Millisecond
	// forgetAfter is how long the server keeps a feed that nobody reads.
	forgetAfter = 2 * time.Minute
	// beginsAtATime is how many feeds begin at a time. The server begins one after the
	// other, and what stands behind a hundred there would be taken for unanswered.
	beginsAtATime = 16
	// beginFor is how long a watch asks a server to begin that does not answer, as every
	// call does.
	beginFor = 4 * natsconn.Patience
)

// errMissed is what a feed ends with that has missed something.
var errMissed = errors.New("messages of NATS were lost on their way")

// feed is a consumer of the bucket's stream: what a watch of a bucket is, to which
// messages are pushed, or a reader of what is there, which asks for them. It has no
// goroutine of its own.
type feed struct {
	s       *store
	sub     *nats.Subscription
	name    string
	filter  string          // of subjects
	count   uint64          // of messages so far
	start   driver.Revision // revision of the last change before
	pending uint64          // messages there were when it began
}

// change is one message.
type change struct {
	item    driver.Item
	foreign bool // not one of our keys
	pending uint64
	at      time.Time // by the server's clock
}

// feed begins one over the keys that match a pattern. What is not pushed is asked for in
// pieces, each of which goes to a subject below the feed's.
func (s *store) feed(ctx context.Context, filter string, cfg *nats.ConsumerConfig, pushed bool) (*feed, error) {
	if err := s.conn.Connected(ctx); err != nil { // told at once, however many wait for their turn
		return nil, err
	}
	select {
	case s.begins <- struct{}{}:
		defer func() { <-s.begins }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	inbox := s.conn.NewInbox()
	if !pushed {
		inbox += ".*"
	}
	sub, err := s.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	if pushed {
		cfg.DeliverSubject, cfg.Heartbeat = inbox, heartbeat
	}
	cfg.FilterSubject, cfg.InactiveThreshold = s.prefix+filter, forgetAfter
	cfg.AckPolicy, cfg.MaxDeliver = nats.AckNonePolicy, 1
	cfg.MemoryStorage, cfg.Replicas = true, 1
	// The name is ours, so that also a feed of which we do not hear can be ended.
	cfg.Name = crand.Text()
	f := &feed{s: s, sub: sub, name: cfg.Name, filter: cfg.FilterSubject}
	err = s.ask(ctx, "$JS.API.CONSUMER.CREATE."+s.stream, func(ctx context.Context) error {
		info, err := s.js.UpdateConsumer(s.stream, cfg, nats.Context(ctx)) // AddConsumer would ask twice
		if err == nil {
			f.start, f.pending = driver.Revision(info.Delivered.Stream), info.NumPending
		}
		return err
	})
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// close ends it without waiting for an answer: what the server does not hear it
// forgets by itself.
func (f *feed) close() {
	_ = f.sub.Unsubscribe()
	_ = f.s.conn.PublishRequest("$JS.API.CONSUMER.DELETE."+f.s.stream+"."+f.name, f.s.conn.NewInbox(), nil)
}

// next is the next change that is pushed.
func (f *feed) next(ctx context.Context) (*change, error) {
	for {
		m, err := f.wait(ctx)
		if err != nil {
			return nil, err
		}
		if status := m.Header.Get("Status"); status == "" || len(m.Data) > 0 {
			return f.change(m)
		} else if status != "100" || m.Header.Get("Nats-Last-Consumer") != strconv.FormatUint(f.count, 10) {
			return nil, errMissed
		}
	}
}

// wait is the next message, if it comes in time.
func (f *feed) wait(ctx context.Context) (*nats.Msg, error) {
	waiting, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	m, err := f.sub.NextMsgWithContext(waiting)
	switch {
	case err == nil || ctx.Err() != nil:
		return m, err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrSlowConsumer):
		return nil, errMissed
	}
	return nil, err
}

// change reads a message, if it is the next one.
func (f *feed) change(m *nats.Msg) (*change, error) {
	meta, err := m.Metadata()
	if err != nil || meta.Sequence.Consumer != f.count+1 {
		return nil, errMissed
	}
	f.count++
	f.s.saw(driver.Revision(meta.Sequence.Stream))
	key, ours := fromBucket(strings.TrimPrefix(m.Subject, f.s.prefix))
	return &change{
		item:    driver.Item{Key: key, Value: m.Data, Revision: driver.Revision(meta.Sequence.Stream), Deleted: ended(m.Header)},
		foreign: !ours, pending: meta.NumPending, at: meta.Timestamp,
	}, nil
}

// Changed tells the changes of a key, or of all.
func (s *store) Changed(ctx context.Context, key string) iter.Seq2[driver.Item, error] {
	return func(yield func(driver.Item, error) bool) {
		w := &watch{s: s, key: key, yield: yield}
		asked := driver.Now()
		err := w.begin(ctx)
		for w.feed == nil && driver.Now().Sub(asked) < beginFor && w.lost(ctx, err) {
			err = w.begin(ctx)
		}
		for err == nil { // also if ctx has ended by now: follow ends the feed
			err = w.follow(ctx)
			for w.lost(ctx, err) {
				err = w.resume(ctx)
			}
		}
		if err != nil && err != errEnough && ctx.Err() == nil {
			yield(driver.Item{}, err)
		}
	}
}

// watch is one caller of Changed.
type watch struct {
	s     *store
	key   string
	yield func(driver.Item, error) bool
	feed  *feed
	last  driver.Revision // the revision up to which everything was told, or is missing
	// missed: something up to last was overwritten or removed before it was sent, and that is still to
	// be told.
	missed bool
}

// errEnough is what ends a watch after its caller has left the loop.
var errEnough = errors.New("enough")

// tell yields an item.
func (w *watch) tell(item driver.Item) error {
	if !w.yield(item, nil) {
		return errEnough
	}
	return nil
}

func (w *watch) filter() string {
	if w.key == "" {
		return ">"
	}
	return toBucket(w.key)
}

// begin starts with what comes from now on, and says that something may be missing before.
func (w *watch) begin(ctx context.Context) error {
	if err := w.open(ctx, &nats.ConsumerConfig{DeliverPolicy: nats.DeliverNewPolicy}); err != nil {
		return err
	}
	w.last = max(w.last, w.feed.start)
	return w.tellGap()
}

// open begins a feed. A server that begins it before what was told is behind another, or has
// lost what it had answered: only the second ends the watch.
func (w *watch) open(ctx context.Context, cfg *nats.ConsumerConfig) (err error) {
	if w.feed, err = w.s.feed(ctx, w.filter(), cfg, true); err != nil || w.feed.start >= w.last {
		return err
	}
	if err = w.s.look(ctx); err != nil {
		w.feed.close()
	}
	return err
}

// tellGap says that something may be missing up to where the feed begins.
func (w *watch) tellGap() error {
	err := w.tell(driver.Item{Revision: w.last})
	if err != nil {
		w.feed.close()
	}
	w.missed = w.missed && err != nil
	return err
}

// follow tells what comes until the feed ends, or is not all any more.
func (w *watch) follow(ctx context.Context) error {
	defer w.feed.close()
	for {
		c, err := w.feed.next(ctx)
		if err == nil {
			err = w.take(c)
		}
		if err != nil {
			return err
		}
	}
}

// take tells a change that is the next one. A server that is behind another brings again
// what was told. Behind a gap there may be any number of others, in all that was not yet sent:
// one that ends the feed is one for them all, and nothing of what is old is sent any more.
func (w *watch) take(c *change) error {
	at := c.item.Revision
	switch {
	case at <= w.last:
		return nil
	case w.key == "" && at != w.last+1:
		w.last, w.missed = at-1, true
		return errMissed
	}
	w.last = at
	if c.foreign {
		return nil
	}
	return w.tell(c.item)
}

// lost reports whether the feed can be resumed after a pause: what it ended with
// is neither the caller's wish nor the server's last word.
func (w *watch) lost(ctx context.Context, err error) bool {
	if _, word := err.(*driver.Error); err == nil || word || err == errEnough || w.s.conn.IsClosed() {
		return false
	}
	select {
	case <-time.After(natsconn.ComeBack + rand.N(natsconn.ComeBack)):
		return true
	case <-ctx.Done():
		return false
	}
}

// resume goes on after what was told last, or, if that is not there any more, with what comes
// from now on.
func (w *watch) resume(ctx context.Context) error {
	err := w.s.look(ctx)
	if err == nil && w.missed {
		return w.begin(ctx)
	}
	if err == nil {
		err = w.open(ctx, &nats.ConsumerConfig{DeliverPolicy: nats.DeliverByStartSequencePolicy, OptStartSeq: uint64(w.last + 1)})
	}
	if err != nil || w.key == "" {
		return err
	}
	return w.tellGap() // of one key nobody knows what is missing
}
