package world

import (
	"fmt"
	"math/rand/v2"
	"time"
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

func (k *worker) work() {
	switch k.rng.IntN(2) {
	case 0:
		k.add()
	case 1:
		k.lock()
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

// lock takes a lock for a while, or tries to.
func (k *worker) lock() {
	name := fmt.Sprintf("lock/%d", k.rng.IntN(3))
	try := k.chance(0.2)
	command := "lock"
	if try {
		command = "try lock"
	}
	c := k.w.begin(k.protocol(), command, name, k.limit())
	g, err := k.speaker.lock(c.ctx, name, try)
	c.answered(err)
	if err == nil {
		k.keep(name, g, true)
	}
}

// keep keeps a hold for a while, then gives it back.
func (k *worker) keep(name string, g *grip, exclusive bool) {
	b := &belief{owner: k.party.String(), token: g.token, exclusive: exclusive, holds: g.holds}
	k.w.ledger.believe(name, b)
	_ = sleep(k.w.ctx, k.between(0, time.Second))
	if k.chance(0.1) {
		_ = sleep(k.w.ctx, k.between(0, 10*time.Second))
	}
	k.w.ledger.doubt(name, b)
	c := k.w.begin(k.protocol(), "release", name, 30*time.Second)
	c.answered(g.release(c.ctx))
}
