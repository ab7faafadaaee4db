package memhold

import (
	"context"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
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
		reply.Resources = append(reply.Resources, convert.Resource(now, &list[i]))
	}
	return reply, nil
}
