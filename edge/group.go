package edge

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// Group decides by several limiters at once, as a minute's and a day's, or that of a
// region and that of all: all admit, or none takes anything.
type Group struct{ limiters []*Limiter }

// Group makes one of the node's limiters. A limit of a region is a limiter that only
// the nodes of the region open, by a name of its own.
func (n *Node) Group(limiters ...*Limiter) (*Group, error) {
	list := slices.Clone(limiters)
	if slices.Contains(list, nil) {
		return nil, invalid("a group has a limiter that is nil")
	}
	slices.SortFunc(list, func(a, b *Limiter) int { return a.id - b.id })
	if len(list) == 0 || len(slices.Compact(slices.Clone(list))) < len(list) {
		return nil, invalid("a group needs limiters, each once")
	}
	for _, l := range list {
		if l.node != n {
			return nil, invalid("the limiter %q is of another node", l.name)
		}
	}
	return &Group{list}, nil
}

// Allow is Take of 1 by the node's clock.
func (g *Group) Allow(ctx context.Context, key string) (limit.Decision, error) {
	return g.AllowN(ctx, key, 1)
}

// AllowN is Take by the node's clock.
func (g *Group) AllowN(_ context.Context, key string, n int64) (limit.Decision, error) {
	return g.Take(key, g.limiters[0].node.config.Now(), n)
}

// Take is [Limiter.Take] of all. The decision is that of the limiter that leaves least,
// or has to be waited for longest.
func (g *Group) Take(key string, now time.Time, cost int64) (limit.Decision, error) {
	if err := checkUse(key, now); err != nil {
		return limit.Decision{}, err
	}
	at := now.UnixNano()
	for _, l := range g.limiters { // always in the same order
		s := l.shard(key)
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	d := g.decide(key, at, cost)
	if d.Allowed && cost > 0 {
		if err := g.commit(key, at, cost); err != nil {
			return limit.Decision{}, err
		}
	}
	for _, l := range g.limiters {
		l.note(key, &d)
	}
	return d, nil
}

// decide asks all; their shards are locked.
func (g *Group) decide(key string, at, cost int64) (d limit.Decision) {
	for i, l := range g.limiters {
		e := l.shard(key).find(key)
		if e == nil {
			e = &entry{epoch: l.rule.epoch(at)}
		}
		epoch, at := l.present(e, l.rule.epoch(at), at)
		e.roll(&l.rule, epoch)
		var one limit.Decision
		e.decide(&l.rule, at, cost, &one)
		if i == 0 || stricter(&one, &d) {
			d = one
		}
	}
	return d
}

// stricter orders decisions: denials first, by how long they are for, and of others
// the one that leaves least.
func stricter(a, b *limit.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.Allowed:
		return a.Remaining < b.Remaining
	}
	return b.RetryAfter != limit.Never && (a.RetryAfter == limit.Never || a.RetryAfter > b.RetryAfter)
}

// commit takes from all, once there is room in all.
func (g *Group) commit(key string, at, cost int64) error {
	for _, l := range g.limiters {
		s := l.shard(key)
		if s.find(key) == nil && l.add(s, key, l.rule.epoch(at)) == nil {
			return l.full()
		}
	}
	for _, l := range g.limiters {
		s := l.shard(key)
		e := s.find(key)
		_, at := l.present(e, l.rule.epoch(at), at)
		l.commit(s, e, at, cost)
	}
	return nil
}
