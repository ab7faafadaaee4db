package gen

import (
	"math"

	"github.com/holdfast-io/holdfast/internal/core"
)

// command draws one command of a client and numbers it.
func (g *Gen) command(c *client) core.Command {
	if c.seq == 0 || g.chance(2) {
		c.seq = max(c.seq, 1)
		return g.open(c)
	}
	cmd := g.askLimiter()
	if cmd.Op == 0 {
		cmd = g.draw(c)
	}
	if cmd.Op == core.OpOpen || cmd.Op == core.OpEnd {
		return cmd
	}
	if cmd.Seq = g.number(c); cmd.Op == core.OpRevoke && g.wide.IntN(4) == 0 {
		cmd.Seq, cmd.Session = 0, c.id
	}
	if cmd.Op == core.OpLimit && cmd.Name == window && cmd.Ask.Op == core.LimitTake {
		g.asked[request{c.id, cmd.Seq}] = cmd.Ask.Key
	}
	if cmd.Op == core.OpAcquire || cmd.Op == core.OpUpgrade {
		c.targets = append(c.targets, cmd.Seq)
	}
	return cmd
}

// number is the next number; now and then one that skips, was used, or makes no
// sense.
func (g *Gen) number(c *client) uint64 {
	switch g.rand.IntN(60) {
	case 0:
		return g.rand.Uint64N(c.seq + 2)
	case 1:
		c.seq += g.rand.Uint64N(4)
	}
	c.seq++
	return c.seq - 1
}

// draw picks what to do by the taste's weights.
func (g *Gen) draw(c *client) core.Command {
	t := g.Taste
	makers := []struct {
		weight int
		make   func(*client) core.Command
	}{
		{t.Acquire, g.acquire}, {t.Release, g.release}, {t.Cancel, g.cancel}, {t.Extend, g.extend},
		{t.Upgrade, g.upgrade}, {t.Downgrade, g.downgrade}, {t.Election, g.election}, {t.Force, g.force},
		{t.Revoke, g.revoke}, {t.Resize, g.resize}, {t.Delete, g.delete}, {t.Count, g.count},
		{t.Reserve, g.reserve}, {t.CountDown, g.countDown}, {t.Txn, g.txn}, {t.Session, g.session},
	}
	weights := make([]int, len(makers))
	for i, m := range makers {
		weights[i] = m.weight
	}
	made := makers[g.pick(weights...)].make(c)
	if givesUp := made.Op == core.OpRelease || made.Op == core.OpCancel || made.Op == core.OpEnd || made.Op == core.OpRevoke; givesUp && g.Taste.Crowd > 0 && g.wide.IntN(4) > 0 {
		return g.acquire(c) // so that they become many
	}
	return made
}

// pick draws an index by weight.
func (g *Gen) pick(weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	n := g.rand.IntN(sum)
	for i, w := range weights {
		if n -= w; n < 0 {
			return i
		}
	}
	panic("unreachable: the weights have a sum")
}

func (g *Gen) open(c *client) core.Command {
	cmd := core.Command{Op: core.OpOpen, TTL: second * int64(2+g.rand.IntN(20)), Namespace: c.ns, Owner: c.owner, Window: g.Taste.Window}
	if g.rand.IntN(300) == 0 {
		cmd.TTL <<= 20 // too long
	}
	if g.extras.IntN(10) == 0 {
		cmd.Flags |= core.Fresh
	}
	if g.Taste.Crowd > 0 && g.wide.IntN(8) > 0 {
		cmd.TTL *= 20 // they become many only if they last
	}
	if cmd.Namespace == "default" && g.chance(50) {
		cmd.Namespace = ""
	}
	if g.Taste.Policies {
		cmd.Policy = core.Policy(g.rand.IntN(3))
		cmd.Grace = second * int64(g.rand.IntN(4))
	}
	return cmd
}

// session ends the client's session; some clients then take a new id.
func (g *Gen) session(c *client) core.Command {
	if g.chance(70) {
		return g.open(c)
	}
	if g.chance(70) {
		defer g.reborn(c)
	}
	return core.Command{Op: core.OpEnd}
}

func (g *Gen) reborn(c *client) {
	c.reopened++
	c.id[1] = byte('0' + c.reopened%10)
	c.id[2] = byte('0' + c.reopened/10%10)
	c.seq, c.mark, c.targets = 0, 0, nil
}

// target is the number of a recent claim, now and then any number.
func (g *Gen) target(c *client) uint64 {
	if n := len(c.targets); n > 0 && !g.chance(5) {
		return c.targets[n-1-g.rand.IntN(min(n, 5))]
	}
	return g.rand.Uint64N(c.seq + 3)
}

func (g *Gen) name(kind core.Kind) string {
	prefix := [...]string{"", "m", "r", "s", "e", "l", "b", "c", "q"}[kind]
	if g.chance(3) {
		prefix = "m" // another kind's name
	}
	return prefix + string(rune('0'+g.rand.IntN(g.Taste.Names)))
}

func (g *Gen) span(percent int) int64 {
	if !g.chance(percent) {
		return 0
	}
	return second * int64(1+g.rand.IntN(16)) / 2
}

func (g *Gen) acquire(*client) core.Command {
	cmd := core.Command{Op: core.OpAcquire, Wait: g.span(g.Taste.Wait), MaxHold: g.span(g.Taste.MaxHold)}
	cmd.MinHold, cmd.Delay = g.span(g.Taste.MinHold), g.span(g.Taste.Delay)
	if g.chance(g.Taste.Try) {
		cmd.Flags |= core.Try
	}
	if g.chance(g.Taste.Reentrant) {
		cmd.Flags |= core.Reentrant
	}
	if g.extras.IntN(5) == 0 {
		cmd.Owner = string(rune('a' + g.extras.IntN(3)))
	}
	if g.extras.IntN(5) == 0 {
		cmd.Value = []byte{byte('x' + g.extras.IntN(3))}
	}
	if g.Taste.Crowd > 0 && g.wide.IntN(3) > 0 {
		cmd.MaxHold, cmd.Wait = 0, 0
	}
	n := 1
	if g.Taste.Multi > 0 && g.chance(40) {
		n = 2 + g.rand.IntN(2)
	}
	for range n {
		cmd.Wants = append(cmd.Wants, g.want(n > 1))
	}
	if cmd.Wants[0].Kind == core.Election {
		cmd.Value = g.value()
	}
	return cmd
}

func (g *Gen) want(multi bool) core.Want {
	t := g.Taste
	latch, barrier := t.Latch, t.Barrier
	if multi && !g.chance(2) {
		latch, barrier = 0, 0
	}
	w := core.Want{Kind: core.Kind(1 + g.pick(t.Mutex, t.RW, t.Semaphore, t.Elections, latch, barrier))}
	w.Name = g.name(w.Kind)
	switch w.Kind {
	case core.RWMutex:
		if w.Mode = core.Mode(g.pick(2, 3)); g.Taste.Crowd > 0 && g.wide.IntN(8) > 0 {
			w.Mode = core.Shared
		}
	case core.Semaphore:
		w.Mode, w.Weight, w.Limit = core.Shared, int64(1+g.rand.IntN(3)), g.limit()
		g.widen(&w)
	case core.Latch, core.Barrier:
		w.Mode, w.Limit = core.Shared, g.limit()
	}
	switch g.rand.IntN(200) {
	case 0:
		w.Mode ^= 1
	case 1:
		w.Weight = 2
	case 2:
		w.Limit = 3
	}
	return w
}

// widen makes a semaphore one of many holders, or of great weights.
func (g *Gen) widen(w *core.Want) {
	switch {
	case g.Taste.Heavy && w.Name[len(w.Name)-1]%2 == 0:
		w.Limit, w.Weight = math.MaxInt64, g.great()
	case g.Taste.Crowd > 0:
		if g.wide.IntN(4) > 0 {
			w.Weight = 1
		}
		if g.wide.IntN(20) == 0 {
			w.Weight = 1 + g.wide.Int64N(g.Taste.Crowd)
		}
		w.Limit = g.Taste.Crowd * g.wide.Int64N(2) // 0: as large as it is
	}
}

// great is a weight or a limit of which few have room beside each other.
func (g *Gen) great() int64 {
	ends := []int64{1, 2, math.MaxInt64 / 3, math.MaxInt64 / 2, math.MaxInt64/2 + 1, math.MaxInt64 - 2, math.MaxInt64 - 1, math.MaxInt64}
	return ends[g.wide.IntN(len(ends))]
}

func (g *Gen) limit() int64 { return int64([]int{0, 3, 3, 3, 2, 5}[g.pick(3, 3, 3, 3, 1, 1)]) }

func (g *Gen) value() []byte { return []byte{byte('u' + g.rand.IntN(4))} }

// byToken names a grant that was seen, mostly with its right token.
func (g *Gen) byToken(cmd core.Command) core.Command {
	if len(g.grants) == 0 {
		cmd.Name, cmd.Token = "m0", 1+g.rand.Uint64N(9)
		return cmd
	}
	seen := g.grants[g.rand.IntN(len(g.grants))]
	cmd.Name, cmd.Token = seen.name, seen.token
	if g.chance(5) {
		cmd.Token += g.rand.Uint64N(2)
	}
	return cmd
}

func (g *Gen) release(c *client) core.Command {
	cmd := core.Command{Op: core.OpRelease}
	if g.chance(15) {
		return g.byToken(cmd)
	}
	cmd.Target = g.target(c)
	return cmd
}

func (g *Gen) cancel(c *client) core.Command {
	cmd := core.Command{Op: core.OpCancel, Target: g.target(c)}
	if g.chance(20) {
		cmd.Target = c.seq + g.rand.Uint64N(4)
	}
	return cmd
}

func (g *Gen) extend(c *client) core.Command {
	return core.Command{Op: core.OpExtend, Target: g.target(c), MaxHold: g.span(95)}
}

func (g *Gen) upgrade(c *client) core.Command {
	return core.Command{Op: core.OpUpgrade, Target: g.target(c), Wait: g.span(g.Taste.Wait)}
}

func (g *Gen) downgrade(c *client) core.Command {
	return core.Command{Op: core.OpDowngrade, Target: g.target(c)}
}

func (g *Gen) election(c *client) core.Command {
	if g.chance(50) {
		return core.Command{Op: core.OpProclaim, Target: g.target(c), Value: g.value()}
	}
	return core.Command{Op: core.OpHandOver, Target: g.target(c), Owner: string(rune('a' + g.rand.IntN(3)))}
}

func (g *Gen) nowFlag() core.Flags {
	if g.chance(30) {
		return core.Now
	}
	return 0
}

func (g *Gen) force(*client) core.Command {
	return g.byToken(core.Command{Op: core.OpForce, Flags: g.nowFlag()})
}

func (g *Gen) revoke(*client) core.Command {
	return core.Command{Op: core.OpRevoke, Session: g.clients[g.rand.IntN(len(g.clients))].id, Flags: g.nowFlag()}
}

func (g *Gen) resize(*client) core.Command {
	cmd := core.Command{Op: core.OpResize, Name: g.name(core.Semaphore), Limit: int64(g.rand.IntN(7))}
	switch {
	case g.Taste.Heavy && g.wide.IntN(2) == 0:
		cmd.Limit = g.great()
	case g.Taste.Crowd > 0 && g.wide.IntN(4) > 0:
		cmd.Limit = 1 + g.wide.Int64N(3*g.Taste.Crowd)
	}
	return cmd
}

func (g *Gen) delete(*client) core.Command {
	kind := core.Kind(1 + g.rand.IntN(8))
	return core.Command{Op: core.OpDelete, Kind: kind, Name: g.name(kind)}
}

// count stays near the ends of the number line, where counters must not wrap.
func (g *Gen) count(*client) core.Command {
	near := []uint64{0, 1, 2, math.MaxInt64, math.MaxInt64 - 1, 1 << 63, math.MaxUint64, math.MaxUint64 - 1}
	cmd := core.Command{
		Op: core.OpCount, Name: g.name(core.Counter), Count: core.CountOp(g.rand.IntN(5)), Unsigned: g.chance(30),
		A: near[g.rand.IntN(len(near))], B: near[g.rand.IntN(len(near))],
	}
	if g.wide.IntN(5) == 0 {
		cmd.Count = core.CountAddAll
	}
	return cmd
}

func (g *Gen) reserve(*client) core.Command {
	cmd := core.Command{Op: core.OpReserve, Name: g.name(core.Sequence), A: g.rand.Uint64N(4), B: g.rand.Uint64N(3)}
	if g.chance(10) {
		cmd.A = math.MaxUint64 - g.rand.Uint64N(8)
	}
	return cmd
}

func (g *Gen) countDown(*client) core.Command {
	return core.Command{Op: core.OpCountDown, Name: g.name(core.Latch), A: g.rand.Uint64N(3), Limit: g.limit()}
}

// askLimiter asks a limiter now and then, mostly at one of two rates that differ; Op 0: not now.
func (g *Gen) askLimiter() core.Command {
	if !g.Taste.Limits || g.limits.IntN(4) != 0 {
		return core.Command{}
	}
	n := g.limits.IntN(3)
	cmd := core.Command{Op: core.OpLimit, Name: "x" + string(rune('0'+n))}
	if g.limits.IntN(25) == 0 {
		return core.Command{Op: core.OpDelete, Kind: core.Limiter, Name: cmd.Name}
	}
	a := &core.LimitAsk{Key: string(rune('a' + g.limits.IntN(4))), Cost: int64(g.limits.IntN(5))}
	if n == 2 { // a fixed window
		a.Rate.Algorithm, a.Rate.Count, a.Rate.Per = 2, 5, 3e9
	} else {
		a.Rate.Count, a.Rate.Per, a.Rate.Burst = 4, 2e9, int64(3+3*n)
		a.Wait = second * int64(g.limits.IntN(2))
	}
	switch g.limits.IntN(20) {
	case 0:
		a.Op = core.LimitSetRate
	case 1:
		a.Op = core.LimitReset
	case 2, 3:
		a.Op = core.LimitSettle
	case 4, 5:
		a.Op = core.LimitPeek
	case 6:
		a.Rate.Count, a.Rate.Per, a.Rate.Burst = 0, 0, 0 // not said
		a.Rate.Algorithm = 0
	case 7:
		a.Rate.Count, a.Rate.Per = 5, 25e8 // another one
		a.Op = core.LimitSetRate * core.LimitOp(g.limits.IntN(2))
	}
	if cmd.Name == window && len(g.taken) > 0 && g.wide.IntN(3) == 0 {
		g.giveBack(a)
	}
	cmd.Ask = a
	return cmd
}

// window is the name of the limiter of which something is given back.
const window = "x2"

// giveBack settles or returns something that was taken, with less or more than was.
func (g *Gen) giveBack(a *core.LimitAsk) {
	v := g.taken[g.wide.IntN(len(g.taken))]
	a.Op, a.Key, a.Reservation, a.Cost = core.LimitSettle, v.key, v.answer.Reservation, g.wide.Int64N(5)
	if g.wide.IntN(2) == 0 {
		a.Op = core.LimitReturn
	}
}
