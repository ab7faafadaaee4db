package client

import (
	"context"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
)

// Inspect tells who holds and who waits.
func (c *Client) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	if err := c.open(ctx); err != nil {
		return driver.InspectReply{}, err
	}
	return c.g.engine.Inspect(ctx, r)
}

// LeaseInfo tells what is known of a session, whoever's it is.
func (c *Client) LeaseInfo(ctx context.Context, id driver.LeaseID) (driver.LeaseInfo, error) {
	if err := c.open(ctx); err != nil {
		return driver.LeaseInfo{}, err
	}
	return c.g.engine.LeaseInfo(ctx, id)
}

// InspectMachine answers an Inspect from a machine, as of the cluster time now.
func InspectMachine(m *core.Machine, now int64, namespace string, r *driver.InspectRequest) driver.InspectReply {
	reply := driver.InspectReply{Revision: m.Revision()}
	var list []core.ResourceInfo
	if r.Prefix {
		list, reply.More = m.List(namespace, r.Name, r.After, r.Max)
	} else if one, ok := m.Inspect(namespace, r.Name); ok {
		list = append(list, one)
	}
	for i := range list {
		reply.Resources = append(reply.Resources, convert.Resource(now, &list[i]))
	}
	return reply
}

// LeaseOfMachine answers a LeaseInfo from a machine. Sessions of other namespaces
// are nobody's business.
func LeaseOfMachine(m *core.Machine, now int64, namespace string, id driver.LeaseID) (driver.LeaseInfo, error) {
	s, ok := m.Session(core.SessionID(id))
	if !ok || s.Namespace != namespace {
		return driver.LeaseInfo{}, driver.Errorf("", id.String(), fs.ErrNotExist, "no such session: it has ended, or is of another Space's backend")
	}
	return driver.LeaseInfo{
		ID: id, TTL: time.Duration(s.TTL), ExpiresIn: convert.Left(now, s.Deadline), Owner: s.Owner, Meta: s.Meta,
		Names: namesOf(s.Claims), Waits: namesOf(s.Waits), Keys: slices.Clone(s.Keys),
	}, nil
}

// namesOf are the names of claims, each once, in order.
func namesOf(claims []core.ClaimInfo) []string {
	var names []string
	for i := range claims {
		names = append(names, claims[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
