package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// worker is one thing that a party does at a time.
type worker struct {
	*party
	rng *rand.Rand
}

func (k *worker) between(a, b time.Duration) time.Duration {
	return a + time.Duration(k.rng.Int64N(int64(b-a)+1))
}

func (k *worker) chance(p float64) bool { return k.rng.Float64() < p }

// limit is how long a call may take: mostly long, sometimes short; 0: for ever.
func (k *worker) limit() time.Duration {
	switch k.rng.IntN(10) {
	case 0:
		return k.between(time.Millisecond, 50*time.Millisecond)
	case 1, 2:
		return k.between(50*time.Millisecond, 2*time.Second)
	case 3, 4:
		return 0
	}
	return k.between(2*time.Second, 20*time.Second)
}

// work does something.
func (k *worker) work() {
	switch n := k.rng.IntN(20); {
	case n < 6:
		k.add()
	case n < 11:
		k.hold()
	case n < 13:
		k.put()
	case n < 14:
		k.register()
	case n < 15:
		k.reserve()
	case n < 17:
		k.meet()
	default:
		k.special()
	}
}

// special is what only some protocols have.
func (k *worker) special() {
	switch x := k.speaker.(type) {
	case *gopher:
		[]func(*gopher){k.several, k.buffered, k.buffered, k.laden, k.force}[k.rng.IntN(5)](x)
	case *plain:
		[]func(*plain){k.leased, k.kept}[k.rng.IntN(2)](x)
	default:
		k.hold()
	}
}

// add adds once, by calls that are the same if they have a key.
func (k *worker) add() {
	kind, sign := "plain", int64(1)
	if k.chance(0.2) {
		kind, sign = "down", -1
	}
	key := ""
	if k.protocol() != "go" && k.chance(0.5) {
		key = fmt.Sprintf("key-%d-%d", k.id, k.rng.Uint64())
	}
	s := k.w.tally.reserve(kind, sign)
	for open := false; ; open = true {
		c := k.w.begin(k.protocol(), "add", s.counter, k.limit())
		if s.call == nil {
			s.call = c
		}
		v, err := k.speaker.add(c.ctx, s.counter, s.amount(), key)
		a := c.answered(err)
		if a == unknown && key != "" && k.chance(0.9) {
			k.w.count("repeated by key")
			time.Sleep(k.between(time.Millisecond, time.Second))
			continue
		}
		if open && a == notDone {
			a = unknown // an earlier call may have done it
		}
		k.w.tally.settle(s, a, v, true, err)
		return
	}
}

// hold takes a hold for a while, or tries to.
func (k *worker) hold() {
	w := want{kind: []kind{mutex, mutex, reader, reader, writer, semaphore, election}[k.rng.IntN(7)], try: k.chance(0.2)}
	switch w.kind {
	case reader, writer:
		w.name = fmt.Sprintf("rw/%d", k.rng.IntN(2))
	case election:
		w.name = "election/0" // where some wait, to whom a leader can hand over
	default:
		w.name = fmt.Sprintf("%s/%d", w.kind, k.rng.IntN(3))
	}
	if w.kind == mutex && k.chance(0.3) {
		w.name = fmt.Sprintf("kept/%d", k.rng.IntN(2)) // which may be kept by a late session
	}
	command := string(w.kind)
	if w.try {
		command = "try " + command
	}
	c := k.w.begin(k.protocol(), command, w.name, k.limit())
	over := k.w.campaigns.begin(w.name, k.party.owner())
	g, err := k.speaker.acquire(c.ctx, w)
	over()
	c.answered(err)
	if err == nil {
		k.keep(w, g)
	}
}

// keep keeps a hold for a while, does this and that with it, and gives it back.
func (k *worker) keep(w want, g *holding) {
	b := &belief{owner: k.party.String(), token: g.token, exclusive: w.kind != reader && w.kind != semaphore, holds: g.holds}
	if w.kind != semaphore {
		k.w.ledger.believe("default/"+w.name, b)
	}
	_ = sleep(k.w.ctx, k.between(0, time.Second))
	if k.chance(0.1) {
		_ = sleep(k.w.ctx, k.between(0, 10*time.Second))
	}
	ask := func(command string, limit time.Duration, f func(ctx context.Context) error) answer {
		c := k.w.begin(k.protocol(), command, w.name, limit)
		return c.answered(f(c.ctx))
	}
	switch {
	case g.renew != nil && k.chance(0.3):
		ask("renew", 5*time.Second, g.renew)
	case g.extend != nil && w.kind == mutex && k.chance(0.3):
		ask("extend", 5*time.Second, g.extend)
	case g.proclaim != nil && k.chance(0.6):
		value := fmt.Sprint("value ", k.w.marks.unique())
		c := k.w.begin(k.protocol(), "proclaim", w.name, k.limit())
		k.w.marks.expect(trace{core.EventElection, core.VerbProclaimed, w.name, value}, c, c.answered(g.proclaim(c.ctx, value)))
	}
	k.w.ledger.doubt("default/"+w.name, b)
	switch {
	case g.upgrade != nil && k.chance(0.4):
		c := k.w.begin(k.protocol(), "upgrade", w.name, k.between(time.Second, 10*time.Second))
		up, err := g.upgrade(c.ctx)
		if c.answered(err) == done {
			k.keep(want{kind: writer, name: w.name}, up)
			return
		}
	case g.downgrade != nil && k.chance(0.4):
		ask("downgrade", k.limit(), g.downgrade)
		_ = sleep(k.w.ctx, k.between(0, time.Second))
	case g.handOver != nil && k.chance(0.3):
		ask("hand over", 10*time.Second, func(ctx context.Context) error { return g.handOver(ctx, k.w.campaigns.successor(w.name, k.rng)) })
	}
	ask("release "+string(w.kind), 30*time.Second, g.release)
}

// put writes a key, with a value that nobody else writes.
func (k *worker) put() {
	id := k.w.marks.unique()
	name, value, key := fmt.Sprintf("kv/%d", k.rng.IntN(5)), fmt.Sprint("value ", id), ""
	if k.chance(0.1) {
		value += strings.Repeat("x", 40<<10) // snapshots have several pieces
	}
	if k.chance(0.3) && k.protocol() != "go" {
		key = fmt.Sprint("put ", id)
	}
	c := k.w.begin(k.protocol(), "put", name, k.limit())
	a := c.answered(k.speaker.put(c.ctx, name, value, key))
	k.w.marks.expect(trace{core.EventKV, core.VerbPut, name, value}, c, a)
}

// register sets a counter to a number that nobody else sets it to, if it has a certain
// value or in any case.
func (k *worker) register() {
	id := int64(k.w.marks.unique())
	name := fmt.Sprintf("register/%d", k.rng.IntN(2))
	if k.chance(0.5) {
		c := k.w.begin(k.protocol(), "set", name, k.limit())
		a := c.answered(k.speaker.set(c.ctx, name, id))
		k.w.marks.expect(trace{core.EventCounter, core.VerbChanged, name, fmt.Sprint(id)}, c, a)
		return
	}
	old := k.w.truth.number(name)
	c := k.w.begin(k.protocol(), "compare and set", name, k.limit())
	swapped, err := k.speaker.swap(c.ctx, name, old, id)
	a := c.answered(err)
	if a == done && !swapped {
		k.w.count("not swapped")
		a = notDone
	}
	k.w.marks.expect(trace{core.EventCounter, core.VerbChanged, name, fmt.Sprint(id)}, c, a)
}

// reserve takes numbers, which nobody else gets.
func (k *worker) reserve() {
	name, n := fmt.Sprintf("sequence/%d", k.rng.IntN(2)), uint64(1+k.rng.IntN(10))
	c := k.w.begin(k.protocol(), "reserve", name, k.limit())
	first, err := k.speaker.reserve(c.ctx, name, n)
	a := c.answered(err)
	k.w.marks.expect(trace{kind: core.EventSequence, verb: core.VerbReserved, name: name}, c, a)
	if a == done {
		k.w.ledger.numbers(name, first, n)
	}
}

// meet uses latches and barriers, each name for some minutes at most.
func (k *worker) meet() {
	const size = 3
	name := fmt.Sprintf("%d", int(time.Since(k.w.began)/(20*time.Second)))
	switch k.rng.IntN(3) {
	case 0:
		name = "latch/" + name
		c := k.w.begin(k.protocol(), "count down", name, k.limit())
		a := c.answered(k.speaker.countDown(c.ctx, name, size))
		k.w.count("latch counted: " + string(a))
	case 1:
		name = "latch/" + name
		c := k.w.begin(k.protocol(), "wait for latch", name, k.between(time.Second, 10*time.Second))
		if c.answered(k.speaker.open(c.ctx, name, size)) == done && !k.w.truth.happened(core.EventLatch, core.VerbOpened, name) {
			k.w.violate("%s: a wait for %s is answered, which is not open", k.party, name)
		}
	case 2:
		name = "barrier/" + name
		c := k.w.begin(k.protocol(), "arrive", name, k.between(time.Second, 10*time.Second))
		if c.answered(k.speaker.arrive(c.ctx, name, size)) == done && !k.w.truth.happened(core.EventBarrier, core.VerbTripped, name) {
			k.w.violate("%s: an arrival at %s is answered, where not all have come", k.party, name)
		}
	}
}
