package onstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

const (
	// restFor is how long a lock stays after it was given back: a caller that uses it
	// again soon finds it, and watches have been told.
	restFor = time.Minute
	// restMost bounds how many are remembered. What was given back beyond that stays
	// until Sweep is called.
	restMost = 10_000
)

// rest notes a lock that was given back at a revision, to be forgotten if nobody
// here has taken it for a while.
func (d *onStore) rest(key string, revision driver.Revision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.untidy || len(d.idle) >= restMost {
		return
	}
	if d.idle == nil {
		d.idle = map[string]sight{}
	}
	d.idle[key] = sight{revision, driver.Now()}
	if d.tidy == nil {
		d.tidy = time.AfterFunc(restFor, d.tidyUp)
	}
}

// tidyUp forgets what has rested for long enough, and comes back for the rest. An
// engine that refuses is not asked again: Sweep would say why.
func (d *onStore) tidyUp() {
	if !d.begin() {
		return
	}
	defer d.work.Done()
	var err error
	list := d.rested()
	for len(list) > 0 {
		if err = d.forget(d.life, list[0].name, list[0].revision); err != nil {
			break
		}
		list = list[1:]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restAgain(list)
	if d.untidy = decided(err); d.untidy {
		d.idle = nil
	}
	if d.tidy = nil; len(d.idle) > 0 && !d.closed {
		d.tidy = time.AfterFunc(restFor/2, d.tidyUp)
	}
}

// restAgain puts back what could not be forgotten, unless it was used again since.
func (d *onStore) restAgain(list []spot) {
	for _, key := range list {
		if _, ok := d.idle[key.name]; !ok {
			d.idle[key.name] = sight{key.revision, driver.Now()}
		}
	}
}

// spot is a key at a revision.
type spot struct {
	name     string
	revision driver.Revision
}

// rested takes those that nobody here has used for a while.
func (d *onStore) rested() []spot {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []spot
	for key, s := range d.idle {
		if driver.Now().Sub(s.at) >= restFor {
			list = append(list, spot{key, s.revision})
			delete(d.idle, key)
		}
	}
	return list
}

// forget removes a tombstone. If the lock is held again, it stays. A Sweeper may need
// many requests for it, and bounds each.
func (d *onStore) forget(ctx context.Context, key string, revision driver.Revision) error {
	if s, ok := d.store.(driver.Sweeper); ok {
		return s.Forget(ctx, key, revision)
	}
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	_, err := d.store.Delete(ctx, key, revision)
	if errors.Is(err, driver.ErrConflict) {
		return nil
	}
	return err
}

// isIdle reports that callers cannot tell an item from one that is not there.
func (d *onStore) isIdle(item driver.Item) bool {
	return isTombstone(item) || d.isOver(item) || d.idleUsage(item)
}

// sweeps is isIdle for a sweep, which also removes what was used of limiters that are no more.
func (d *onStore) sweeps(ctx context.Context) func(driver.Item) bool {
	epochs := map[string]string{}
	return func(item driver.Item) bool { return d.isIdle(item) || d.orphaned(ctx, item, epochs) }
}

// isOver reports a lock that its holder did not renew, or a key that has expired: by
// the engine's clock, by its age, or because this driver has seen it for so long.
func (d *onStore) isOver(item driver.Item) bool {
	switch {
	case strings.HasPrefix(item.Key, lockPrefix):
		e, err := decode[lockEntry](&item)
		return err == nil && d.timeLeft(&item, e) == 0
	case strings.HasPrefix(item.Key, keyPrefix):
		e, err := decode[keyEntry](&item)
		return err == nil && e.Expire > 0 && (d.left(&item, e) <= 0 || item.Age > e.Expire)
	}
	return false
}

// Sweep removes the locks that nobody holds, the keys that have expired, the keys of
// limiters that are as if they had never been used, and what is left of keys, counters,
// sequences and limiters that were deleted, what their keys used among it.
func (d *onStore) Sweep(ctx context.Context, r *driver.SweepRequest) (reply driver.SweepReply, err error) {
	err = d.call(ctx, func(ctx context.Context) error {
		if s, ok := d.store.(driver.Sweeper); ok {
			return d.sweepStore(ctx, s, r.Prefix, &reply)
		}
		return d.sweepEach(ctx, r.Prefix, &reply)
	})
	return reply, err
}

// sweepStore lets the store do it. A request that finds no answer is tried again, as those of
// other calls are: what was removed before stays removed.
func (d *onStore) sweepStore(ctx context.Context, s driver.Sweeper, prefix string, reply *driver.SweepReply) error {
	for _, kind := range []string{lockPrefix, counterPrefix, sequencePrefix, keyPrefix, ratePrefix, usagePrefix} {
		err := retry(ctx, d.bounded(patient), func() (progress, error) {
			n, err := s.Sweep(ctx, kind+prefix, d.sweeps(ctx))
			reply.Removed += n
			return looked, err
		})
		if err != nil {
			return plain(err)
		}
	}
	return nil
}

// sweepEach deletes tombstones one by one.
func (d *onStore) sweepEach(ctx context.Context, prefix string, reply *driver.SweepReply) error {
	for _, kind := range []string{lockPrefix, keyPrefix, usagePrefix} {
		if err := d.sweepKind(ctx, kind+prefix, reply); err != nil {
			return err
		}
	}
	return nil
}

func (d *onStore) sweepKind(ctx context.Context, prefix string, reply *driver.SweepReply) error {
	items, err := d.all(ctx, d.quickly(), prefix)
	if err != nil {
		return err
	}
	idle := d.sweeps(ctx)
	for _, item := range items {
		if !idle(item) {
			continue
		}
		if err := d.forget(ctx, item.Key, item.Revision); err != nil {
			return unread(ctx, err)
		}
		reply.Removed++
	}
	return nil
}

// isTombstone reports whether an item is a lock that nobody holds, or a key that was
// deleted. A value that is not ours is somebody's.
func isTombstone(item driver.Item) bool {
	switch {
	case strings.HasPrefix(item.Key, lockPrefix):
		e, err := decode[lockEntry](&item)
		return err == nil && e.Holder == ""
	case strings.HasPrefix(item.Key, keyPrefix):
		e, err := decode[keyEntry](&item)
		return err == nil && e.deleted()
	}
	return false
}
