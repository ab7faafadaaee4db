package core_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/limit"
)

// load makes entries at random: a few sessions that fight over a few names with
// every op there is. Numbers are drawn near the last ones, so that retries,
// cancels of unseen numbers and wrong targets come up by themselves.
type load struct {
	r    *rand.Rand
	now  int64
	seqs [6]uint64
	gen  [6]int    // an ended id is refused for long, so each session has new ones
	read [6]uint64 // number of the last claim as a reader, to be upgraded
	seen uint64    // greatest revision, for tokens
}

func newLoad(seed uint64) *load {
	return &load{r: rand.New(rand.NewPCG(seed, 99))}
}

func (l *load) id(n int) (id core.SessionID) {
	binary.BigEndian.PutUint32(id[:], uint32(n+1))
	binary.BigEndian.PutUint32(id[12:], uint32(l.gen[n]))
	return id
}

func (l *load) pick(names ...string) string { return names[l.r.IntN(len(names))] }

func (l *load) span(max int) int64 { return int64(l.r.IntN(max)) * 1e9 }

// some is 0 mostly, else a span.
func (l *load) some(max int) int64 {
	if l.r.IntN(3) > 0 {
		return 0
	}
	return l.span(max)
}

func (l *load) entry() core.Entry {
	l.now += l.span(6) / 4
	e := core.Entry{Now: l.now}
	if kind := l.r.IntN(200); kind > 0 && kind < 6 {
		e.Kind = core.EntryKind(1 + kind/2) // forgets once in 200, freezes and unfreezes twice
		if e.Kind == core.EntryForget {
			e.Seconds = 1 + l.now/1e9
		}
		return e
	}
	for range l.r.IntN(3) {
		e.Renewals = append(e.Renewals, core.Renewal{Session: l.id(l.r.IntN(6)), Attempt: 1, TTL: l.some(9)})
	}
	for range l.r.IntN(4) {
		f := l.frame()
		e.Seconds = 1_700_000_000 + l.now/1e9
		e.Frames = append(e.Frames, core.AppendFrame(nil, &f))
	}
	return e
}

func (l *load) frame() core.Frame {
	n := l.r.IntN(6)
	f := core.Frame{Session: l.id(n), Attempt: uint64(l.r.IntN(9))}
	f.Mark = l.seqs[n] - min(l.seqs[n], uint64(l.r.IntN(30)))
	if l.r.IntN(3) == 0 {
		f.Commands = append(f.Commands, l.open(n))
	}
	for range 1 + l.r.IntN(3) {
		c := l.command(n)
		if c.Op != core.OpEnd {
			l.seqs[n] += uint64(l.r.IntN(3))
			c.Seq = l.seqs[n]
		}
		if c.Op == core.OpAcquire && len(c.Wants) == 1 && c.Wants[0].Kind == core.RWMutex && c.Wants[0].Mode == core.Shared {
			l.read[n] = c.Seq
		}
		f.Commands = append(f.Commands, c)
	}
	return f
}

func (l *load) open(n int) core.Command {
	return core.Command{
		Op: core.OpOpen, TTL: 1e9 + l.span(30), Owner: fmt.Sprint("owner", n%3), Meta: "m", Window: uint64(l.r.IntN(40)),
		Policy: core.Policy(n % 3), Grace: int64(n) * 1e9, Namespace: []string{"", "", "", "", "", "other"}[n], Flags: core.Fleeting * core.Flags(l.r.IntN(2)),
	}
}

func (l *load) want() core.Want {
	switch l.r.IntN(8) {
	case 0, 1:
		return core.Want{Name: l.pick("a", "b", "c"), Kind: core.Mutex}
	case 2, 3:
		return core.Want{Name: l.pick("r", "s"), Kind: core.RWMutex, Mode: core.Mode(l.r.IntN(2))}
	case 4:
		return core.Want{Name: l.pick("p", "q"), Kind: core.Semaphore, Mode: core.Shared, Weight: 1 + int64(l.r.IntN(3)), Limit: int64(l.r.IntN(2)) * 3}
	case 5:
		return core.Want{Name: "boss", Kind: core.Election}
	case 6:
		return core.Want{Name: "gate", Kind: core.Latch, Mode: core.Shared, Limit: 2}
	default:
		return core.Want{Name: "meet", Kind: core.Barrier, Mode: core.Shared, Limit: 2}
	}
}

func (l *load) acquire() core.Command {
	flags := core.Flags(l.r.IntN(4))
	flags &= core.Flags(l.r.IntN(4)) // each flag one time in four
	c := core.Command{Op: core.OpAcquire, Wants: []core.Want{l.want()}, Flags: flags}
	for l.r.IntN(3) == 0 {
		c.Wants = append(c.Wants, l.want())
	}
	c.Wait, c.MaxHold, c.MinHold, c.Delay = l.some(9), l.some(9), l.some(5), l.some(5)
	c.Value = []byte(l.pick("", "v1", "v2"))
	return c
}

func (l *load) command(n int) core.Command {
	target := l.seqs[n] - min(l.seqs[n], uint64(l.r.IntN(8)))
	switch l.r.IntN(25) {
	case 24:
		return core.Command{Op: core.OpUpgrade, Target: l.read[n]}
	case 0, 1, 2, 3, 4, 5, 6, 7:
		return l.acquire()
	case 8, 9:
		return core.Command{Op: core.OpRelease, Target: target}
	case 10:
		return core.Command{Op: core.OpRelease, Name: l.pick("a", "r", "boss"), Token: l.token()}
	case 23:
		return core.Command{Op: core.OpCancel, Target: target + uint64(l.r.IntN(3))}
	case 11, 12, 13:
		return core.Command{Op: core.OpExtend, Target: target, MaxHold: l.span(20)}
	case 14:
		return core.Command{Op: core.OpUpgrade, Target: l.read[n], Wait: l.some(9)}
	case 15:
		return core.Command{Op: core.OpDowngrade, Target: target}
	case 16:
		return core.Command{Op: core.OpProclaim, Target: target, Value: []byte("new")}
	case 17:
		return core.Command{Op: core.OpHandOver, Target: target, Owner: l.pick("owner0", "owner1", "owner2")}
	case 18:
		return core.Command{Op: core.OpForce, Name: l.pick("a", "b", "r", "p", "boss", "gate", "meet"), Token: l.token(), Flags: core.Now * core.Flags(l.r.IntN(2))}
	case 19:
		if l.r.IntN(6) == 0 {
			return core.Command{Op: core.OpRevoke, Session: l.id(l.r.IntN(6)), Flags: core.Now * core.Flags(l.r.IntN(2))}
		}
		if l.r.IntN(6) == 0 {
			return core.Command{Op: core.OpEnd}
		}
		return core.Command{Op: core.OpResize, Name: l.pick("p", "q"), Limit: 1 + int64(l.r.IntN(5))}
	default:
		return l.object()
	}
}

func (l *load) token() uint64 { return l.seen - min(l.seen, uint64(l.r.IntN(10))) }

func (l *load) object() core.Command {
	switch l.r.IntN(8) {
	case 0:
		n := l.r.IntN(7)
		return core.Command{Op: core.OpDelete, Name: []string{"p", "gate", "meet", "count", "seq", "q", "rate"}[n],
			Kind: []core.Kind{core.Semaphore, core.Latch, core.Barrier, core.Counter, core.Sequence, core.Latch, core.Limiter}[n]}
	case 4, 5:
		return l.limit()
	case 1:
		return core.Command{Op: core.OpCount, Name: l.pick("count", "a"), Count: core.CountOp(l.r.IntN(6)), A: [...]uint64{0, 1, 2, 1, math.MaxInt64, 1 << 63}[l.r.IntN(6)], B: 7, Unsigned: l.r.IntN(9) == 0}
	case 2:
		return core.Command{Op: core.OpReserve, Name: "seq", A: uint64(l.r.IntN(9)), B: 100}
	case 3:
		return core.Command{Op: core.OpCountDown, Name: "gate", A: uint64(l.r.IntN(2)), Limit: 2}
	default:
		return l.txn()
	}
}

// limit asks limiters of every algorithm, mostly at the rate that they have.
func (l *load) limit() core.Command {
	n := l.r.IntN(6)
	a := &core.LimitAsk{Key: l.pick("", "k1", "k2", "k3"), Cost: int64(l.r.IntN(4)), Wait: l.some(3), Ahead: l.some(3)}
	a.Rate = limit.Rate{Count: 5, Per: 3 * time.Second, Algorithm: limit.Algorithm(n)}
	if a.Rate.Algorithm == limit.CalendarWindow {
		a.Rate.Per, a.Rate.Every = 0, limit.Hour
	}
	if n < 2 && l.r.IntN(9) == 0 {
		a.Rate.Initial = 3
	}
	switch l.r.IntN(12) {
	case 0:
		a.Op = core.LimitOp(l.r.IntN(6))
	case 1, 2:
		a.Op, a.Reservation = core.LimitSettle+core.LimitOp(l.r.IntN(2)), limit.Reservation{Cost: 3, At: l.now, Until: l.now + l.span(5)}
	}
	return core.Command{Op: core.OpLimit, Name: fmt.Sprint(l.pick("rate", "limit"), n%3), Ask: a}
}

func (l *load) txn() core.Command {
	c := core.Command{Op: core.OpTxn}
	if l.r.IntN(2) == 0 {
		c.If = []core.Compare{{Key: l.pick("k1", "k2", "k"), Prefix: l.r.IntN(2) == 0, Target: core.CompareTarget(l.r.IntN(5)), Is: core.Relation(l.r.IntN(4)), Num: l.token(), Value: []byte("x")}}
	}
	put := core.KeyOp{Kind: core.KeyPut, Key: l.pick("k1", "k2", "k3"), Value: []byte(l.pick("x", "y")), Expire: l.some(9), Previous: true}
	if l.r.IntN(2) == 0 {
		put.Session = l.id(l.r.IntN(6))
	}
	c.Then = []core.KeyOp{put, {Kind: core.KeyGet, Key: "k", Prefix: true, Sort: core.SortBy(l.r.IntN(5)), Desc: l.r.IntN(2) == 0, Limit: uint64(l.r.IntN(3))}}
	c.Else = []core.KeyOp{{Kind: core.KeyDelete, Key: l.pick("k", "k1"), Prefix: l.r.IntN(2) == 0, Previous: true}}
	return c
}

// next applies one random entry, and tells the load what tokens there are.
func (l *load) next(m *core.Machine, out *core.Output) []byte {
	e := l.entry()
	b := core.AppendEntry(nil, &e)
	if err := m.Apply(b, out); err != nil {
		panic(err)
	}
	l.seen = m.Revision()
	for n := range l.gen {
		if _, ok := m.Session(l.id(n)); !ok && l.r.IntN(3) == 0 {
			l.gen[n]++
			l.seqs[n] = 0
		}
	}
	return b
}
