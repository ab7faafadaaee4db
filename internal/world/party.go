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
	// acquire takes a hold of any kind.
	acquire(ctx context.Context, x want) (*holding, error)
	// put writes a key, and set, swap and reserve do what their names say.
	put(ctx context.Context, name, value, key string) error
	set(ctx context.Context, name string, value int64) error
	swap(ctx context.Context, name string, old, value int64) (bool, error)
	reserve(ctx context.Context, name string, n uint64) (uint64, error)
	// countDown counts a latch of so many down by one, open waits for it, and arrive
	// waits for the other parties of a barrier.
	countDown(ctx context.Context, name string, count int64) error
	open(ctx context.Context, name string, count int64) error
	arrive(ctx context.Context, name string, parties int64) error
	// close ends the party's connections.
	close()
}

// want is what is to be held.
type want struct {
	kind  kind
	name  string
	try   bool  // without waiting
	lease int64 // the plain session that it hangs on; 0: one of its own
}

// kind is what can be held.
type kind string

const (
	mutex     kind = "lock"
	reader    kind = "read"
	writer    kind = "write"
	semaphore kind = "semaphore"
	election  kind = "election"
)

// holding is a hold.
type holding struct {
	token uint64
	// holds reports whether the client may still act on it; it does not block.
	holds func() bool
	// release gives it back.
	release func(ctx context.Context) error
	// renew, upgrade, downgrade, proclaim, handOver and extend are nil where they make
	// no sense. An upgrade is another holding, which takes the place of this one.
	renew     func(ctx context.Context) error
	upgrade   func(ctx context.Context) (*holding, error)
	downgrade func(ctx context.Context) error
	proclaim  func(ctx context.Context, value string) error
	handOver  func(ctx context.Context, owner string) error
	extend    func(ctx context.Context) error
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

// owner is what the party says of itself to others.
func (p *party) owner() string { return fmt.Sprint("client-", p.id) }

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
	s, err := remote.Open(cfg, holdfast.TTL(p.ttl()), holdfast.Owner(p.owner()))
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
