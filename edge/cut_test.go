package edge

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// cutCase is nodes that cannot hear each other for a while, and are offered load times the rate in all.
type cutCase struct {
	nodes int
	cut   time.Duration
	load  int64
}

// admits is the formula of docs/limits.md for what they admit meanwhile.
func (c cutCase) admits(r limit.Rate) int64 {
	return int64(c.nodes) * (r.Burst + int64(c.cut*time.Duration(r.Count)/r.Per))
}

// refuses is the formula of docs/limits.md for how long each refuses afterwards.
func (c cutCase) refuses(r limit.Rate) time.Duration {
	one := r.Per / time.Duration(r.Count)
	if c.load <= 1 {
		return c.cut + one
	}
	return min(time.Duration(c.nodes-1)*(c.cut+time.Duration(r.Burst)*one), maxDebtWindows*r.Per) + one
}

// run is what was admitted in the cut, and how long each node refuses once it has heard of it.
func (c cutCase) run(t *testing.T, r limit.Rate) (admitted int64, refused []time.Duration) {
	hub := edgetest.NewHub(edgetest.Faults{})
	var names []string
	var ls []*Limiter
	for i := range c.nodes {
		names = append(names, fmt.Sprint(i))
		n := open(t, Config{Actor: names[i], Link: hub.Link(names[i]), State: time.Second})
		ls = append(ls, limiter(t, n, LimiterConfig{Rate: r}))
	}
	pass(2 * time.Second)
	hub.Split(names...)
	each := r.Per / time.Duration(r.Count*c.load)
	for i := range int(c.cut / each) {
		if take(t, ls[i%c.nodes], "k", 1).Allowed {
			admitted++
		}
		time.Sleep(each)
	}
	hub.Heal()
	healed := time.Now()
	pass(2 * time.Second)
	for _, l := range ls {
		wait := time.Duration(0)
		if d := take(t, l, "k", 1); !d.Allowed {
			wait = time.Since(healed) + d.RetryAfter
		}
		refused = append(refused, wait)
	}
	return admitted, refused
}

// "While N nodes cannot hear each other": what they admit, and for how long they refuse afterwards, is at most what the
// formula says, and near it where they are offered more than the rate.
func TestBucketAfterACut(t *testing.T) {
	rate := limit.Rate{Count: 10, Per: 10 * time.Second, Burst: 5}
	for _, c := range []cutCase{{2, 20 * time.Second, 20}, {3, 20 * time.Second, 20}, {5, 20 * time.Second, 50}, {5, time.Minute, 50}, {3, 20 * time.Second, 1}, {5, 20 * time.Second, 1}} {
		synctest.Test(t, func(t *testing.T) {
			admitted, refused := c.run(t, rate)
			t.Logf("%+v: %d of at most %d, then refused for %s of at most %s", c, admitted, c.admits(rate), refused, c.refuses(rate))
			if most := c.admits(rate); admitted > most || c.load > 1 && admitted < most*9/10 {
				t.Errorf("%+v: %d were admitted, of at most %d", c, admitted, most)
			}
			for _, wait := range refused {
				if most := c.refuses(rate) + 2*time.Second; wait > most || c.load > 1 && wait < most*8/10 { // until all have heard
					t.Errorf("%+v: it refuses for %s, of at most %s", c, wait, most)
				}
			}
		})
	}
}
