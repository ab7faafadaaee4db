package gen

import (
	"fmt"
	"math/rand/v2"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// Multitude is a history of n sessions, each with a few claims and keys, and of three
// that have thousands. Some keep what they hold past their deadline. Most end in very few
// entries, by time, as asked and by others, while new ones take what they leave.
func Multitude(seed uint64, n int) []twin.Entry {
	g := &large{rand: rand.New(rand.NewPCG(seed, 0x6d616e79)), seq: map[core.SessionID]uint64{}}
	for i := range n {
		g.opens(core.SessionID{'n', byte(i >> 8), byte(i)}, 5+10*int64(i%2))
	}
	great := []core.SessionID{{'A'}, {'B'}, {'C'}}
	for i, id := range great {
		g.opens(id, 5+int64(i))
	}
	for range n {
		g.send(g.pick(), g.command(n))
		g.send(great[g.rand.IntN(len(great))], g.command(n))
	}
	g.flush(0, n)
	g.late(great)
	return g.entries
}

// opens opens a session; one in three keeps what it holds.
func (g *large) opens(id core.SessionID, ttl int64) {
	g.ids = append(g.ids, id)
	c := core.Command{Op: core.OpOpen, TTL: ttl * second, Owner: fmt.Sprint("owner ", id[2]%7)}
	if g.rand.IntN(3) == 0 {
		c.Policy, c.Grace = core.Policy(1+g.rand.IntN(2)), second*g.rand.Int64N(3)
	}
	g.send(id, c)
}

// flush makes entries of what was sent, of some hundred frames each.
func (g *large) flush(now int64, n int) {
	for len(g.frames) > 0 {
		k := min(len(g.frames), 1+g.rand.IntN(1+n/4))
		g.entries = append(g.entries, twin.Entry{Now: now, Frames: g.frames[:k:k]})
		g.frames = g.frames[k:]
	}
}

// late ends the sessions, thousands of them at a time, and has others ask for what they hold.
func (g *large) late(great []core.SessionID) {
	for i, now := range []int64{4, 6, 6, 8, 15, 16, 17, 18, 700, 701, 1400} {
		successor := core.SessionID{'h', byte(i)}
		g.send(successor, core.Command{Op: core.OpOpen, TTL: 10 * second})
		g.send(successor, core.Command{Op: core.OpResize, Name: "pool", Limit: 3 + g.rand.Int64N(400)})
		g.send(successor, core.Command{Op: core.OpRevoke, Session: great[i%len(great)], Flags: core.Now * core.Flags(g.rand.IntN(2))})
		for range 30 {
			g.send(successor, core.Command{Op: core.OpAcquire, Wants: g.wants(100)})
			id := g.pick()
			g.send(id, core.Command{Op: core.OpRelease, Target: 1 + g.rand.Uint64N(g.seq[id]+1)})
			g.send(id, core.Command{Op: core.OpUpgrade, Target: 1 + g.rand.Uint64N(g.seq[id]+1)})
			g.send(g.pick(), core.Command{Op: core.OpEnd})
		}
		e := twin.Entry{Now: now * second, Frames: g.frames}
		for range 20 {
			e.Renewals = append(e.Renewals, core.Renewal{Session: g.pick(), Attempt: 1, TTL: second * g.rand.Int64N(9)})
		}
		g.entries, g.frames = append(g.entries, e, twin.Entry{Now: now * second}), nil
	}
}
