package natshold

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/natsconn"
)

// store is a bucket as a [driver.Store].
type store struct {
	conn     *natsconn.Conn
	patience time.Duration // for each answer
	js       nats.JetStreamContext
	bucket   string
	stream   string
	prefix   string // of the subjects of its keys
	created  time.Time
	known    uint64 // the version up to which this program understands a bucket
	// sweepAge is how long a key must have been idle to be swept.
	sweepAge time.Duration
	// sweepSkew is by how much the servers' clocks may differ.
	sweepSkew time.Duration

	begins chan struct{} // has room for the feeds that may begin at a time
	reads  chan struct{} // has room for the callers that may read what is there at a time

	direct atomic.Bool // any server that has the bucket may be asked for a key
	purges atomic.Bool // it can be purged
	keeps  atomic.Bool // nothing can be removed from it
	mark   marked

	newest atomic.Uint64                // the greatest revision seen
	clock  atomic.Pointer[clock]        // the server's, as it was read last
	gone   atomic.Pointer[driver.Error] // why it cannot be used any more
}

var (
	_ driver.Store    = (*store)(nil)
	_ driver.Fallible = (*store)(nil)
)

// operation is the header of a message that is the end of a key.
const operation = "KV-Operation"

// ended reports whether a message says that its key does not exist.
func ended(h nats.Header) bool {
	return h.Get(operation) == "DEL" || h.Get(operation) == "PURGE" || h.Get("Nats-Marker-Reason") != ""
}

// ask is [natsconn.Conn.Ask], and says what an error means for a bucket.
func (s *store) ask(ctx context.Context, subject string, f func(ctx context.Context) error) error {
	return answer(s.conn.AskFor(ctx, s.patience, subject, f))
}

// Get reads a key.
func (s *store) Get(ctx context.Context, key string) (driver.Item, error) {
	m, err := s.last(ctx, key)
	if err == nil && m == nil {
		err = s.absent(ctx)
	}
	if err != nil || m == nil || ended(m.Header) {
		return driver.Item{Key: key}, err
	}
	return driver.Item{Key: key, Value: m.Data, Revision: driver.Revision(m.Sequence), Age: s.age(ctx, m.Time)}, nil
}

// age is for how long at least a message has been the last one. The server's clock is
// asked only where it may matter, and not at every Get.
func (s *store) age(ctx context.Context, at time.Time) time.Duration {
	if time.Since(at) <= s.sweepSkew {
		return 0
	}
	c := s.clock.Load()
	if c == nil || driver.Now().Sub(c.read) > clockEvery {
		c = &clock{driver.Now(), s.serverTime(ctx)}
		s.clock.Store(c)
	}
	return max(c.told.Sub(at)-s.sweepSkew, 0)
}

// clock is the server's clock when it was read.
type clock struct {
	read time.Time // by driver.Now
	told time.Time
}

// clockEvery is how often the server's clock is read at most. What is known of a
// key's age is that much less.
const clockEvery = time.Minute

// last is the newest message about a key; nil: there is none.
func (s *store) last(ctx context.Context, key string) (m *nats.RawStreamMsg, err error) {
	if err := s.Broken(); err != nil {
		return nil, err
	}
	subject, opts := "$JS.API.STREAM.MSG.GET."+s.stream, []nats.JSOpt{nil}
	if s.direct.Load() {
		subject, opts = "$JS.API.DIRECT.GET."+s.stream, []nats.JSOpt{nil, nats.DirectGet()}
	}
	err = s.ask(ctx, subject, func(ctx context.Context) error {
		opts[0] = nats.Context(ctx)
		m, err = s.js.GetLastMsg(s.stream, s.prefix+toBucket(key), opts...)
		return err
	})
	switch {
	case errors.Is(err, nats.ErrMsgNotFound):
		return nil, nil
	case silent(err):
		return nil, s.missing(ctx, err)
	case err == nil:
		s.saw(driver.Revision(m.Sequence))
	}
	return m, err
}

// silent reports that nobody serves what was asked for.
func silent(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrJetStreamNotEnabled) || errors.Is(err, nats.ErrNoStreamResponse)
}

// missing tells a bucket that is gone from a server that is not ready.
func (s *store) missing(ctx context.Context, err error) error {
	if _, why := s.find(ctx); errors.Is(why, errNoBucket) {
		return why
	}
	return err
}

// Swap sets a key that is at the revision old.
func (s *store) Swap(ctx context.Context, key string, old driver.Revision, value []byte) (driver.Revision, error) {
	m := &nats.Msg{Subject: s.prefix + toBucket(key), Data: value}
	revision, err := s.publish(ctx, m, old)
	if old != 0 || !errors.Is(err, driver.ErrConflict) {
		return revision, err
	}
	end, err := s.last(ctx, key) // it may have existed before
	if err != nil {
		return 0, err
	}
	if end == nil || !ended(end.Header) {
		return 0, driver.ErrConflict
	}
	return s.publish(ctx, m, driver.Revision(end.Sequence))
}

// Delete deletes a key that is at the revision old.
func (s *store) Delete(ctx context.Context, key string, old driver.Revision) (driver.Revision, error) {
	if old == 0 {
		return 0, driver.ErrConflict
	}
	m := nats.NewMsg(s.prefix + toBucket(key))
	m.Header.Set(operation, "DEL")
	return s.publish(ctx, m, old)
}

// publish appends a message if the last one of its subject is at old, and looks
// now and then whether the bucket still keeps it. If it does not, what was appended
// was done all the same.
func (s *store) publish(ctx context.Context, m *nats.Msg, old driver.Revision) (driver.Revision, error) {
	revision, err := s.send(ctx, m, old)
	if err != nil {
		return 0, err
	}
	return revision, afterwards(s.lookNow(ctx))
}

// afterwards is an error that came when the change was done.
func afterwards(err error) error {
	e, ok := err.(*driver.Error)
	if !ok {
		return err
	}
	done := *e
	done.Outcome = driver.Done
	return &done
}

func (s *store) send(ctx context.Context, m *nats.Msg, old driver.Revision) (driver.Revision, error) {
	if err := s.Broken(); err != nil {
		return 0, err
	}
	before := s.newest.Load()
	var ack *nats.PubAck
	err := s.ask(ctx, m.Subject, func(ctx context.Context) (err error) {
		ack, err = s.js.PublishMsg(m, nats.Context(ctx), nats.ExpectLastSequencePerSubject(uint64(old)), nats.RetryAttempts(0))
		return err
	})
	if silent(err) {
		err = s.missing(ctx, err)
	}
	if err != nil {
		return 0, err
	}
	if ack.Sequence <= before {
		return 0, s.rewound(before, ack.Sequence)
	}
	s.saw(driver.Revision(ack.Sequence))
	return driver.Revision(ack.Sequence), nil
}

// saw notes a revision.
func (s *store) saw(revision driver.Revision) {
	for {
		n := s.newest.Load()
		if uint64(revision) <= n || s.newest.CompareAndSwap(n, uint64(revision)) {
			return
		}
	}
}

// rewound ends the use of a bucket after its revisions have gone back: what was
// answered is lost, and tokens would repeat.
func (s *store) rewound(seen, now uint64) error {
	e := driver.Errorf("", "", driver.ErrUnavailable,
		"the bucket's revisions have gone back from %d to %d: the server has lost what it had answered, or the bucket was made anew; see what is missing, and open a new Space", seen, now)
	e.Outcome = driver.Unknown
	return s.end(e)
}
