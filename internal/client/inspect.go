package client

import (
	"cmp"
	"context"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// Inspect lists holders and waiters.
func (c *Client) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	if err := c.open(ctx); err != nil {
		return driver.InspectReply{}, err
	}
	return c.g.engine.Inspect(ctx, r)
}

// SessionInfo tells what is known of a session of any client.
func (c *Client) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	if err := c.open(ctx); err != nil {
		return driver.SessionInfo{}, err
	}
	return c.g.engine.SessionInfo(ctx, r)
}

// InspectMachine answers an Inspect from a machine, as of the cluster time now.
func InspectMachine(m *core.Machine, now int64, namespace string, r *driver.InspectRequest) (driver.InspectReply, error) {
	reply := driver.InspectReply{Revision: driver.Revision(m.Revision())}
	if r.Prefix {
		var list []core.ResourceInfo
		list, reply.Next = m.List(namespace, r.Name, r.After, cmp.Or(max(r.Max, 0), core.MaxNames))
		for i := range list {
			reply.Resources = append(reply.Resources, convert.Resource(now, &list[i]))
		}
		return reply, nil
	}
	if len(r.Names) > 0 {
		var err error
		reply.Resources, err = severalOfMachine(m, now, namespace, r)
		return reply, err
	}
	after, err := core.ParseCursor(r.After, false)
	if err != nil {
		return driver.InspectReply{}, &driver.Error{Name: r.Name, Kind: fs.ErrInvalid, Outcome: driver.NotDone, Err: err}
	}
	if one, ok := m.InspectPage(namespace, r.Name, after, r.Max); ok {
		reply.Resources, reply.Next = []driver.Resource{convert.Resource(now, &one)}, one.Next.String()
	}
	return reply, nil
}

// firstClaims is how many claims of each of several names are told, so that an answer
// about a thousand names stays small: once it has fewBytes, only the first of each, since a name
// without a claim looks free; and one of more than mostBytes is refused, which a message of gRPC
// takes by default.
const (
	firstClaims = 10
	fewBytes    = 1 << 20
	mostBytes   = 3 << 20
)

func severalOfMachine(m *core.Machine, now int64, namespace string, r *driver.InspectRequest) (list []driver.Resource, err error) {
	size := 0
	for _, name := range r.Names {
		most := firstClaims
		if size >= fewBytes {
			most = 1
		}
		one, ok := m.InspectPage(namespace, name, core.Cursor{}, most)
		if !ok {
			continue
		}
		if size += sizeOf(&one); size > mostBytes {
			return nil, driver.Errorf("", "", driver.ErrExhausted, "the holders of %d names, the first of each, are more than %d bytes: ask for fewer at a time", len(r.Names), mostBytes)
		}
		list = append(list, convert.Resource(now, &one))
	}
	return list, nil
}

// sizeOf is about what a name takes of an answer.
func sizeOf(r *core.ResourceInfo) int {
	size := 128 + len(r.Name)
	for _, claims := range [][]core.ClaimInfo{r.Holders, r.Waiters} {
		for i := range claims {
			c := &claims[i]
			size += 128 + len(c.Name) + len(c.Owner) + len(c.Meta) + len(c.Value)
		}
	}
	return size
}

// SessionOfMachine answers a SessionInfo from a machine. Sessions of other namespaces
// are nobody's business.
func SessionOfMachine(m *core.Machine, now int64, namespace string, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	after, err := core.ParseCursor(r.After, true)
	if err != nil {
		return driver.SessionInfo{}, &driver.Error{Name: r.ID.String(), Kind: fs.ErrInvalid, Outcome: driver.NotDone, Err: err}
	}
	s, ok := m.SessionPage(core.SessionID(r.ID), after, r.Max)
	if !ok || s.Namespace != namespace {
		return driver.SessionInfo{}, driver.Errorf("", r.ID.String(), fs.ErrNotExist, "no such session: it has ended, or is of another Space's backend")
	}
	return driver.SessionInfo{
		ID: r.ID, TTL: time.Duration(s.TTL), ExpiresIn: convert.Left(now, s.Deadline), Owner: s.Owner, Meta: s.Meta,
		Names: namesOf(s.Claims), Waits: namesOf(s.Waits), Keys: s.Keys, Next: s.Next.String(),
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
