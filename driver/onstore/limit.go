package onstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/limit"
)

// What the keys of limiters begin with: their rates, and what their keys used.
const (
	ratePrefix  = "r/"
	usagePrefix = "u/"
)

// rateEntry is the value of a limiter's key.
type rateEntry struct {
	Rate limit.Rate `json:"rate"`
	// Epoch tells what was used at this rate from what was used at an earlier one.
	Epoch string `json:"epoch"`
	// Changes counts SetRate and Reset, so that a watch sees them. 0: a first use has made it, which is not told.
	Changes uint64 `json:"changes,omitempty"`
}

// usageEntry is the value of a limiter's key's key.
type usageEntry struct {
	Epoch string `json:"epoch"`
	// Rate is that of the epoch, by which a sweep knows what is idle.
	Rate  limit.Rate  `json:"rate"`
	State limit.State `json:"state"`
	// Wall: times are of the clocks of machines, not of the engine's.
	Wall bool `json:"wall,omitempty"`
	// Recent are the last requests that changed it, with what they were told.
	Recent []answered `json:"recent,omitempty"`
}

// answered is a request that was done, and its answer.
type answered struct {
	ID          string            `json:"id"`
	Decision    limit.Decision    `json:"decision"`
	Reservation limit.Reservation `json:"reservation"`
	Now         int64             `json:"now"`
}

// usageKey is where the store has what a key used. No name has a zero byte.
func usageKey(name, key string) string { return usagePrefix + name + "\x00" + key }

// Limit asks a limiter. Requests of one process about the same key take turns, as
// those about counters do. The time is the engine's, or that of this machine if it
// has none: then machines with clocks that differ by d allow at most what refills in d
// more than the rate in any time, and no more than another burst; the one ahead keeps the others from
// a key that it has used for up to d. With more than an hour between them each goes by its own clock, and
// the limit is only kept by those that agree.
func (d *onStore) Limit(ctx context.Context, r *driver.LimitRequest) (reply driver.LimitReply, err error) {
	err = d.call(ctx, func(ctx context.Context) error {
		for err = errRateChanged; err == errRateChanged; {
			reply, err = d.atRate(ctx, r)
		}
		return err
	})
	return reply, err
}

// errRateChanged: somebody has set another rate since the request has read it.
var errRateChanged = errors.New("the rate has changed")

// atRate reads the rate, or sets it, and decides r by it.
func (d *onStore) atRate(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	rate, err := d.rateOf(ctx, r)
	switch {
	case err != nil:
		return driver.LimitReply{}, err
	case r.Op == driver.LimitSetRate:
		return driver.LimitReply{Rate: rate.Rate}, nil
	}
	x, err := d.use(ctx, r, rate)
	if err == nil && r.Op == driver.LimitReset && x.inUse {
		err = outcome(d.changed(ctx, r.Name), true) // the key is reset, whatever watches see
	}
	return x.reply, err
}

// rateOf is the limiter's entry, made or set as r asks.
func (d *onStore) rateOf(ctx context.Context, r *driver.LimitRequest) (e *rateEntry, err error) {
	err = retry(ctx, d.quickly(), func() (progress, error) {
		item, has, err := d.readRate(ctx, r.Name)
		if err != nil {
			return blind, err
		}
		e = has
		if r.Op == driver.LimitSetRate && has.Epoch == hexID(r.ID) {
			return looked, nil // this request has set it, unheard
		}
		rate, err := limits.Agree(has.Rate, item.Revision != 0, r)
		if err != nil {
			return looked, final{err}
		}
		if item.Revision != 0 && r.Op != driver.LimitSetRate {
			return looked, nil
		}
		if e = (&rateEntry{Rate: rate}); r.Op == driver.LimitPeek {
			return looked, nil // which makes nothing
		}
		if e.Epoch, e.Changes = hexID(r.ID), has.Changes; r.Op == driver.LimitSetRate {
			e.Changes++
		}
		_, err = d.swap(ctx, ratePrefix+r.Name, item.Revision, e)
		return sent, err
	})
	return e, plain(err)
}

func (d *onStore) readRate(ctx context.Context, name string) (driver.Item, *rateEntry, error) {
	item, err := d.get(ctx, ratePrefix+name)
	if err != nil || item.Revision == 0 {
		return item, &rateEntry{}, err
	}
	item.Key = ratePrefix + name
	e, err := decode[rateEntry](&item)
	if err != nil {
		return item, nil, final{err}
	}
	return item, e, nil
}

// changed lets watches see that a key was reset.
func (d *onStore) changed(ctx context.Context, name string) error {
	return plain(retry(ctx, d.quickly(), func() (progress, error) {
		item, e, err := d.readRate(ctx, name)
		if err != nil || item.Revision == 0 {
			return blind, err
		}
		e.Changes++
		_, err = d.swap(ctx, ratePrefix+name, item.Revision, e)
		return sent, err
	}))
}

// use decides r at a rate.
func (d *onStore) use(ctx context.Context, r *driver.LimitRequest, rate *rateEntry) (*usage, error) {
	x := &usage{d: d, r: r, rate: rate, key: usageKey(r.Name, r.Key)}
	decide := func() error {
		return plain(retry(ctx, d.quickly(), func() (progress, error) { return x.try(ctx) }))
	}
	var err error
	if r.Op == driver.LimitPeek {
		err = decide()
	} else {
		err = d.inTurn(ctx, x.key, r.ID, decide)
	}
	return x, err
}

// usage is a request to a limiter on its way.
type usage struct {
	d     *onStore
	r     *driver.LimitRequest
	rate  *rateEntry
	key   string
	reply driver.LimitReply
	// inUse: the key was in use before, or that is not known any more.
	inUse bool
	// unsure: a write was sent and not answered, when newest was the last request
	// that the key remembered.
	unsure bool
	newest string
}

func (x *usage) try(ctx context.Context) (progress, error) {
	item, u, err := x.d.readUsage(ctx, x.key, x.r.Name, x.rate)
	if err != nil {
		return blind, err
	}
	if was, ok := u.recall(hexID(x.r.ID)); ok {
		x.reply = driver.LimitReply{Decision: was.Decision, Reservation: was.Reservation, Rate: x.rate.Rate, Now: was.Now}
		x.inUse = true
		return looked, nil
	}
	if _, known := u.recall(x.newest); x.unsure && !known && len(u.Recent) == memory {
		return looked, final{&driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown,
			Err: errors.New("the engine did not answer, and has forgotten since whether it was done")}}
	}
	newest := u.newest()
	x.inUse = u.State.Known
	now, wall := x.d.clock(item, x.rate.Rate)
	moved := wall && u.Wall && u.rewind(now)
	state, reply, keep := limits.Decide(x.rate.Rate, limits.Number(x.rate.Epoch), u.State, now, x.r)
	if x.reply = reply; !keep && (!moved || x.r.Op == driver.LimitPeek) {
		return looked, nil
	}
	u.State, u.Epoch, u.Rate, u.Wall = state, x.rate.Epoch, x.rate.Rate, wall
	u.remember(answered{hexID(x.r.ID), reply.Decision, reply.Reservation, reply.Now})
	_, err = x.d.swap(ctx, x.key, item.Revision, u)
	if err != nil && !x.unsure && !errors.Is(err, driver.ErrConflict) {
		x.unsure, x.newest = true, newest
	}
	return sent, err
}

// clock is the engine's time, or this machine's. A calendar is always by the latter,
// since an engine's time may begin anywhere.
func (d *onStore) clock(item driver.Item, rate limit.Rate) (now int64, wall bool) {
	if item.Now == 0 || rate.Algorithm == limit.CalendarWindow {
		return d.wall().UnixNano(), true
	}
	return int64(item.Now), false
}

// readUsage reads what a key used at this rate. What was used at another counts for
// nothing if that one came before. It came later if the rate is no longer the
// limiter's: a caller that used the key at it has read the limiter after this request did.
func (d *onStore) readUsage(ctx context.Context, key, name string, rate *rateEntry) (driver.Item, *usageEntry, error) {
	item, err := d.get(ctx, key)
	if err != nil || item.Revision == 0 {
		return item, &usageEntry{}, err
	}
	item.Key = key
	u, err := decode[usageEntry](&item)
	if err != nil {
		return item, nil, final{err}
	}
	if u.Epoch == rate.Epoch {
		return item, u, nil
	}
	_, has, err := d.readRate(ctx, name)
	if err == nil && has.Epoch != rate.Epoch {
		err = final{errRateChanged}
	}
	return item, &usageEntry{}, err
}

func (u *usageEntry) recall(id string) (answered, bool) {
	i := slices.IndexFunc(u.Recent, func(a answered) bool { return a.ID == id })
	if i < 0 {
		return answered{}, false
	}
	return u.Recent[i], true
}

func (u *usageEntry) newest() string {
	if len(u.Recent) == 0 {
		return ""
	}
	return u.Recent[0].ID
}

func (u *usageEntry) remember(a answered) {
	recent := append([]answered{a}, u.Recent...)
	u.Recent = recent[:min(len(recent), memory)]
}

// maxAhead is how far ahead of this machine's clock one that has used a key may be.
const maxAhead = int64(time.Hour)

// rewind moves what was used by a clock that is further ahead to now, so that one machine with
// its clock in 2099 does not close the key for all others until then; reports that it did. A calendar's
// window finds that out by itself.
func (u *usageEntry) rewind(now int64) bool {
	if len(u.Recent) == 0 || u.Recent[0].Now-now <= maxAhead || u.Rate.Algorithm == limit.CalendarWindow {
		return false
	}
	u.State = limits.Rewind(u.Rate, u.State, u.Recent[0].Now, now)
	return true
}

// idleUsage reports whether an item is a key of a limiter that has been for a while
// as if it had never been used. A value that is not ours is somebody's.
func (d *onStore) idleUsage(item driver.Item) bool {
	if !strings.HasPrefix(item.Key, usagePrefix) {
		return false
	}
	u, err := decode[usageEntry](&item)
	if err != nil {
		return false
	}
	now, wall := d.clock(item, u.Rate)
	return wall == u.Wall && limit.Idle(u.Rate, u.State, now-int64(restFor))
}

// orphaned reports whether an item is what a key used at a rate that its limiter has no more, or of a limiter that
// was deleted: it counts for nothing. epochs are those of limiters as far as they were read. A request reads the
// rate before it uses the key: one that is read after the item, and is another, has come later.
func (d *onStore) orphaned(ctx context.Context, item driver.Item, epochs map[string]string) bool {
	id, ok := strings.CutPrefix(item.Key, usagePrefix)
	u, err := decode[usageEntry](&item)
	if !ok || err != nil {
		return false
	}
	name, _, _ := strings.Cut(id, "\x00")
	if epochs[name] == u.Epoch {
		return false
	}
	_, rate, err := d.readRate(ctx, name)
	if err != nil {
		return false
	}
	epochs[name] = rate.Epoch
	return rate.Epoch != u.Epoch
}

// limitEvents tell that a limiter was changed or deleted.
func limitEvents(item *driver.Item) []driver.Event {
	if e, err := decode[rateEntry](item); !item.Deleted && err == nil && e.Changes == 0 {
		return nil
	}
	return []driver.Event{{Kind: "limit", Verb: "changed", Name: strings.TrimPrefix(item.Key, ratePrefix)}}
}
