package natshold

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/natsconn"
)

var _ driver.Sweeper = (*store)(nil)

const (
	// sweepAge is how long a key must be as it is: a client that has just changed it may
	// ask again whether it was done, and watches may still be told.
	sweepAge = time.Minute
	// sweepSkew is by how much the clocks of the servers may differ: the age of a key is
	// told as that much less.
	sweepSkew = 24 * time.Hour
	// sweepMost is how many are looked for before they are.
	sweepMost = 10_000
	// codeNoMessage: no message fits a request; codeNotDeleted: there was none to delete;
	// codeNoSequence: another client has deleted it.
	codeNoMessage  nats.ErrorCode = 10037
	codeNotDeleted nats.ErrorCode = 10057
	codeNoSequence nats.ErrorCode = 10043
)

// Forget removes the messages about a key up to a revision, the oldest first: until
// the last is gone the key is what it was, and a client that swaps it then is refused and
// looks again.
func (s *store) Forget(ctx context.Context, key string, revision driver.Revision) error {
	return s.forget(ctx, s.prefix+toBucket(key), uint64(revision))
}

func (s *store) forget(ctx context.Context, subject string, last uint64) error {
	if err := s.Broken(); err != nil {
		return err
	}
	if s.keeps.Load() {
		return driver.Errorf("", "", errors.ErrUnsupported, "nothing can be removed from the bucket %q (deny_purge, deny_delete): use one that Open makes", s.bucket)
	}
	if s.purges.Load() {
		return s.request(ctx, "$JS.API.STREAM.PURGE."+s.stream, map[string]any{"filter": subject, "seq": last + 1})
	}
	for {
		first, err := s.messageFrom(ctx, subject, 1)
		if err != nil || first == 0 || first > last {
			return err
		}
		if err := s.deleteMessage(ctx, first); err != nil {
			return err
		}
	}
}

// deleteMessage removes a message, which another client may have done meanwhile.
func (s *store) deleteMessage(ctx context.Context, seq uint64) error {
	err := s.request(ctx, "$JS.API.STREAM.MSG.DELETE."+s.stream, map[string]any{"seq": seq, "no_erase": true})
	if natsconn.HasCode(err, codeNotDeleted) || natsconn.HasCode(err, codeNoSequence) {
		return nil
	}
	return err
}

// messageFrom is the oldest message of a subject, or of those that a filter lets pass, from a
// sequence on; 0: there is none.
func (s *store) messageFrom(ctx context.Context, subject string, seq uint64) (uint64, error) {
	var reply struct {
		Message struct {
			Seq uint64 `json:"seq"`
		} `json:"message"`
	}
	err := s.requestFor(ctx, "$JS.API.STREAM.MSG.GET."+s.stream, map[string]any{"seq": seq, "next_by_subj": subject}, &reply)
	if natsconn.HasCode(err, codeNoMessage) {
		return 0, nil
	}
	return reply.Message.Seq, err
}

// Sweep removes the keys that are deleted or idle, some thousands at a time.
func (s *store) Sweep(ctx context.Context, prefix string, idle func(driver.Item) bool) (removed int64, err error) {
	for more := true; more && err == nil; {
		var list []driver.Item
		if list, err = s.sweepable(ctx, prefix, idle); err == nil {
			more = len(list) == sweepMost
			err = s.forgetAll(ctx, list, &removed)
		}
	}
	return removed, err
}

// sweepable are up to sweepMost keys, without their values.
func (s *store) sweepable(ctx context.Context, prefix string, idle func(driver.Item) bool) (list []driver.Item, err error) {
	now := s.serverTime(ctx)
	err = s.read(ctx, pattern(prefix), &nats.ConsumerConfig{DeliverPolicy: nats.DeliverLastPerSubjectPolicy}, func(c *change) bool {
		c.item.Age = max(now.Sub(c.at)-s.sweepSkew, 0)
		if time.Since(c.at) >= s.sweepAge && !c.foreign && strings.HasPrefix(c.item.Key, prefix) && (c.item.Deleted || idle(c.item)) {
			list = append(list, driver.Item{Key: c.item.Key, Revision: c.item.Revision})
		}
		return len(list) < sweepMost
	})
	return list, err
}

// serverTime is the server's clock; if it does not say, no key has an age by it.
func (s *store) serverTime(ctx context.Context) time.Time {
	var reply struct {
		At time.Time `json:"ts"`
	}
	if err := s.requestFor(ctx, "$JS.API.STREAM.INFO."+s.stream, struct{}{}, &reply); err != nil {
		return time.Time{}
	}
	return reply.At
}

// forgetAll forgets keys, several at a time, and counts them.
func (s *store) forgetAll(ctx context.Context, list []driver.Item, removed *int64) error {
	var done atomic.Int64
	err := atOnce(len(list), func(i int) error {
		err := s.Forget(ctx, list[i].Key, list[i].Revision)
		if err == nil {
			done.Add(1)
		}
		return err
	})
	*removed += done.Load()
	return err
}
