package gen

import (
	"fmt"
	"math/rand/v2"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// Large is a history of few sessions with n claims and keys between them: many hold
// and wait for the same names, and then sessions end as asked and by time, a semaphore
// shrinks and names are given back, all in one entry. Entries follow in which
// small sessions end.
func Large(seed uint64, n int) []twin.Entry {
	g := &large{rand: rand.New(rand.NewPCG(seed, 0x6c61726765)), seq: map[core.SessionID]uint64{}}
	for i := range 4 + g.rand.IntN(4) {
		id := core.SessionID{byte('A' + i)}
		g.ids = append(g.ids, id)
		g.send(id, core.Command{Op: core.OpOpen, TTL: second * int64(5+10*(i%2))})
	}
	for i := range 2 * after {
		g.send(small(i), core.Command{Op: core.OpOpen, TTL: 100 * second})
	}
	for len(g.frames) < n+2*after {
		g.send(g.pick(), g.command(n))
	}
	for len(g.frames) > 0 {
		k := min(len(g.frames), 1+g.rand.IntN(n))
		g.entries = append(g.entries, twin.Entry{Frames: g.frames[:k]})
		g.frames = g.frames[k:]
	}
	g.end()
	return g.entries
}

type large struct {
	rand    *rand.Rand
	ids     []core.SessionID
	seq     map[core.SessionID]uint64
	frames  []core.Frame
	entries []twin.Entry
}

// after is how many entries follow the one that ends most.
const after = 40

// small is a session that has nothing.
func small(i int) core.SessionID { return core.SessionID{'s', byte(i)} }

func (g *large) pick() core.SessionID { return g.ids[g.rand.IntN(len(g.ids))] }

func (g *large) send(id core.SessionID, c core.Command) {
	if c.Op != core.OpOpen && c.Op != core.OpEnd {
		g.seq[id]++
		c.Seq = g.seq[id]
	}
	g.frames = append(g.frames, core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: []core.Command{c}})
}

func (g *large) command(n int) core.Command {
	if g.rand.IntN(4) == 0 {
		put := core.KeyOp{Kind: core.KeyPut, Key: fmt.Sprint("k/", g.rand.IntN(n)), Session: g.pick()}
		return core.Command{Op: core.OpTxn, Then: []core.KeyOp{put}}
	}
	return core.Command{Op: core.OpAcquire, Wants: g.wants(n)}
}

func (g *large) wants(n int) []core.Want {
	pool := core.Want{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: 1 + int64(g.rand.IntN(3)), Limit: int64(n / 8)}
	lock := core.Want{Name: fmt.Sprint("m/", g.rand.IntN(1+n/20)), Kind: core.Mutex}
	book := core.Want{Name: "book", Kind: core.RWMutex, Mode: core.Shared}
	switch g.rand.IntN(8) {
	case 0, 1:
		return []core.Want{pool}
	case 2:
		return []core.Want{book}
	case 3:
		return []core.Want{book, lock}
	case 4:
		return []core.Want{pool, lock}
	case 5:
		return []core.Want{{Name: "book", Kind: core.RWMutex}}
	}
	return []core.Want{lock}
}

// end ends most of it with one entry.
func (g *large) end() {
	last := g.ids[0]
	g.send(g.ids[1], core.Command{Op: core.OpResize, Name: "pool", Limit: 3})
	for range 20 {
		g.send(last, core.Command{Op: core.OpRelease, Target: 1 + uint64(g.rand.IntN(int(g.seq[last])))})
	}
	g.send(last, core.Command{Op: core.OpEnd})
	if g.rand.IntN(2) == 0 {
		g.send(g.ids[1], core.Command{Op: core.OpRevoke, Session: g.ids[2], Flags: core.Now})
	}
	g.entries = append(g.entries, twin.Entry{Now: 6 * second, Frames: g.frames})
	g.frames = nil
	for i := range after {
		for j := range 2 { // while a rest of the large ones remains
			g.send(small(2*i+j), core.Command{Op: core.OpEnd})
		}
		g.entries = append(g.entries, twin.Entry{Now: 6 * second, Frames: g.frames})
		g.frames = nil
	}
	g.entries = append(g.entries, twin.Entry{Now: 60 * second}, twin.Entry{Now: 60 * second})
}
