package gather

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/limit"
)

// coordination reads a Space, and is woken by its events.
type coordination struct {
	space *holdfast.Space
	now   func() time.Time

	mu sync.Mutex
	// prefix is what the watch tells of; again ends it, so that it begins anew with a
	// wider one.
	prefix string
	again  context.CancelFunc
}

// Find reads all names that can be held at one revision, where the backend can; elsewhere
// each has that of its own last change.
func (c *coordination) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	names := map[string]bool{}
	for _, in := range inputs {
		switch in.Source {
		case guard.SourceLock, guard.SourceSemaphore, guard.SourceElection:
			names[in.Name] = true
		}
	}
	found, failed := c.inspect(ctx, slices.Sorted(maps.Keys(names)))
	return each(ctx, inputs, func(ctx context.Context, in guard.Input) (guard.Fact, error) {
		switch in.Source {
		case guard.SourceCounter:
			n, err := c.space.Counter(in.Name).Load(ctx)
			return guard.Fact{Number: n, From: "the counter"}, err
		case guard.SourceKey:
			return c.key(ctx, in.Name)
		case guard.SourceLimit:
			d, err := c.space.Limiter(in.Name, limit.Rate{}).Peek(ctx, in.Other, 0)
			return guard.Fact{Number: d.Remaining, Total: d.Limit, From: "the limiter"}, err
		}
		if err := failed[in.Name]; err != nil {
			return guard.Fact{}, err
		}
		return c.fact(in, found[in.Name])
	})
}

// read is a resource with the revision at which it was read.
type read struct {
	holdfast.Resource
	at holdfast.Revision
}

// inspect reads names, up to a thousand in one step where the backend can. If that fails each is
// read alone, so that one bad name is an error of its own; so is a lock of more readers than are
// told in that step, since a condition may ask for any of them.
func (c *coordination) inspect(ctx context.Context, names []string) (found map[string]read, failed map[string]error) {
	const atOnce = 1000
	found, failed = map[string]read{}, map[string]error{}
	if len(names) > 1 && !c.space.Info().Features[driver.FeatureAtomicAll] {
		return c.inspectEach(ctx, names)
	}
	for list := range slices.Chunk(names, atOnce) {
		all, at, err := c.space.InspectAll(ctx, list...)
		alone := list
		if err == nil {
			alone = nil
		}
		for i, r := range all {
			if found[list[i]] = (read{r, max(at, r.Modified)}); r.More && r.Kind == driver.RWMutex {
				alone = append(alone, list[i])
			}
		}
		some, why := c.inspectEach(ctx, alone)
		maps.Copy(found, some)
		maps.Copy(failed, why)
	}
	return found, failed
}

// inspectEach reads each name alone, some at a time: one after the other, many would take longer
// than they may.
func (c *coordination) inspectEach(ctx context.Context, names []string) (found map[string]read, failed map[string]error) {
	found, failed = map[string]read{}, map[string]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	places := make(chan struct{}, 8)
	for _, name := range names {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			r, err := c.space.Inspect(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			found[name], failed[name] = read{r, r.Modified}, err
		})
	}
	all.Wait()
	return found, failed
}

func (c *coordination) fact(in guard.Input, r read) (guard.Fact, error) {
	f := guard.Fact{From: "Inspect", Revision: uint64(r.at)}
	switch in.Source {
	case guard.SourceSemaphore:
		return c.semaphore(f, &r.Resource)
	case guard.SourceElection:
		return c.held(f, &r.Resource, driver.Election)
	}
	return c.held(f, &r.Resource, driver.Mutex, driver.RWMutex)
}

func (c *coordination) key(ctx context.Context, key string) (guard.Fact, error) {
	e, err := c.space.KV().Get(ctx, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return guard.Fact{From: "the key"}, nil
	}
	return guard.Fact{Is: err == nil, Text: string(e.Value), Revision: uint64(e.Modified), From: "the key"}, err
}

// held is the fact of a lock or an election. A name that nobody holds may be unknown; one
// of another kind is a mistake of the condition.
func (c *coordination) held(f guard.Fact, r *holdfast.Resource, kinds ...driver.ResourceKind) (guard.Fact, error) {
	if err := isOf(r, kinds...); err != nil {
		return f, err
	}
	if len(r.Holders) > 0 {
		first := &r.Holders[0]
		f.Is, f.Text, f.Since = true, first.Owner, c.now().Add(-first.Held)
		for i := range r.Holders[1:] {
			f.Others = append(f.Others, r.Holders[i+1].Owner)
		}
		if first.Stale {
			f.From = "Inspect; the holder is stale"
		}
	}
	return f, nil
}

func (c *coordination) semaphore(f guard.Fact, r *holdfast.Resource) (guard.Fact, error) {
	f.Unused, f.Number, f.Total = r.Kind == 0, r.Limit-r.Used, r.Limit
	return f, isOf(r, driver.Semaphore)
}

func isOf(r *holdfast.Resource, kinds ...driver.ResourceKind) error {
	if r.Kind == 0 {
		return nil
	}
	for _, k := range kinds {
		if r.Kind == k {
			return nil
		}
	}
	return fmt.Errorf("%q is a %s", r.Name, r.Kind)
}

// Follow is not used: the hub calls follow.
func (c *coordination) Follow(ctx context.Context, _ func() []guard.Input, _ func(...guard.Input)) {
	<-ctx.Done()
}

// widen begins the watch anew if it does not tell of everything that a new interest wants.
func (c *coordination) widen(h *hub, i *Interest) {
	names := c.namesOf(h, i)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again != nil && slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, c.prefix) }) {
		c.again()
	}
}

// namesOf are the names that an interest wants, or what they begin with.
func (c *coordination) namesOf(h *hub, i *Interest) (names []string) {
	for _, in := range i.Inputs {
		if h.g.sources[in.Source] == Source(c) {
			names = append(names, in.Name)
		}
	}
	features := c.space.Info().Features
	for _, p := range i.Events {
		names = append(names, p.prefixes(features)...)
	}
	return names
}

// prefixOf is what all names that are wanted begin with.
func (c *coordination) prefixOf(h *hub) string {
	var all []string
	for _, in := range h.of(c) {
		all = append(all, in.Name)
	}
	features := c.space.Info().Features
	h.mu.Lock()
	for i := range h.events {
		for _, p := range i.Events {
			all = append(all, p.prefixes(features)...)
		}
	}
	h.mu.Unlock()
	return common(all)
}

func common(all []string) string {
	if len(all) == 0 {
		return ""
	}
	p := all[0]
	for _, s := range all[1:] {
		for !strings.HasPrefix(s, p) {
			p = p[:len(p)-1]
		}
	}
	return strings.ToValidUTF8(p, "")
}

// follow watches until ctx ends. Each time that a watch begins, everything may have
// changed before it.
func (c *coordination) follow(ctx context.Context, h *hub) {
	var counters sync.WaitGroup
	defer counters.Wait()
	if !c.space.Info().Features[driver.FeatureHistory] {
		counters.Go(func() { c.pollCounters(ctx, h) })
	}
	for pause := time.Duration(0); ctx.Err() == nil; {
		during, again := context.WithCancel(ctx)
		err := c.watch(during, h, c.begin(ctx, h, again), &pause)
		again()
		if err != nil {
			pause = min(max(2*pause, 50*time.Millisecond), 5*time.Second)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

// begin notes a watch that begins, and is its prefix: both at once, so that widen sees a watch with the
// prefix that it has. One that is over already is not noted: the next may have begun.
func (c *coordination) begin(ctx context.Context, h *hub, again context.CancelFunc) (prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if prefix = c.prefixOf(h); ctx.Err() == nil {
		c.again, c.prefix = again, prefix
	}
	return prefix
}

// pollCounters looks at counters every second: only our own engine tells of them.
func (c *coordination) pollCounters(ctx context.Context, h *hub) {
	poll(ctx, time.Second, func() []guard.Input {
		return slices.DeleteFunc(h.of(c), func(in guard.Input) bool { return in.Source != guard.SourceCounter })
	}, h.changed)
}

// watch tells the hub what happens, until the watch breaks or is begun anew.
func (c *coordination) watch(ctx context.Context, h *hub, prefix string, pause *time.Duration) error {
	for e, err := range c.space.Watch(ctx, prefix, 0) {
		if err != nil {
			return err
		}
		switch {
		case e.Kind == "watch": // ready or resync
			*pause = 0
			h.changed(h.of(c)...)
			h.happened(nil)
		case quiet[e.Verb]:
			h.happened(&e)
		default:
			h.changed(c.inputsOf(&e, h)...)
			h.happened(&e)
		}
	}
	return nil
}

// quiet are the verbs after which every fact is as before.
var quiet = map[string]bool{"denied": true, "queued": true, "stale": true, "extended": true, "revoked": true}

// inputsOf are the inputs that an event touches. That of a limiter touches all its keys.
func (c *coordination) inputsOf(e *holdfast.Event, h *hub) []guard.Input {
	switch e.Kind {
	case "limit":
		return slices.DeleteFunc(h.of(c), func(in guard.Input) bool { return in.Source != guard.SourceLimit || in.Name != e.Name })
	case "lock", "rwlock":
		return []guard.Input{{Source: guard.SourceLock, Name: e.Name}}
	case "semaphore":
		return []guard.Input{{Source: guard.SourceSemaphore, Name: e.Name}}
	case "election":
		return []guard.Input{{Source: guard.SourceElection, Name: e.Name}}
	case "counter":
		return []guard.Input{{Source: guard.SourceCounter, Name: e.Name}}
	case "kv":
		return []guard.Input{{Source: guard.SourceKey, Name: e.Name}}
	}
	return nil
}
