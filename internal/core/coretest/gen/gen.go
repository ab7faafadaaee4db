// Package gen makes up histories for the state machine of package core: a few
// clients that quarrel over a few names, lose replies, send again, fall silent
// and come back.
//
// Every history follows from its seed. Each seed draws its own taste, so that
// some histories are all locks, some all transactions, some all expiry.
package gen

import (
	"math/rand/v2"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

const second = int64(1e9)

// Taste is what a history is made of: relative weights, 0 leaves it out.
type Taste struct {
	Sessions int
	Names    int
	// Of commands.
	Acquire, Release, Cancel, Extend, Upgrade, Downgrade, Election, Force, Revoke, Resize, Delete int
	Count, Reserve, CountDown, Txn, Session                                                       int
	// Of wishes.
	Mutex, RW, Semaphore, Elections, Latch, Barrier, Multi int
	Try, Reentrant, Wait, MaxHold, MinHold, Delay          int // percent
	Policies                                               bool
	// Of entries.
	Retry, Renew, Jump, Kinds int // percent
	Window                    uint64
	Limits                    bool // limiters are asked too
	// Crowd is how many may hold a name together: some names have many more holders and
	// waiters, and sessions many more claims, than a list is good for. 0: few.
	Crowd int64
	// Heavy: semaphores with limits and weights near the end of the number line.
	Heavy   bool
	Minutes bool // the clock jumps over minutes too, for what is kept that long
}

// Gen makes one history, entry by entry.
type Gen struct {
	rand    *rand.Rand
	extras  *rand.Rand // for what came later, so that earlier seeds keep their histories
	limits  *rand.Rand // for limiters, likewise
	wide    *rand.Rand // for crowds and great weights, likewise
	raises  *rand.Rand // for revisions that are raised, likewise
	Taste   Taste
	now     int64
	clients []*client
	sent    []core.Frame
	grants  []grant
	asked   map[request]string // keys of limiters
	taken   []taken
}

// client is what a client knows of its session.
type client struct {
	id       core.SessionID
	ns       string
	owner    string
	seq      uint64
	mark     uint64
	attempt  uint64
	targets  []uint64 // recent numbers of claims
	reopened int
}

// request is a command of a session.
type request struct {
	session core.SessionID
	seq     uint64
}

// taken is what was taken of a key of a limiter, to be settled or given back.
type taken struct {
	key    string
	answer *core.LimitAnswer
}

// grant is a token that was seen, for commands that name one.
type grant struct {
	ns, name string
	token    uint64
}

// New draws a taste from the seed.
func New(seed uint64) *Gen {
	stream := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	g := &Gen{rand: stream(0x686f6c6466617374), extras: stream(1), limits: stream(2), wide: stream(3), raises: stream(4), asked: map[request]string{}}
	g.Taste = g.taste()
	g.now = second * int64(g.rand.IntN(3))
	for i := range g.Taste.Sessions {
		c := &client{ns: "default", owner: string(rune('a' + g.rand.IntN(3)))}
		if g.chance(10) {
			c.ns = "other"
		}
		c.id[0] = byte('A' + i)
		g.clients = append(g.clients, c)
	}
	return g
}

// taste switches each ability on or off by itself: what a history lacks makes
// room for what it has.
func (g *Gen) taste() Taste {
	on := func(weight int) int { return weight * g.rand.IntN(2) }
	t := Taste{
		Sessions: 2 + g.rand.IntN(4), Names: 1 + g.rand.IntN(4),
		Acquire: 12, Release: 6, Cancel: on(4), Extend: on(5), Upgrade: on(5), Downgrade: on(4), Election: on(5),
		Force: on(2), Revoke: on(1), Resize: on(3), Delete: on(1),
		Count: on(3), Reserve: on(2), CountDown: on(3), Txn: on(8), Session: 2,
		Mutex: 3, RW: on(6), Semaphore: on(5), Elections: on(2), Latch: on(2), Barrier: on(2), Multi: on(3),
		Try: on(25), Reentrant: on(15), Wait: on(40), MaxHold: on(40), MinHold: on(30), Delay: on(30),
		Policies: g.rand.IntN(2) == 0,
		Retry:    on(25), Renew: on(40), Jump: g.rand.IntN(60), Kinds: on(2),
	}
	if g.chance(30) {
		t.Window = uint64(2 + g.rand.IntN(6))
	}
	t.Limits = g.limits.IntN(3) == 0
	t.Minutes = t.Policies && g.extras.IntN(3) == 0
	if t.Heavy = g.wide.IntN(6) == 0; t.Heavy {
		t.Semaphore = 5
	}
	if g.wide.IntN(5) == 0 {
		t.Crowd = 30 + g.wide.Int64N(60)
		t.Semaphore, t.RW, t.Window, t.Jump = 5, 5, 0, min(t.Jump, 20)
	}
	return t
}

func (g *Gen) chance(percent int) bool { return g.rand.IntN(100) < percent }

// Next makes an entry: sometimes a bare stamp, mostly one or two frames.
func (g *Gen) Next() twin.Entry {
	if g.chance(g.Taste.Jump) {
		g.now += second * int64(g.rand.IntN(12)) / 2
	}
	if g.Taste.Minutes && g.extras.IntN(20) == 0 {
		g.now += second * int64(60+g.extras.IntN(240))
	}
	e := twin.Entry{Now: g.now}
	if g.chance(3) {
		e.Now = max(0, e.Now-second) // time does not go back
	}
	if g.raises.IntN(100) < g.Taste.Kinds {
		return twin.Entry{Kind: core.EntryRaise, Now: g.now, Revision: 1<<g.raises.IntN(45) + g.raises.Uint64N(1000)}
	}
	if g.chance(g.Taste.Kinds) {
		e.Kind = core.EntryKind(1 + g.rand.IntN(3))
		if e.Kind == core.EntryForget {
			e.Seconds = g.now/second + 1
		}
		return e
	}
	for _, c := range g.clients {
		if g.chance(g.Taste.Renew) {
			e.Renewals = append(e.Renewals, g.renewal(c))
		}
	}
	for range g.rand.IntN(4) {
		e.Frames = append(e.Frames, g.frame())
	}
	return e
}

func (g *Gen) renewal(c *client) core.Renewal {
	c.attempt++
	r := core.Renewal{Session: c.id, Attempt: c.attempt}
	if g.chance(20) {
		r.TTL = second * int64(1+g.rand.IntN(20))
	}
	if g.rand.IntN(500) == 0 {
		r.TTL = 1 << 60
	}
	return r
}

// frame is a new one, or an old one once more.
func (g *Gen) frame() core.Frame {
	c := g.clients[g.rand.IntN(len(g.clients))]
	c.attempt++
	if len(g.sent) > 0 && g.chance(g.Taste.Retry) {
		recent := min(len(g.sent), 12)
		f := g.sent[len(g.sent)-1-g.rand.IntN(recent)]
		f.Attempt = c.attempt
		return f
	}
	f := core.Frame{Session: c.id, Attempt: c.attempt, Mark: g.markOf(c)}
	n := 1 + g.rand.IntN(3)
	if g.Taste.Crowd > 0 && g.wide.IntN(2) == 0 {
		n += g.wide.IntN(30)
	}
	for range n {
		f.Commands = append(f.Commands, g.command(c))
	}
	g.sent = append(g.sent, f)
	return f
}

// markOf moves the client's mark now and then, as far as it likes.
func (g *Gen) markOf(c *client) uint64 {
	if c.seq > c.mark && g.chance(30) {
		c.mark += 1 + g.rand.Uint64N(c.seq-c.mark)
	}
	if g.chance(20) {
		return 0
	}
	return c.mark
}

// Observe remembers what the entry granted. Clients that learn that their
// session has ended mostly begin anew.
func (g *Gen) Observe(out twin.Output) {
	for _, e := range out.Events {
		if e.Token != 0 {
			g.grants = append(g.grants, grant{e.Namespace, e.Name, e.Token})
		}
	}
	if n := len(g.grants); n > 16 {
		g.grants = g.grants[n-16:]
	}
	for _, r := range out.Replies {
		g.took(r)
		for _, c := range g.clients {
			if c.id == r.Session && r.Deadline == 0 && g.chance(70) {
				g.reborn(c)
			}
		}
	}
}

// took remembers what a reply says was taken of the limiter that gives back.
func (g *Gen) took(r core.Reply) {
	for _, res := range r.Results {
		if key, ok := g.asked[request{r.Session, res.Seq}]; ok && res.Limit != nil && res.OK {
			g.taken = append(g.taken, taken{key, res.Limit})
		}
	}
	if n := len(g.taken); n > 8 {
		g.taken = g.taken[n-8:]
	}
}
