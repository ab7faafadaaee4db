package world

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
)

// limit is that of every semaphore.
const limit = 3

func (g *gopher) acquire(ctx context.Context, x want) (*holding, error) {
	switch x.kind {
	case reader, writer:
		return g.acquireRW(ctx, x)
	case semaphore:
		m := g.s.Semaphore(x.name, limit)
		do := m.Acquire
		if x.try {
			do = m.TryAcquire
		}
		h, err := do(ctx, 1)
		return holdingOf(h), err
	case election:
		return g.campaign(ctx, x)
	}
	h, err := acquireBy(ctx, g.s.Mutex(x.name, holdfast.MaxHold(time.Minute)), x.try)
	return holdingOf(h), err
}

func acquireBy(ctx context.Context, m *holdfast.Mutex, try bool) (*holdfast.Hold, error) {
	if try {
		return m.TryAcquire(ctx)
	}
	return m.Acquire(ctx)
}

func (g *gopher) acquireRW(ctx context.Context, x want) (*holding, error) {
	m := g.s.RWMutex(x.name)
	if x.kind == reader {
		h, err := acquireBy(ctx, m.Reader(), x.try)
		r := holdingOf(h)
		if r != nil {
			r.upgrade = func(ctx context.Context) (*holding, error) {
				w, err := m.Upgrade(ctx, h)
				return holdingOf(w), err
			}
		}
		return r, err
	}
	h, err := acquireBy(ctx, m.Writer(), x.try)
	w := holdingOf(h)
	if w != nil {
		w.downgrade = func(ctx context.Context) error {
			r, err := m.Downgrade(ctx, h)
			if err == nil {
				w.release = func(context.Context) error { return r.Release() }
			}
			return err
		}
	}
	return w, err
}

func (g *gopher) campaign(ctx context.Context, x want) (*holding, error) {
	e := g.s.Election(x.name)
	do := e.Campaign
	if x.try {
		do = e.TryCampaign
	}
	l, err := do(ctx, []byte("first"))
	if err != nil {
		return nil, err
	}
	r := holdingOf(l.Hold)
	r.proclaim = func(ctx context.Context, value string) error { return l.Proclaim(ctx, []byte(value)) }
	r.handOver = l.HandOver
	return r, nil
}

// holdingOf is a hold of the Go API.
func holdingOf(h *holdfast.Hold) *holding {
	if h == nil {
		return nil
	}
	return &holding{
		token: uint64(h.Token()),
		holds: func() bool {
			d, ok := h.Deadline()
			return h.Err() == nil && (!ok || time.Now().Before(d))
		},
		release: func(context.Context) error { return h.Release() },
		extend:  func(ctx context.Context) error { return h.Extend(ctx, 2*time.Minute) },
	}
}

func (g *gopher) put(ctx context.Context, name, value, _ string) error {
	_, err := g.s.KV().Put(ctx, name, []byte(value))
	return err
}

func (g *gopher) set(ctx context.Context, name string, value int64) error {
	return g.s.Counter(name).Store(ctx, value)
}

func (g *gopher) swap(ctx context.Context, name string, old, value int64) (bool, error) {
	return g.s.Counter(name).CompareAndSwap(ctx, old, value)
}

func (g *gopher) reserve(ctx context.Context, name string, n uint64) (uint64, error) {
	return g.s.Sequence(name).Reserve(ctx, n)
}

func (g *gopher) countDown(ctx context.Context, name string, count int64) error {
	_, err := g.s.Latch(name, count).CountDown(ctx, 1)
	return err
}

func (g *gopher) open(ctx context.Context, name string, count int64) error {
	return g.s.Latch(name, count).Wait(ctx)
}

func (g *gopher) arrive(ctx context.Context, name string, parties int64) error {
	return g.s.Barrier(name, parties).Wait(ctx)
}

// several takes several names at once.
func (k *worker) several(g *gopher) {
	a, b := fmt.Sprintf("lock/%d", k.rng.IntN(2)), "lock/2"
	c := k.w.begin("go", "acquire all", a+" "+b, k.limit())
	h, err := g.s.AcquireAll(c.ctx, g.s.Mutex(a).Want(), g.s.Mutex(b).Want())
	if c.answered(err) != done {
		return
	}
	x := holdingOf(h)
	beliefs := map[string]*belief{}
	for _, name := range []string{a, b} {
		beliefs[name] = &belief{owner: k.party.String(), token: uint64(h.TokenOf(name)), exclusive: true, holds: x.holds}
		k.w.ledger.believe("default/"+name, beliefs[name])
	}
	_ = sleep(k.w.ctx, k.between(0, time.Second))
	for name, b := range beliefs {
		k.w.ledger.doubt("default/"+name, b)
	}
	c = k.w.begin("go", "release all", a+" "+b, 30*time.Second)
	c.answered(h.Release())
}

// buffered counts in the process. What it was told to count is counted once when it
// says so, however often it had to try.
func (k *worker) buffered(g *gopher) {
	first := k.w.tally.reserve("buffered", 1)
	b := g.s.Counter(first.counter).Buffered(1<<62, time.Hour)
	c := k.w.begin("go", "buffered add", first.counter, 0)
	first.call = c
	err := b.Add(first.amount())
	f := k.w.begin("go", "flush", first.counter, k.between(time.Millisecond, 4*time.Second))
	_, flush := b.Flush(f.ctx)
	f.answered(flush)
	for err == nil {
		if err = b.Close(); err == nil {
			break
		}
		k.w.count("buffered again")
		if k.chance(0.05) {
			break
		}
		err = nil
		time.Sleep(k.between(time.Millisecond, 3*time.Second))
	}
	k.w.tally.settle(first, c.answered(err), 0, false, err)
}

// laden opens a session, hangs very many keys on it and ends it.
func (k *worker) laden(g *gopher) {
	c := k.w.begin("go", "open session", "", 30*time.Second)
	s, err := g.s.Session(c.ctx, holdfast.TTL(k.ttl()))
	if c.answered(err) != done {
		return
	}
	n, id := 20+k.rng.IntN(300), k.w.marks.unique()
	for at := 0; at < n && err == nil; {
		var t holdfast.Txn
		for range min(100, n-at) {
			t.Then = append(t.Then, holdfast.PutOp(fmt.Sprintf("kv/laden-%d/%06d", id, at), []byte("x"), holdfast.Under(s)))
			at++
		}
		c := k.w.begin("go", "txn", "kv/laden", 30*time.Second)
		_, err = g.s.KV().Txn(c.ctx, t)
		c.answered(err)
	}
	if k.chance(0.5) {
		c = k.w.begin("go", "keep session", "", 10*time.Second)
		c.answered(s.Keep(c.ctx))
	}
	c = k.w.begin("go", "revoke session", "", 30*time.Second)
	c.answered(s.Revoke())
}

// force ends the hold of another, of which no client is judged by its belief.
func (k *worker) force(g *gopher) {
	name := "forced/0"
	c := k.w.begin("go", "lock", name, k.limit())
	h, err := g.s.Mutex(name).Acquire(c.ctx)
	if c.answered(err) == done {
		_ = sleep(k.w.ctx, k.between(0, 2*time.Second))
		if k.chance(0.5) {
			_ = h.Release()
			return
		}
		c = k.w.begin("go", "force release", name, 20*time.Second)
		_, err = g.s.ForceRelease(c.ctx, name, h.Token())
		c.answered(err)
		_ = h.Release()
	}
}
