package onstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

// Inspect lists the holders of a lock, and the waiters for it in this process.
func (d *onStore) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	var reply driver.InspectReply
	err := d.locks(ctx, r, func(item *driver.Item) error {
		name := strings.TrimPrefix(item.Key, lockPrefix)
		reply.Revision = max(reply.Revision, item.Revision)
		if r.Prefix && name <= r.After && r.After != "" {
			return nil
		}
		e, err := decode[lockEntry](item)
		if err != nil {
			return err
		}
		if res := d.resource(name, item, e); len(res.Holders)+len(res.Waiters) > 0 {
			reply.Resources = append(reply.Resources, res)
		}
		return nil
	})
	slices.SortFunc(reply.Resources, func(a, b driver.Resource) int { return cmp.Compare(a.Name, b.Name) })
	if r.Prefix && r.Max > 0 && len(reply.Resources) > r.Max {
		reply.Resources = reply.Resources[:r.Max]
		reply.Next = reply.Resources[r.Max-1].Name
	}
	return reply, err
}

// locks calls f for every lock that a request asks for.
func (d *onStore) locks(ctx context.Context, r *driver.InspectRequest, f func(*driver.Item) error) error {
	if r.Prefix {
		return d.list(ctx, lockPrefix+r.Name, f)
	}
	return d.call(ctx, func(ctx context.Context) error {
		var item driver.Item
		err := retry(ctx, d.quickly(), func() (_ progress, err error) {
			item, err = d.get(ctx, lockPrefix+r.Name)
			return looked, err
		})
		if err != nil || item.Revision == 0 {
			return plain(err)
		}
		item.Key = lockPrefix + r.Name
		return f(&item)
	})
}

func (d *onStore) resource(name string, item *driver.Item, e *lockEntry) driver.Resource {
	r := driver.Resource{Name: name, Kind: driver.Mutex, Limit: 1, Modified: item.Revision}
	if d.timeLeft(item, e) > 0 {
		r.Used, r.Holders = 1, []driver.Claim{d.holder(name, item, e)}
	}
	for i, id := range d.line.Waiting(name) {
		if c, ok := d.line.claims.Load(id); ok {
			claim := c.(driver.Claim)
			claim.Position = i + 1
			r.Waiters = append(r.Waiters, claim)
		}
	}
	r.Holding, r.Waiting = len(r.Holders), len(r.Waiters)
	return r
}
