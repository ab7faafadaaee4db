package limit_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// block is what somebody has taken ahead.
type block struct {
	limit.Reservation
	used int64 // or gone
}

// crowd takes, waits, takes blocks and uses them later, and keeps every use.
type crowd struct {
	t      *testing.T
	rate   limit.Rate
	state  limit.State
	now    int64
	blocks []block
	twin
}

func newCrowd(t *testing.T, rnd *rand.Rand) *crowd {
	c := &crowd{t: t, rate: limit.Rate{Count: 1 + rnd.Int64N(50), Per: time.Duration(1 + rnd.Int64N(1e4)), Burst: 1 + rnd.Int64N(60)}}
	c.rate.Per += limit.MinPer
	c.twin = twin{count: c.rate.Count, per: int64(c.rate.Per), burst: c.rate.Burst, kind: "bucket"}
	return c
}

func (c *crowd) step(rnd *rand.Rand) {
	if rnd.IntN(3) > 0 {
		c.now += rnd.Int64N(int64(c.rate.Per) / 4)
	}
	switch cost := 1 + rnd.Int64N(c.rate.Burst); rnd.IntN(7) {
	case 0, 1:
		var d limit.Decision
		if c.state, d = limit.Take(c.rate, c.state, c.now, 1+cost/8); d.Allowed {
			c.use(c.now, 1+cost/8)
		}
	case 2:
		c.wait(rnd, 1+cost/8)
	case 3:
		s, v, d := limit.Decide(c.rate, c.state, c.now, limit.Ask{Cost: cost, Ahead: time.Duration(1 + rnd.Int64N(int64(c.rate.Per)))})
		if c.state = s; d.Allowed {
			c.blocks = append(c.blocks, block{Reservation: v})
		}
	case 4, 5:
		c.spend(rnd)
	case 6:
		c.giveBack(rnd)
	}
}

func (c *crowd) use(at, cost int64) { c.all = append(c.all, admission{at, cost}) }

func (c *crowd) wait(rnd *rand.Rand, cost int64) {
	within := time.Duration(rnd.Int64N(int64(c.rate.Per)))
	s, _, d := limit.Decide(c.rate, c.state, c.now, limit.Ask{Cost: cost, Wait: within})
	c.state = s
	if !d.Allowed {
		return
	}
	if d.RetryAfter > within {
		c.t.Fatalf("a wait of at most %d is told %d", within, d.RetryAfter)
	}
	c.use(c.now+int64(d.RetryAfter), cost)
}

// spend uses something of a block, as far as it is still there.
func (c *crowd) spend(rnd *rand.Rand) {
	if len(c.blocks) == 0 {
		return
	}
	b := &c.blocks[rnd.IntN(len(c.blocks))]
	b.used = max(b.used, b.Cost-limit.Usable(c.rate, b.Reservation, c.now))
	if left := b.Cost - b.used; left > 0 {
		n := 1 + rnd.Int64N(left)
		b.used += n
		c.use(c.now, n)
	}
}

func (c *crowd) giveBack(rnd *rand.Rand) {
	if len(c.blocks) == 0 {
		return
	}
	i := rnd.IntN(len(c.blocks))
	b := c.blocks[i]
	c.state = limit.Return(c.rate, c.state, c.now, b.Reservation, b.Cost-b.used)
	c.blocks = slices.Delete(c.blocks, i, i+1)
}

// judge looks at every time from one use to another. A wait ends at a whole nanosecond, and what is
// given back beside it is noted in whole ones, so that it may be two shorter: one in 80,000 schedules is.
func (c *crowd) judge() bool {
	slices.SortStableFunc(c.all, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	for i := range c.all {
		var sum int64
		for _, a := range c.all[i:] {
			if sum += a.cost; !c.within(sum, c.burst, a.at-c.all[i].at+2) {
				return false
			}
		}
	}
	return true
}

// TestAheadAgainstTwin: takes, waits, and blocks that are used later, by when they were
// used: never more than the burst and the rate in any time.
func TestAheadAgainstTwin(t *testing.T) {
	uses := 0
	for seed := range uint64(*schedules) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		c := newCrowd(t, rnd)
		for range 40 {
			c.step(rnd)
		}
		uses += len(c.all)
		if !c.judge() {
			t.Fatalf("seed %d: %s: more than the rate in some time: %v", seed, c.rate, c.all)
		}
	}
	if uses < 10**schedules {
		t.Errorf("%d uses in all: the rest is refused", uses)
	}
	t.Logf("proof: limit: %s: %d schedules, %d uses", t.Name(), *schedules, uses)
}

// TestReturnGivesBack: of a bucket that nobody else uses all of it.
func TestReturnGivesBack(t *testing.T) {
	rate := limit.Rate{Count: 100, Per: time.Second}
	s, v, _ := limit.Decide(rate, limit.State{}, 0, limit.Ask{Cost: 50, Ahead: 500 * time.Millisecond})
	if got := limit.Peek(rate, s, 0, 1).Remaining; got != 0 {
		t.Errorf("%d are left beside a block of 50 that is half a second ahead", got)
	}
	if got := limit.Usable(rate, v, int64(500*time.Millisecond)); got != 50 {
		t.Errorf("of 50, %d can be used half a second later", got)
	}
	s = limit.Return(rate, s, int64(100*time.Millisecond), v, 40)
	if got := limit.Peek(rate, s, int64(100*time.Millisecond), 1).Remaining; got != 49 { // 10 by time, 40 given back
		t.Errorf("after 40 were given back %d are left", got)
	}
}

// TestWindowBlocks: a block of a window can be used until its end, one of a sliding
// window or log at once only.
func TestWindowBlocks(t *testing.T) {
	for algorithm, want := range map[limit.Algorithm][2]int64{limit.FixedWindow: {5, 0}, limit.SlidingWindow: {0, 0}, limit.SlidingLog: {0, 0}} {
		rate := limit.Rate{Count: 10, Per: time.Second, Algorithm: algorithm}
		_, v, _ := limit.Decide(rate, limit.State{}, 0, limit.Ask{Cost: 5, Ahead: time.Second})
		if got := [2]int64{limit.Usable(rate, v, 1), limit.Usable(rate, v, int64(time.Second))}; got != want {
			t.Errorf("%s: usable are %v, not %v", algorithm, got, want)
		}
		if got := limit.Usable(rate, v, 0); got != 5 {
			t.Errorf("%s: at once %d are usable", algorithm, got)
		}
	}
}

func TestEqualRates(t *testing.T) {
	r := limit.Rate{Count: 5, Per: time.Second}
	if !r.Equal(limit.Rate{Count: 5, Per: time.Second, Burst: 5, Initial: 5, Name: "x"}) {
		t.Error("defaults that are spelled out make another rate")
	}
	if r.Equal(limit.Rate{Count: 5, Per: time.Second, Burst: 6}) || r.Equal(limit.Rate{Count: 5, Per: 2 * time.Second}) {
		t.Error("rates that differ are equal")
	}
}

// TestGivingBackKeepsWhatOthersUseLater: what one caller gives back is not taken anew
// beside a block or a wait of another that came after it.
func TestGivingBackKeepsWhatOthersUseLater(t *testing.T) {
	rate := limit.Rate{Count: 1000, Per: time.Second, Burst: 20}
	at := int64(10 * time.Millisecond)

	s, a, _ := limit.Decide(rate, limit.State{}, 0, limit.Ask{Cost: 10, Ahead: 1})
	s, b, _ := limit.Decide(rate, s, 0, limit.Ask{Cost: 10, Ahead: 1})
	s = limit.Return(rate, s, 0, a, 5)
	if n := limit.Usable(rate, b, at) + limit.Peek(rate, s, at, 1).Remaining; n > 20 {
		t.Errorf("beside a block %d can be used at once; the burst is 20", n)
	}

	s, a, _ = limit.Decide(rate, limit.State{}, 0, limit.Ask{Cost: 20})
	s, _, d := limit.Decide(rate, s, 0, limit.Ask{Cost: 10, Wait: time.Second})
	s = limit.Cancel(rate, s, 0, a)
	if n := d.Asked + limit.Peek(rate, s, at, 1).Remaining; n > 20 || int64(d.RetryAfter) != at {
		t.Errorf("beside a wait %d can be used at once; the burst is 20", n)
	}
}
