package memhold

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
)

// Inspect tells who holds and who waits.
func (c *client) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	now, err := c.begin(ctx)
	if err != nil {
		return driver.InspectReply{}, err
	}
	defer c.st.unlock()
	m := c.st.m
	reply := driver.InspectReply{Revision: m.Revision()}
	var list []core.ResourceInfo
	if r.Prefix {
		list, reply.More = m.List("", r.Name, r.After, r.Max)
	} else if one, ok := m.Inspect("", r.Name); ok {
		list = append(list, one)
	}
	for i := range list {
		reply.Resources = append(reply.Resources, resource(now, &list[i]))
	}
	return reply, nil
}

func resource(now int64, r *core.ResourceInfo) driver.Resource {
	return driver.Resource{
		Name: r.Name, Kind: driver.ResourceKind(r.Kind), Limit: r.Limit, Used: r.Used, Created: r.Created, Modified: r.Modified,
		Holders: claims(now, r.Holders), Waiters: claims(now, r.Waiters),
	}
}

func claims(now int64, infos []core.ClaimInfo) []driver.Claim {
	var list []driver.Claim
	for i := range infos {
		k := &infos[i]
		list = append(list, driver.Claim{
			Name: k.Name, Kind: driver.ResourceKind(k.Kind), Mode: driver.Mode(k.Mode), Weight: k.Weight, Token: k.Token,
			Owner: k.Owner, Meta: k.Meta, Lease: driver.LeaseID(k.Session), Value: slices.Clone(k.Value),
			Created: k.Created, Modified: k.Modified, Version: k.Version,
			Held: time.Duration(max(now-k.Since, 0)), ExpiresIn: left(now, k.Ends),
			Position: k.Position, Before: driver.LeaseID(k.Before), Revoked: k.Revoked, Stale: k.Stale,
		})
	}
	return list
}
