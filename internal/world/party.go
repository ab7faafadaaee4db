package world

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/remote"
)

// party is a program on a machine of its own, which uses the group in one protocol.
type party struct {
	w   *World
	id  uint64
	ip  string
	m   *machine
	rng *dice
	speaker
}

// speaker is a protocol. Errors are those of package driver.
type speaker interface {
	protocol() string
	// add adds to a counter. A key, if there is one, makes a repeated call the same.
	add(ctx context.Context, name string, amount int64, key string) (int64, error)
	// lock takes a mutex; with try it does not wait.
	lock(ctx context.Context, name string, try bool) (*grip, error)
	// close ends the party's connections.
	close()
}

// grip is a hold.
type grip struct {
	token uint64
	// holds reports whether the client may still act on it; it does not block.
	holds func() bool
	// release gives it back.
	release func(ctx context.Context) error
}

const firstClient = 100

// party makes a program that speaks Go, gRPC or REST.
func (w *World) party(i uint64) *party {
	p := &party{w: w, id: i, ip: w.ip(firstClient + i), rng: &dice{Rand: w.rng("party", i)}}
	p.m = w.net.machine(p.ip)
	switch i % 3 {
	case 0:
		p.speaker = newGopher(p)
	case 1:
		p.speaker = newPlain(p)
	default:
		p.speaker = newRester(p)
	}
	return p
}

func (p *party) String() string { return fmt.Sprintf("client %d (%s)", p.id, p.protocol()) }

// node is the address of some node.
func (p *party) node() string { return p.w.nodes[p.rng.IntN(len(p.w.nodes))].client() }

// minTTL is the least that a group of default ticks takes.
const minTTL = 5 * time.Second

func (p *party) ttl() time.Duration { return minTTL + time.Duration(p.rng.IntN(5))*time.Second }

// gopher speaks by package remote.
type gopher struct {
	p *party
	s *holdfast.Space
}

func newGopher(p *party) *gopher {
	cfg := remote.Config{}
	for _, n := range p.w.nodes {
		cfg.Endpoints = append(cfg.Endpoints, n.client())
	}
	host.Put(&cfg, &host.Host{Dial: p.m.dial})
	s, err := remote.Open(cfg, holdfast.TTL(p.ttl()), holdfast.Owner(fmt.Sprint("go-", p.id)))
	if err != nil {
		panic(err) // nothing was asked of anybody yet
	}
	return &gopher{p, s}
}

func (g *gopher) protocol() string { return "go" }
func (g *gopher) close()           { _ = g.s.Close() }

func (g *gopher) add(ctx context.Context, name string, amount int64, _ string) (int64, error) {
	return g.s.Counter(name).Add(ctx, amount)
}

func (g *gopher) lock(ctx context.Context, name string, try bool) (*grip, error) {
	m := g.s.Mutex(name)
	do := m.Acquire
	if try {
		do = m.TryAcquire
	}
	h, err := do(ctx)
	return gripOf(h), err
}

// gripOf is a hold of the Go API.
func gripOf(h *holdfast.Hold) *grip {
	if h == nil {
		return nil
	}
	return &grip{
		token: uint64(h.Token()),
		holds: func() bool {
			d, ok := h.Deadline()
			return h.Err() == nil && (!ok || time.Now().Before(d))
		},
		release: func(context.Context) error { return h.Release() },
	}
}
