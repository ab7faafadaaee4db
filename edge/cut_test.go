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

// A debt that is as large as can be grows to that again with what was lost before the cut ended, which is told with the next
// state: "and never more than 16 · Per + Per / Count + State".
func TestBucketAfterACut_State(t *testing.T) {
	rate := limit.Rate{Count: 19, Per: 2 * time.Second, Burst: 27}
	for _, state := range []time.Duration{time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			hub, each := edgetest.NewHub(edgetest.Faults{}), rate.Per/time.Duration(3*rate.Count)
			var names []string
			var ls []*Limiter
			for i := range 7 {
				names = append(names, fmt.Sprint(i))
				n := open(t, Config{Actor: names[i], Link: hub.Link(names[i]), State: state})
				ls = append(ls, limiter(t, n, LimiterConfig{Rate: rate}))
			}
			pass(2 * time.Second)
			hub.Split(names...)
			offer(t, ls, 55*time.Second, each)
			hub.Heal()
			refused, most := offer(t, ls, 90*time.Second, each), (cutCase{7, 55 * time.Second, 3}).refuses(rate)
			t.Logf("with a state every %s all refuse for %s", state, refused)
			if refused <= most || refused > most+state+time.Second { // until it is here
				t.Errorf("with a state every %s all refuse for %s, of at most %s and that", state, refused, most)
			}
		})
	}
}

// offer has each node asked again and again, and tells for how long at most all of them refused.
func offer(t *testing.T, ls []*Limiter, during, each time.Duration) (refused time.Duration) {
	start := time.Now()
	for last := start; time.Since(start) < during; time.Sleep(each) {
		for _, l := range ls {
			if take(t, l, "k", 1).Allowed {
				refused, last = max(refused, time.Since(last)), time.Now()
			}
		}
	}
	return refused
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
