package natshold

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
)

// What is in a bucket is read in pieces that are asked for one after the other: however
// much there is, no more than a piece is on its way, and a renewal that is sent meanwhile
// waits for no more than that.

const (
	// pieceMessages and pieceBytes bound a piece. A message that is larger comes alone.
	pieceMessages = 512
	pieceBytes    = 128 << 10
	// pieceLast bounds a piece of the last states of keys, with their values, in place of
	// pieceBytes: the server, at least up to 2.15, loses a message of these that does not fit
	// into a request, or for which it has just ended one.
	pieceLast = 16
	// pieceFor is how long a piece may take on a slow link; each message of it has to
	// come before the link is taken for silent.
	pieceFor = 50 * time.Second
	// pieceEnds is when the server ends a request, which is long after the reader does.
	pieceEnds = time.Minute
	// idleAfter is after how long without a message a reader looks whether there are more.
	idleAfter = 50 * time.Millisecond
	// readFor is how long a reader begins again of which each feed brings nothing.
	readFor = 4 * silence
	// readsAtATime is how many callers read at a time. The others wait for their turn,
	// and are not taken for unanswered.
	readsAtATime = 2
	// A few keys are read one by one: up to fewKeys, or one of fewPart that were looked at,
	// which is known when sampleKeys were.
	fewKeys    = 64
	fewPart    = 8
	sampleKeys = 4 * pieceMessages
	// keysAtATime is how many are read or removed at a time.
	keysAtATime = 16
)

// List reads all keys with a prefix.
func (s *store) List(ctx context.Context, prefix string) ([]driver.Item, error) {
	if err := s.Broken(); err != nil {
		return nil, err
	}
	items, err := s.list(ctx, prefix)
	if err != nil {
		return nil, err
	}
	return items, s.absent(ctx) // what is missing
}

// list looks first for the keys with the prefix, unless that is a whole kind: the server
// cannot tell them from others of their kind, and the values of these would be sent too.
func (s *store) list(ctx context.Context, prefix string) ([]driver.Item, error) {
	if _, name, _ := strings.Cut(prefix, "/"); name == "" {
		found, _, err := s.matching(ctx, prefix, false)
		return found, err
	}
	found, few, err := s.matching(ctx, prefix, true)
	if err == nil && !few {
		found, _, err = s.matching(ctx, prefix, false)
		return found, err
	}
	if err == nil {
		err = atOnce(len(found), func(i int) (err error) {
			found[i], err = s.Get(ctx, found[i].Key)
			return err
		})
	}
	return slices.DeleteFunc(found, func(i driver.Item) bool { return i.Revision == 0 }), err
}

// matching are the keys with a prefix. With keysOnly they are without their values, and
// not all unless they are few.
func (s *store) matching(ctx context.Context, prefix string, keysOnly bool) (found []driver.Item, few bool, err error) {
	states, err := s.states(ctx)
	if err != nil {
		return nil, false, err
	}
	items, all := map[string]driver.Item{}, 0
	err = s.read(ctx, pattern(prefix), &nats.ConsumerConfig{DeliverPolicy: states, HeadersOnly: keysOnly}, func(c *change) bool {
		all++
		if strings.HasPrefix(c.item.Key, prefix) && !c.foreign {
			items[c.item.Key] = c.item
		}
		few = len(items) <= max(fewKeys, all/fewPart)
		return !keysOnly || few || all < sampleKeys
	})
	maps.DeleteFunc(items, func(_ string, i driver.Item) bool { return i.Deleted })
	return slices.Collect(maps.Values(items)), few || len(items) == 0, err
}

// states says which messages to read. To find the last one of each key the server stops
// for some microseconds a key, renewals too, before it sends the first: where most keys
// have only one state, all are read.
func (s *store) states(ctx context.Context) (nats.DeliverPolicy, error) {
	info, err := s.find(ctx)
	if err == nil && info.State.Msgs <= 2*info.State.NumSubjects {
		return nats.DeliverAllPolicy, nil
	}
	return nats.DeliverLastPerSubjectPolicy, err
}

// read calls do for the messages that a filter lets pass, those that come meanwhile
// among them, in order, until it returns false.
func (s *store) read(ctx context.Context, filter string, cfg *nats.ConsumerConfig, do func(*change) bool) error {
	select {
	case s.reads <- struct{}{}:
		defer func() { <-s.reads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p := &piece{do: do, last: cfg.DeliverPolicy == nats.DeliverLastPerSubjectPolicy, keysOnly: cfg.HeadersOnly, heard: driver.Now()}
	err := s.readOn(ctx, filter, cfg, p)
	for errors.Is(err, errMissed) && driver.Now().Sub(p.heard) < readFor {
		err = s.readOn(ctx, filter, cfg, p)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// readOn reads with a feed of its own what comes after what was read before. One that misses something, since the server
// stands where very many messages were removed, is followed by another, which does not come by there: also if it has
// brought nothing, as of two sweeps one may remove all that the other is about to read.
func (s *store) readOn(ctx context.Context, filter string, cfg *nats.ConsumerConfig, p *piece) error {
	f, err := s.feed(ctx, filter, cfg, false)
	if err != nil {
		return err
	}
	defer f.close()
	p.feed, p.over, p.alone = f, f.pending == 0, false
	for !p.over && err == nil {
		err = p.next(ctx)
	}
	return err
}

// piece is what one request brings.
type piece struct {
	feed     *feed
	do       func(*change) bool
	last     bool // of the last states of keys
	keysOnly bool

	asked int    // pieces so far
	got   int    // messages of this one
	bytes int    // of them
	alone bool   // this one is a message that is larger than a piece
	at    uint64 // up to where everything was read
	over  bool   // everything was read

	heard time.Time // when the reader began, or something new was read
}

// most is how many messages it has.
func (p *piece) most() int {
	switch {
	case p.alone:
		return 1
	case p.last && !p.keysOnly:
		return pieceLast
	}
	return pieceMessages
}

// ask asks the server for messages.
func (p *piece) ask(most int) error {
	r := map[string]any{"batch": most, "expires": pieceEnds}
	if !p.last && !p.alone {
		r["max_bytes"] = pieceBytes
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	s := p.feed.s
	return s.conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+s.stream+"."+p.feed.name, p.inbox(), text)
}

// next asks for a piece and reads it.
func (p *piece) next(ctx context.Context) error {
	s := p.feed.s
	p.asked, p.got, p.bytes = p.asked+1, 0, 0
	return answer(s.conn.AskFor(ctx, pieceFor, "$JS.API.CONSUMER.MSG.NEXT."+s.stream, func(ctx context.Context) error {
		if err := p.ask(p.most()); err != nil {
			return err
		}
		return p.collect(ctx)
	}))
}

// inbox is where this piece goes: what the server says about an earlier one goes elsewhere.
func (p *piece) inbox() string {
	return strings.TrimSuffix(p.feed.sub.Subject, "*") + strconv.Itoa(p.asked)
}

// collect reads the messages of a piece.
func (p *piece) collect(ctx context.Context) error {
	for !p.full() && !p.over {
		m, err := p.wait(ctx)
		if err != nil || m == nil {
			return err
		}
		if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
			if m.Subject == p.inbox() {
				return p.cut(status)
			}
			continue
		}
		if err := p.take(ctx, m); err != nil {
			return err
		}
	}
	p.alone = false
	return nil
}

// wait is the next message; nil: there is none. The server stops where a message was that it wanted to
// send and that was removed: it goes on when it is asked for more.
func (p *piece) wait(ctx context.Context) (*nats.Msg, error) {
	for began := driver.Now(); driver.Now().Sub(began) < silence; {
		waiting, cancel := context.WithTimeout(ctx, idleAfter)
		m, err := p.feed.sub.NextMsgWithContext(waiting)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return m, err
		}
		if err = p.look(ctx); err == nil && p.last && !p.over {
			err = p.ask(1)
		}
		if err != nil || p.over {
			return nil, err
		}
	}
	return nil, errMissed
}

func (p *piece) full() bool { return p.got == p.most() || p.bytes == pieceBytes && !p.last && !p.alone }

// take reads one message.
func (p *piece) take(ctx context.Context, m *nats.Msg) error {
	c, err := p.feed.change(m)
	if err != nil {
		return err
	}
	p.got, p.bytes = p.got+1, p.bytes+m.Size()
	if at := uint64(c.item.Revision); at > p.at { // a feed before this one may have brought it
		p.at, p.heard = at, driver.Now()
		if !p.do(c) {
			return errEnough
		}
	}
	if c.pending == 0 && !p.more() {
		return p.look(ctx)
	}
	return nil
}

// more: the next message is here already. Each that comes while others write was the last when it was sent.
func (p *piece) more() bool {
	n, _, err := p.feed.sub.Pending()
	return err == nil && n > 0
}

// look finds out whether all was read. What the server says about that by itself may be
// wrong: it counts too few when messages are removed meanwhile.
func (p *piece) look(ctx context.Context) error {
	next, err := p.feed.s.messageFrom(ctx, p.feed.filter, p.at+1)
	p.over = err == nil && next == 0
	return err
}

// cut: the server has ended a piece, since the next message is larger than what is left of it.
func (p *piece) cut(status string) error {
	if status != "409" || p.alone || p.last {
		return errMissed
	}
	p.alone = p.got == 0
	return nil
}

// atOnce calls f for each of n, several at a time, until there are errors, of which it returns one.
func atOnce(n int, f func(i int) error) error {
	var (
		next atomic.Int64
		errs = make([]error, min(keysAtATime, n))
		all  sync.WaitGroup
	)
	for w := range errs {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[w] == nil; i = next.Add(1) - 1 {
				errs[w] = f(int(i))
			}
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}
