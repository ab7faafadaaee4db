package filehold

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// ask runs a command that hangs on no session and returns when it is on disk.
func (c *client) ask(ctx context.Context, cmd core.Command) (*order, error) {
	ctx, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer c.end()
	o, err := c.write(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return o, c.e.flush(ctx, o.end)
}

// write has a command take effect for everybody. It is not on disk yet.
func (c *client) write(ctx context.Context, cmd core.Command) (*order, error) {
	o := &order{cmd: cmd}
	if err := c.e.plain.submit(ctx, o, nil); err != nil {
		return nil, err
	}
	return o, refusalOf(o)
}

// read answers a command that changes nothing.
func (c *client) read(ctx context.Context, cmd core.Command) (*order, error) {
	ctx, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer c.end()
	o := &order{cmd: cmd}
	err = c.e.look(ctx, func() { o.result, o.now = c.e.m.Read("", &o.cmd), c.e.now() })
	if err != nil {
		return nil, err
	}
	return o, refusalOf(o)
}

// Resize sets a semaphore's limit.
func (c *client) Resize(ctx context.Context, name string, limit int64) error {
	_, err := c.ask(ctx, core.Command{Op: core.OpResize, Name: name, Limit: limit})
	return err
}

// Delete removes an idle object.
func (c *client) Delete(ctx context.Context, kind driver.ResourceKind, name string) error {
	_, err := c.ask(ctx, core.Command{Op: core.OpDelete, Kind: core.Kind(kind), Name: name})
	if errors.Is(err, driver.ErrConflict) {
		return convert.InUse(ctx, c, kind, name, err)
	}
	return err
}

// Count changes a counter. One that its caller may ask for again is counted once.
func (c *client) Count(ctx context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	do := c.ask
	switch {
	case r.Op == driver.CountLoad:
		do = c.read
	case !r.Once && r.ID != [16]byte{}:
		do = func(ctx context.Context, cmd core.Command) (*order, error) { return c.askOnce(ctx, r.ID, cmd) }
	}
	o, err := do(ctx, core.Command{Op: core.OpCount, Name: r.Name, Count: core.CountOp(r.Op), Unsigned: r.Unsigned, A: r.A, B: r.B})
	if err != nil {
		return driver.CountReply{}, err
	}
	return driver.CountReply{Value: o.result.Number, Swapped: o.result.OK}, nil
}

// Reserve takes numbers of a sequence.
func (c *client) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	do := c.ask
	if r.N == 0 {
		do = c.read
	}
	o, err := do(ctx, core.Command{Op: core.OpReserve, Name: r.Name, A: r.N, B: r.Start})
	if err != nil {
		return driver.ReserveReply{}, err
	}
	return driver.ReserveReply{First: o.result.Number}, nil
}

// CountDown takes something off a latch.
func (c *client) CountDown(ctx context.Context, r *driver.CountDownRequest) (driver.CountDownReply, error) {
	do := c.ask
	if r.By == 0 && r.Count == 0 {
		do = c.read
	}
	o, err := do(ctx, core.Command{Op: core.OpCountDown, Name: r.Name, A: uint64(r.By), Limit: r.Count})
	if err != nil {
		return driver.CountDownReply{}, err
	}
	return driver.CountDownReply{Left: int64(o.result.Number)}, nil
}

// Limit asks a limiter. To look needs the time too, and so an entry.
func (c *client) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	o, err := c.ask(ctx, core.Command{Op: core.OpLimit, Name: r.Name, Ask: convert.Ask(r)})
	if err != nil {
		return driver.LimitReply{}, err
	}
	return convert.LimitReply(r, o.result.Limit), nil
}

// Txn runs a transaction.
func (c *client) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	do := c.ask
	if !writes(r.Then) && !writes(r.Else) {
		do = c.read
	}
	o, err := do(ctx, core.Command{Op: core.OpTxn, If: convert.Compares(r.If), Then: convert.KeyOps(r.Then), Else: convert.KeyOps(r.Else)})
	if err != nil {
		return nil, err
	}
	return &driver.TxnReply{OK: o.result.OK, Revision: driver.Revision(o.result.Revision), Results: convert.Results(o.now, o.result.Keys)}, nil
}

func writes(ops []driver.Op) bool {
	return slices.ContainsFunc(ops, func(o driver.Op) bool { return o.Kind != driver.OpGet })
}

// Inspect lists holders and waiters.
func (c *client) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	ctx, err := c.begin(ctx)
	if err != nil {
		return driver.InspectReply{}, err
	}
	defer c.end()
	wanted := func(name string) bool { return name == r.Name }
	if r.Prefix {
		wanted = func(name string) bool { return strings.HasPrefix(name, r.Name) && name > r.After }
	}
	files, err := c.e.slotsOf(ctx, wanted)
	if err != nil {
		return driver.InspectReply{}, err
	}
	reply := driver.InspectReply{Resources: locks(c.e.now(), files)}
	if r.Prefix {
		err = c.e.list(ctx, r, &reply)
	} else {
		err = c.e.inspect(ctx, r, &reply)
	}
	return reply, err
}

// list adds the names that the machine knows, all of them if there is no Max: the
// files of all processes were read for it already.
func (e *engine) list(ctx context.Context, r *driver.InspectRequest, reply *driver.InspectReply) error {
	rest, known := r.After, 0
	for more := true; more; more = rest != "" && (r.Max <= 0 || known < r.Max) {
		err := e.look(ctx, func() {
			var page []core.ResourceInfo
			page, rest = e.m.List("", r.Name, rest, core.MaxNames)
			for i := range page {
				reply.Resources = append(reply.Resources, resource(e.now(), &page[i]))
			}
			known += len(page)
			reply.Revision = driver.Revision(e.m.Revision())
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(reply.Resources, func(a, b driver.Resource) int { return strings.Compare(a.Name, b.Name) })
	if n := len(reply.Resources); r.Max > 0 && (n > r.Max || n == r.Max && rest != "") {
		reply.Resources = reply.Resources[:r.Max]
		reply.Next = reply.Resources[r.Max-1].Name
	}
	return nil
}

// inspect tells what the machine knows of a name that is no lock file's.
func (e *engine) inspect(ctx context.Context, r *driver.InspectRequest, reply *driver.InspectReply) error {
	after, err := core.ParseCursor(r.After, false)
	if err != nil {
		return &driver.Error{Name: r.Name, Kind: fs.ErrInvalid, Outcome: driver.NotDone, Err: err}
	}
	return e.look(ctx, func() {
		reply.Revision = driver.Revision(e.m.Revision())
		if one, ok := e.m.InspectPage("", r.Name, after, r.Max); ok && len(reply.Resources) == 0 {
			reply.Resources, reply.Next = []driver.Resource{resource(e.now(), &one)}, one.Next.String()
		}
	})
}

// locks are the lock files among slots, each with its holders and waiters.
func locks(now int64, files []found) []driver.Resource {
	byName := map[string]*driver.Resource{}
	for i := range files {
		f := &files[i]
		r := byName[f.name]
		if r == nil {
			r = &driver.Resource{Name: f.name, Kind: driver.ResourceKind(f.kind)}
			byName[f.name] = r
		}
		k := f.claim(now)
		if f.state == slotHolds {
			r.Holders = append(r.Holders, k)
			r.Holding++
			r.Used++
			continue
		}
		r.Waiting++
		k.Position = r.Waiting
		r.Waiters = append(r.Waiters, k)
	}
	var list []driver.Resource
	for _, r := range byName {
		list = append(list, *r)
	}
	return list
}
