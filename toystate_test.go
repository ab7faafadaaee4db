package holdfast_test

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

func (t *toy) Inspect(_ context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls["inspect"]++
	reply := driver.InspectReply{Revision: driver.Revision(t.rev)}
	for _, name := range slices.Sorted(maps.Keys(t.names)) {
		if name != r.Name && !(r.Prefix && strings.HasPrefix(name, r.Name)) || r.Prefix && name <= r.After {
			continue
		}
		if n := len(reply.Resources); r.Prefix && n == 100 {
			reply.Next = reply.Resources[n-1].Name
			break
		}
		res := t.resource(name)
		if !r.Prefix {
			reply.Next = t.cutClaims(r.After, &res)
		}
		reply.Resources = append(reply.Resources, res)
	}
	return reply, nil
}

// cutClaims leaves of a resource the claims that one answer takes, from a place on,
// and is where the rest goes on.
func (t *toy) cutClaims(after string, res *driver.Resource) (next string) {
	from, _ := strconv.Atoi(after)
	all := slices.Concat(res.Holders, res.Waiters)
	end := len(all)
	if t.answer > 0 && from+t.answer < end {
		end = from + t.answer
		next, res.More = strconv.Itoa(end), true
	}
	n := len(res.Holders)
	res.Holding, res.Waiting = n, len(res.Waiters)
	res.Holders, res.Waiters = all[min(from, n):min(end, n)], all[max(from, n):max(end, n)]
	return next
}

func (t *toy) resource(name string) driver.Resource {
	n := t.names[name]
	res := driver.Resource{Name: name, Kind: n.kind, Limit: n.limit}
	for _, c := range n.holders {
		res.Holders = append(res.Holders, c.describe(name))
	}
	for i, c := range n.queue {
		w := c.describe(name)
		w.Position = i + 1
		res.Waiters = append(res.Waiters, w)
	}
	return res
}

func (t *toy) Force(_ context.Context, r *driver.ForceRequest) (driver.ForceReply, error) {
	t.mu.Lock()
	i := slices.IndexFunc(t.name(r.Name).holders, func(c *toyClaim) bool { return driver.Token(c.token) == r.Token })
	if i < 0 {
		t.mu.Unlock()
		return driver.ForceReply{}, driver.Errorf("", "", driver.ErrStale, "nobody holds it with the token %d", r.Token)
	}
	c := t.names[r.Name].holders[i]
	c.revoked = true
	if r.Now {
		t.drop(c)
	}
	t.mu.Unlock()
	c.lost(errors.New("forced"))
	return driver.ForceReply{Until: time.Second}, nil
}

func (t *toy) Resize(_ context.Context, name string, limit int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.name(name).kind, t.name(name).limit = driver.Semaphore, limit
	t.settle()
	return nil
}

func (t *toy) Delete(_ context.Context, kind driver.ResourceKind, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.names[name]; n != nil && len(n.holders) > 0 {
		return driver.ErrHeld
	}
	delete(t.names, name)
	delete(t.latches, name)
	if kind == driver.Counter {
		delete(t.counts, name)
	}
	if kind == driver.Sequence {
		delete(t.next, name)
	}
	return nil
}

func (t *toy) Count(_ context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	t.mu.Lock()
	t.calls["count"]++
	v := t.counts[r.Name]
	old := v
	switch _, again := t.counted[r.ID]; {
	case again:
	case r.Op == driver.CountAdd && r.Unsigned:
		v = max(v+r.A, v)
		if v < old || v < r.A {
			v = ^uint64(0)
		}
	case r.Op == driver.CountAdd:
		v += r.A
	case r.Op == driver.CountSub:
		v -= min(v, r.A)
	case r.Op == driver.CountStore, r.Op == driver.CountSwap && v == r.A:
		v = r.A
		if r.Op == driver.CountSwap {
			v = r.B
		}
	}
	t.counts[r.Name] = v
	t.counted[r.ID] = v
	t.mu.Unlock()
	if f := hook(t, &t.onCount); f != nil {
		if err := f(r); err != nil {
			return driver.CountReply{}, err
		}
	}
	return driver.CountReply{Value: v, Swapped: r.Op == driver.CountSwap && old == r.A}, nil
}

func (t *toy) value(name string) uint64 { t.mu.Lock(); defer t.mu.Unlock(); return t.counts[name] }

func (t *toy) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	t.call("reserve")
	if f := hook(t, &t.onReserve); f != nil {
		if err := f(ctx, r); err != nil {
			return driver.ReserveReply{}, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next[r.Name] == 0 {
		t.next[r.Name] = r.Start
	}
	first := t.next[r.Name]
	if first+r.N < first {
		return driver.ReserveReply{}, driver.Errorf("", "", driver.ErrExhausted, "%d numbers are left", -first)
	}
	t.next[r.Name] += r.N
	return driver.ReserveReply{First: first}, nil
}

func (t *toy) CountDown(_ context.Context, r *driver.CountDownRequest) (driver.CountDownReply, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left, known := t.latches[r.Name]
	if !known && r.Count == 0 {
		return driver.CountDownReply{}, fs.ErrNotExist
	}
	if !known {
		left = r.Count
	}
	t.latches[r.Name] = max(left-r.By, 0)
	t.settle()
	return driver.CountDownReply{Left: t.latches[r.Name]}, nil
}

func (t *toy) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		t.mu.Lock()
		t.calls["watch "+r.Glob]++
		at, more := len(t.log), t.more
		if r.From > 0 {
			at = slices.IndexFunc(t.log, func(ev driver.Event) bool { return ev.Revision >= r.From })
		}
		ready := driver.Event{Kind: driver.WatchKind, Verb: driver.VerbReady, Revision: driver.Revision(t.rev + 1)}
		log := t.log
		t.mu.Unlock()
		if !yield(ready, nil) {
			return
		}
		for {
			for ; at < len(log); at++ {
				if match(r, log[at]) && !yield(log[at], nil) {
					return
				}
			}
			select {
			case <-more:
			case <-ctx.Done():
				yield(driver.Event{}, ctx.Err())
				return
			}
			t.mu.Lock()
			log, more = t.log, t.more
			t.mu.Unlock()
		}
	}
}

func match(r *driver.WatchRequest, ev driver.Event) bool {
	return ev.Name == r.Prefix || !r.Exact && strings.HasPrefix(ev.Name, r.Prefix)
}
