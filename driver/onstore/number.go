package onstore

import (
	"context"
	"errors"
	"io/fs"
	"math"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// number reads a counter or sequence, lets alter change it, and swaps it in. A
// request that was done before is answered from memory. Those of one process
// that change the same one take turns: they would only get in each other's way.
func (d *onStore) number(ctx context.Context, key string, id [16]byte, reads, again bool, alter alteration) (done, error) {
	x := &step{d: d, key: key, id: hexID(id), again: again, alter: alter}
	err := d.call(ctx, func(ctx context.Context) error {
		change := func() error {
			return plain(retry(ctx, d.quickly(), func() (progress, error) { return x.try(ctx) }))
		}
		if reads {
			return change()
		}
		return d.inTurn(ctx, key, id, change)
	})
	if err != nil {
		return done{}, err
	}
	return x.answer, nil
}

// inTurn runs f when those before it have changed the key, or have found that the engine does
// not answer: that is the answer to all that wait then. They would be told one after
// the other, each after a time of its own.
func (d *onStore) inTurn(ctx context.Context, key string, id [16]byte, f func() error) error {
	leave, err := d.line.turns.Wait(ctx, key, id, nil)
	switch {
	case err == nil:
	case err == ctx.Err():
		return gaveup.Error(ctx, driver.NotDone)
	default:
		return err
	}
	defer leave()
	err = f()
	if up, ok := errors.AsType[*givenUp](err); ok && up.last != errOthers {
		d.line.turns.sendAway(key, &driver.Error{Kind: driver.ErrUnavailable, RetryAfter: quick.most, Outcome: driver.NotDone, Err: up})
	}
	return err
}

// alteration changes a number and says what to answer.
type alteration func(n *numberEntry, exists bool) (done, error)

// errNothing is what an alteration returns when there is nothing to write.
var errNothing = errors.New("nothing to write")

// step is a change of a number on its way.
type step struct {
	d       *onStore
	key, id string
	again   bool // its caller may ask for it in another call
	alter   alteration
	answer  done
	// unsure: a write was sent and not answered, when newest was the last
	// request that the number remembered.
	unsure bool
	newest string
}

func (x *step) try(ctx context.Context) (progress, error) {
	item, n, err := x.d.readNumber(ctx, x.key)
	if err != nil {
		return blind, err
	}
	if was, ok := n.recall(x.id); ok {
		x.answer = was
		return looked, nil
	}
	if x.unsure && n.forgets(x.newest, x.again) {
		return looked, final{&driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown,
			Err: errors.New("the engine did not answer, and has forgotten since whether it was done")}}
	}
	newest := n.newest(x.again)
	x.answer, err = x.alter(n, item.Revision != 0)
	if err == errNothing {
		return looked, nil
	}
	if err != nil {
		return looked, final{err}
	}
	x.answer.ID = x.id
	n.remember(x.answer, x.again)
	_, err = x.d.swap(ctx, x.key, item.Revision, n)
	if err != nil && !x.unsure && !errors.Is(err, driver.ErrConflict) {
		x.unsure, x.newest = true, newest
	}
	return sent, err
}

func (d *onStore) readNumber(ctx context.Context, key string) (driver.Item, *numberEntry, error) {
	item, err := d.get(ctx, key)
	if err != nil || item.Revision == 0 {
		return item, &numberEntry{}, err
	}
	item.Key = key
	n, err := decode[numberEntry](&item)
	if err != nil {
		return item, nil, final{err}
	}
	return item, n, nil
}

// Count changes a counter.
func (d *onStore) Count(ctx context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	answer, err := d.number(ctx, counterPrefix+r.Name, r.ID, r.Op == driver.CountLoad, !r.Once, func(n *numberEntry, exists bool) (done, error) {
		if exists && n.Unsigned != r.Unsigned {
			return done{}, driver.Errorf("", r.Name, driver.ErrConflict, "the counter is of the other sign: use Unsigned as its first user did")
		}
		n.Unsigned = r.Unsigned
		was := n.Value
		switch r.Op {
		case driver.CountLoad:
			return done{Value: n.Value}, errNothing
		case driver.CountAdd, driver.CountSub:
			n.Value = sum(n.Value, r.A, r.Op == driver.CountSub, r.Unsigned)
		case driver.CountStore:
			n.Value = r.A
		case driver.CountSwap:
			if n.Value != r.A {
				return done{Value: n.Value}, errNothing
			}
			n.Value = r.B
		}
		answer := done{Value: n.Value, Swap: r.Op == driver.CountSwap}
		if exists && n.Value == was {
			return answer, errNothing // watches would be told of a change
		}
		return answer, nil
	})
	return driver.CountReply{Value: answer.Value, Swapped: answer.Swap}, err
}

// sum adds or subtracts, stopping at the ends of the range.
func sum(v, a uint64, subtract, unsigned bool) uint64 {
	if !unsigned {
		return signedSum(int64(v), int64(a), subtract)
	}
	if subtract {
		return v - min(a, v)
	}
	return v + min(a, math.MaxUint64-v)
}

func signedSum(v, a int64, subtract bool) uint64 {
	s := v + a
	up := a >= 0
	if subtract {
		s, up = v-a, a < 0
	}
	switch {
	case up && s < v:
		s = math.MaxInt64
	case !up && s > v:
		s = math.MinInt64
	}
	return uint64(s)
}

// Reserve takes numbers of a sequence.
func (d *onStore) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	answer, err := d.number(ctx, sequencePrefix+r.Name, r.ID, r.N == 0, false, func(n *numberEntry, exists bool) (done, error) {
		if !exists {
			n.Value = max(r.Start, 1)
		}
		first := n.Value
		switch {
		case n.Ended:
			return done{}, driver.Errorf("", r.Name, driver.ErrExhausted, "all numbers of the sequence are taken: begin another")
		case r.N > 0 && r.N-1 > math.MaxUint64-first:
			return done{}, driver.Errorf("", r.Name, driver.ErrExhausted, "%d numbers from %d on are more than there are", r.N, first)
		case r.N == 0:
			return done{Value: first}, errNothing
		}
		n.Value = first + r.N
		n.Ended = n.Value == 0
		return done{Value: first}, nil
	})
	return driver.ReserveReply{First: answer.Value}, err
}

// Delete removes a counter, a sequence or a limiter. What the keys of a limiter used
// counts for no limiter that is made anew, and is swept.
func (d *onStore) Delete(ctx context.Context, kind driver.ResourceKind, name string) error {
	prefix := map[driver.ResourceKind]string{driver.Counter: counterPrefix, driver.Sequence: sequencePrefix, driver.Limiter: ratePrefix}[kind]
	if prefix == "" {
		return errors.ErrUnsupported
	}
	return d.call(ctx, func(ctx context.Context) error {
		tried := false
		return plain(retry(ctx, d.quickly(), func() (progress, error) {
			item, err := d.get(ctx, prefix+name)
			if err != nil {
				return blind, err
			}
			if item.Revision == 0 {
				return looked, gone(tried, name, kind)
			}
			tried = true
			_, err = d.remove(ctx, prefix+name, item.Revision)
			return sent, err
		}))
	})
}

// gone is nil if it may be our own request that removed it.
func gone(tried bool, name string, kind driver.ResourceKind) error {
	if tried {
		return nil
	}
	return final{driver.Errorf("", name, fs.ErrNotExist, "there is no such %s", kind)}
}
