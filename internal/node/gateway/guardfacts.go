package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// maxFacts is how many keys one condition may ask for; their values share the bound
// of a transaction, and how many limiters.
const maxFacts = 128

// How many holders of all locks of a condition are read: of those by which a leaf decides, and of
// the others, which are only counted in the reasons. The loop of the node stands meanwhile.
const (
	maxHolders  = 10_000
	moreHolders = 1000
)

// find finds out what the node can, at one revision; nothing of it is a command. inputs are those
// of when.
func (g *Gateway) find(ctx context.Context, when *guard.Condition, inputs []guard.Input) (guard.Inputs, uint64, error) {
	facts, revision := guard.Inputs{}, uint64(0)
	by := map[guard.Source][]guard.Input{}
	for _, in := range inputs {
		by[in.Source] = append(by[in.Source], in)
	}
	if n := max(len(by[guard.SourceKey]), len(by[guard.SourceLimit])); n > maxFacts {
		return nil, 0, Invalid("", "the condition asks for %d keys or limiters: at most %d of each are allowed", n, maxFacts)
	}
	asked, failed := askedHolders(when, map[string]bool{}), error(nil)
	err := g.look(ctx, func(m *core.Machine, now int64) {
		v := view{m: m, ns: callerOf(ctx).namespace, now: now, facts: facts, asked: asked, left: maxHolders, spare: moreHolders}
		revision, failed = m.Revision(), v.keys(by[guard.SourceKey])
		for _, in := range inputs {
			v.read(in)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, 0, err
	}
	for _, in := range by[guard.SourceClock] {
		facts[in] = guard.Fact{Number: time.Now().UnixNano(), From: "the clock of the node"}
	}
	return facts, revision, nil
}

// view reads facts from the machine at one revision.
type view struct {
	m     *core.Machine
	ns    string
	now   int64
	facts guard.Inputs
	// asked are the locks of which a leaf asks for a holder; left and spare is how many holders may
	// still be read, of those and of the others.
	asked       map[string]bool
	left, spare int
}

// askedHolders adds the locks of which a condition asks for a holder.
func askedHolders(c *guard.Condition, names map[string]bool) map[string]bool {
	if c.Kind == guard.KindLockHeldBy {
		names[c.Name] = true
	}
	for i := range c.Of {
		askedHolders(&c.Of[i], names)
	}
	return names
}

// read finds out about a name.
func (v *view) read(in guard.Input) {
	var f guard.Fact
	var err error
	switch in.Source {
	case guard.SourceLock:
		f, err = v.held(in.Name, core.Mutex, core.RWMutex)
	case guard.SourceElection:
		f, err = v.held(in.Name, core.Election)
	case guard.SourceSemaphore:
		f, err = v.semaphore(in.Name)
	case guard.SourceCounter:
		f, err = v.counter(in.Name)
	case guard.SourceLimit:
		f, err = v.limit(in)
	default:
		return
	}
	if f.Revision = v.m.Revision(); err != nil {
		f.Err = err.Error()
	}
	v.facts[in] = f
}

// resource is a name that can be held, with its first holder; the condition was checked, and its names with it.
func (v *view) resource(name string, kinds ...core.Kind) (r core.ResourceInfo, known bool, err error) {
	r, known = v.m.InspectPage(v.ns, name, core.Cursor{}, 1)
	for _, k := range kinds {
		if !known || r.Kind == k {
			return r, known, nil
		}
	}
	return r, known, fmt.Errorf("%q is a %s", name, r.Kind)
}

func (v *view) held(name string, kinds ...core.Kind) (guard.Fact, error) {
	f := guard.Fact{From: "the node"}
	r, _, err := v.resource(name, kinds...)
	if err != nil || len(r.Holders) == 0 {
		return f, err
	}
	first := convert.Claims(v.now, r.Holders[:1])[0]
	f.Is, f.Text, f.Since = true, first.Owner, time.Now().Add(-first.Held)
	f.Others, err = v.others(&r)
	if first.Stale {
		f.From = "the node; the holder is stale"
	}
	return f, err
}

// others are the owners of all holders of a name but the first, with which it was read: of a lock
// with several readers a condition may ask for any. Of one with too many none are read, which is
// an error if a leaf asks.
func (v *view) others(r *core.ResourceInfo) (owners []string, err error) {
	left := &v.spare
	if v.asked[r.Name] {
		left = &v.left
	}
	if r.Holding > *left {
		if v.asked[r.Name] {
			err = fmt.Errorf("%q has %d holders: at most %d of the locks of a condition are looked through for one", r.Name, r.Holding, maxHolders)
		}
		return nil, err
	}
	*left -= r.Holding
	for after := r.Next; len(owners) < r.Holding-1 && after != (core.Cursor{}); {
		page, _ := v.m.InspectPage(v.ns, r.Name, after, r.Holding-1-len(owners))
		for i := range page.Holders {
			owners = append(owners, page.Holders[i].Owner)
		}
		after = page.Next
	}
	return owners, nil
}

func (v *view) semaphore(name string) (guard.Fact, error) {
	r, known, err := v.resource(name, core.Semaphore)
	return guard.Fact{Unused: !known, Number: r.Limit - r.Used, Total: r.Limit, From: "the node"}, err
}

func (v *view) counter(name string) (guard.Fact, error) {
	r := v.m.Read(v.ns, &core.Command{Op: core.OpCount, Count: core.CountLoad, Name: name})
	if r.Code != core.CodeOK {
		return guard.Fact{}, errors.New(r.Text)
	}
	return guard.Fact{Number: int64(r.Number), From: "the counter"}, nil
}

// limit is what a limiter has left for a key.
func (v *view) limit(in guard.Input) (guard.Fact, error) {
	r := driver.LimitRequest{Name: in.Name, Key: in.Other, Op: driver.LimitPeek}
	if e, bad := errors.AsType[*driver.Error](checkAsk(&r)); bad {
		return guard.Fact{}, e.Err
	}
	res := v.m.Peek(v.ns, &core.Command{Op: core.OpLimit, Name: in.Name, Ask: convert.Ask(&r)}, v.now)
	if res.Code != core.CodeOK {
		return guard.Fact{}, errors.New(res.Text)
	}
	d := convert.LimitReply(&r, res.Limit).Decision
	return guard.Fact{Number: d.Remaining, Total: d.Limit, From: "the limiter"}, nil
}

// keys reads all keys, or says that they are too much to read.
func (v *view) keys(inputs []guard.Input) error {
	if len(inputs) == 0 {
		return nil
	}
	c := core.Command{Op: core.OpTxn}
	for _, in := range inputs {
		c.Then = append(c.Then, core.KeyOp{Kind: core.KeyGet, Key: in.Name})
	}
	r := v.m.Read(v.ns, &c)
	if err := refusal(&r, v.now, nil); err != nil {
		return err
	}
	for i, in := range inputs {
		f := guard.Fact{Revision: r.Revision, From: "the key"}
		for _, k := range r.Keys[i].Keys {
			f.Is, f.Text = true, string(k.Value)
		}
		v.facts[in] = f
	}
	return nil
}
