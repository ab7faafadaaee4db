package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// ten is ten in ten seconds.
var ten = limit.Rate{Count: 10, Per: 10 * time.Second, Algorithm: limit.FixedWindow}

func open(t testing.TB, c Config) *Node {
	t.Helper()
	n, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func limiter(t testing.TB, n *Node, c LimiterConfig) *Limiter {
	t.Helper()
	l, err := n.Limiter("l", c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t testing.TB, l *Limiter, key string, cost int64) limit.Decision {
	d, err := l.Take(key, time.Now(), cost)
	if err != nil {
		t.Helper() // it takes longer than a decision
		t.Fatal(err)
	}
	return d
}

func add(t testing.TB, n *Node, name string, by uint64) {
	c, err := n.Counter(name)
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
	c.Add(by)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// cluster is nodes a, b, c … on a hub, with a limiter each.
func cluster(t testing.TB, hub *edgetest.Hub, count int, c LimiterConfig) (nodes []*Node, limiters []*Limiter) {
	for i := range count {
		name := fmt.Sprintf("n%02d", i)
		nodes = append(nodes, open(t, Config{Actor: name, Link: hub.Link(name)}))
		limiters = append(limiters, limiter(t, nodes[i], c))
	}
	pass(time.Second)
	return nodes, limiters
}

// TestTenthAndEleventh: ten requests spread over three nodes are allowed, the
// eleventh is denied on each, and the next window begins empty.
func TestTenthAndEleventh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ls := cluster(t, edgetest.NewHub(edgetest.Faults{}), 3, LimiterConfig{Rate: ten})
		for i := range 10 {
			if d := take(t, ls[i%3], "k", 1); !d.Allowed || d.Remaining != int64(9-i) {
				t.Fatalf("request %d: %+v", i+1, d)
			}
			pass(200 * time.Millisecond)
		}
		for _, l := range ls {
			if d := take(t, l, "k", 1); d.Allowed || d.RetryAfter != 7*time.Second {
				t.Fatalf("the eleventh: %+v", d)
			}
		}
		pass(7 * time.Second)
		if d := take(t, ls[1], "k", 10); !d.Allowed {
			t.Fatalf("in the next window: %+v", d)
		}
	})
}

// TestPriceOfPartition: nodes apart admit their caps each, whatever is asked; what
// was too much is owed once they hear of each other.
func TestPriceOfPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		_, ls := cluster(t, hub, 5, LimiterConfig{Rate: ten, LocalCap: 4, MaxDebt: 50})
		hub.Split("n00", "n01", "n02", "n03", "n04")
		if got := drain(t, ls); got != 5*4 {
			t.Fatalf("apart, %d were admitted", got)
		}
		d := take(t, ls[0], "k", 1)
		if d.Allowed || d.RetryAfter != 9*time.Second {
			t.Fatalf("above the cap: %+v", d)
		}
		hub.Heal()
		pass(9 * time.Second) // the states of the first window come in the second
		pass(8 * time.Second)
		if d := take(t, ls[0], "k", 1); d.Allowed || d.RetryAfter != 2*time.Second {
			t.Fatalf("a window that owes all it has: %+v", d)
		}
		pass(2 * time.Second)
		if got := drain(t, ls); got < 10 {
			t.Fatalf("after paying, %d were admitted", got)
		}
	})
}

// drain asks every node for more than it has and counts what is admitted.
func drain(t testing.TB, ls []*Limiter) (admitted int) {
	for _, l := range ls {
		for range 20 {
			if take(t, l, "k", 1).Allowed {
				admitted++
			}
		}
	}
	return admitted
}

// TestAgainstModel: a model that keeps every operation and knows nothing of rolling
// decides the same, also after pauses, with charges and caps.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c := LimiterConfig{Rate: limit.Rate{Count: 1 + rng.Int64N(20), Per: time.Second, Algorithm: limit.FixedWindow}}
		c.MaxDebt = rng.Int64N(16 * c.Rate.Count)
		if rng.IntN(2) == 0 {
			c.LocalCap = 1 + rng.Int64N(c.Rate.Count)
		}
		l := newLimiter(&Node{}, "l", c)
		used := map[int64]int64{}
		now := time.Unix(1000, 0)
		for range 60 {
			now = now.Add(time.Duration(rng.IntN(1500)) * time.Millisecond)
			if rng.IntN(10) == 0 {
				now = now.Add(time.Duration(rng.IntN(8)) * time.Second)
			}
			judge(t, seed, rng, l, now, used)
		}
	}
}

func judge(t *testing.T, seed uint64, rng *rand.Rand, l *Limiter, now time.Time, used map[int64]int64) {
	e, cost := now.Unix(), rng.Int64N(8)
	if rng.IntN(6) == 0 {
		if err := l.Charge("k", now, cost); err != nil {
			t.Fatal(err)
		}
		used[e] += cost
		return
	}
	d, err := l.Take("k", now, cost)
	if err != nil {
		t.Fatal(err)
	}
	if want := admits(l, used, e, cost); d.Allowed != want {
		t.Fatalf("seed %d: at %s with %v, %+v: a cost of %d: %+v, not %t", seed, now, used, l.config, cost, d, want)
	}
	if !d.Allowed && d.RetryAfter != limit.Never && !admits(l, used, now.Add(d.RetryAfter).Unix(), cost) {
		t.Fatalf("seed %d: at %s with %v, %+v: a cost of %d does not fit after %s", seed, now, used, l.config, cost, d.RetryAfter)
	}
	if d.Allowed {
		used[e] += cost
	}
}

// admits pays the debt of every window since the beginning.
func admits(l *Limiter, used map[int64]int64, epoch, cost int64) bool {
	c, debt := l.config, int64(0)
	most := c.MaxDebt
	if most == 0 {
		most = c.Rate.Count
	}
	for e := int64(1000); e < epoch; e++ {
		debt = min(max(debt+used[e]-c.Rate.Count, 0), most)
	}
	alone := c.LocalCap == 0 || used[epoch]+cost <= c.LocalCap
	return debt+used[epoch]+cost <= c.Rate.Count && alone
}

// TestFixedWindowIsLimits: a fixed window is decided as package limit does.
func TestFixedWindowIsLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	allowed := 0
	for range 100_000 {
		rate := limit.Rate{Count: 1 + rng.Int64N(20), Per: time.Duration(1 + rng.IntN(50)), Algorithm: limit.FixedWindow, Name: "n"}
		e := entry{epoch: rng.Int64N(40) - 20}
		begin := e.epoch * int64(rate.Per)
		used, now, cost := rng.Int64N(25), begin-3+rng.Int64N(int64(rate.Per)+3), rng.Int64N(25)-2
		var got limit.Decision
		e.ask(&rate, used, 0, now, cost, &got)
		_, want := limit.Take(rate, limit.State{Known: true, At: begin, Used: used}, now, cost)
		if got != want {
			t.Fatalf("%s, %d used, %d after %d, a cost of %d: %+v, not %+v", rate, used, now, begin, cost, got, want)
		}
		if got.Allowed {
			allowed++
		}
	}
	if allowed < 10_000 {
		t.Fatalf("only %d were allowed", allowed)
	}
}

// TestSlidingWindow: half into a window, half of the one before counts, of all nodes.
func TestSlidingWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := ten
		rate.Algorithm = limit.SlidingWindow
		_, ls := cluster(t, edgetest.NewHub(edgetest.Faults{}), 2, LimiterConfig{Rate: rate})
		take(t, ls[0], "k", 8)
		pass(14 * time.Second)
		if d := take(t, ls[1], "k", 0); d.Remaining != 6 {
			t.Fatalf("in the middle of the next window: %+v", d)
		}
	})
}

// TestRestart: a node that begins anew under its name is a new incarnation, and its
// old counts stay.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a, b := open(t, Config{Actor: "a", Link: hub.Link("a")}), open(t, Config{Actor: "b", Link: hub.Link("b"), OnConflict: func(c crdt.Actor) { t.Errorf("conflict of %s", c) }})
		add(t, a, "x", 5)
		pass(time.Second)
		a.Close()
		a = open(t, Config{Actor: "a", Link: hub.Link("a")})
		add(t, a, "x", 2)
		pass(time.Second)
		if a.Count("x") != 7 || b.Count("x") != 7 {
			t.Fatalf("%d and %d, not 7", a.Count("x"), b.Count("x"))
		}
	})
}

// TestJoin: a node that comes late, and a limiter that is opened late, ask for what
// they have missed.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a := open(t, Config{Actor: "a", Link: hub.Link("a"), State: time.Hour})
		la := limiter(t, a, LimiterConfig{Rate: ten})
		add(t, a, "x", 5)
		take(t, la, "k", 3)
		pass(time.Second)
		b := open(t, Config{Actor: "b", Link: hub.Link("b"), State: time.Hour})
		pass(time.Second)
		if b.Count("x") != 5 {
			t.Fatalf("%d, not 5", b.Count("x"))
		}
		lb := limiter(t, b, LimiterConfig{Rate: ten})
		pass(time.Second)
		if got := lb.AllCounts(time.Now()); len(got) != 1 || got["k"] != 3 {
			t.Fatalf("%v", got)
		}
	})
}

// TestLinkDown: what a link refused is sent when it works again, before any state.
func TestLinkDown(t *testing.T) {
	for _, joined := range []time.Duration{0, 3 * time.Second} { // a node that has yet to tell its state tells all in any case
		synctest.Test(t, func(t *testing.T) {
			hub := edgetest.NewHub(edgetest.Faults{})
			hub.Down("a", joined == 0)
			a := open(t, Config{Actor: "a", Link: hub.Link("a"), State: time.Hour})
			b := open(t, Config{Actor: "b", Link: hub.Link("b"), State: time.Hour})
			la, lb := limiter(t, a, LimiterConfig{Rate: ten}), limiter(t, b, LimiterConfig{Rate: ten})
			add(t, b, "y", 1)
			pass(joined)
			hub.Down("a", true)
			add(t, a, "x", 5)
			take(t, la, "k", 3)
			pass(time.Second)
			hub.Down("a", false)
			pass(time.Second)
			if b.Count("x") != 5 || lb.Count("k", time.Now()) != 3 || a.Count("y") != 1 {
				t.Fatalf("down after %s: %d, %d, %d", joined, b.Count("x"), lb.Count("k", time.Now()), a.Count("y"))
			}
			if a.Stats().SendErrors == 0 {
				t.Fatal("no failure was counted")
			}
		})
	}
}

// TestStartTogether: many nodes that start one after the other, and ask, do not make
// all others tell all they know each time.
func TestStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		var nodes []*Node
		for i := range 60 {
			name := fmt.Sprintf("n%02d", i)
			nodes = append(nodes, open(t, Config{Actor: name, Link: hub.Link(name), State: time.Hour}))
			add(t, nodes[i], "x", 1)
			pass(100 * time.Millisecond)
		}
		pass(3 * time.Second)
		// Six seconds, in which each may tell its state every 1.2 s at the end, and a delta.
		// What is smaller than either says only what its total is.
		states := 0
		for _, d := range hub.Delivered() {
			if d.From == "n00" && d.To == "n01" && d.Size > 50 {
				states++
			}
		}
		if sent := nodes[0].Stats().Sent; states > 20 || sent > 62 {
			t.Errorf("the first node sent %d messages, of which %d have counts", sent, states)
		}
		for _, n := range nodes {
			if n.Count("x") != 60 {
				t.Errorf("%s has %d", n.Actor(), n.Count("x"))
			}
		}
	})
}

// TestConflict: a second node of one name is reported once, by all that can tell.
func TestConflict(t *testing.T) {
	for _, incarnation := range []uint64{0, 7} {
		synctest.Test(t, func(t *testing.T) {
			hub := edgetest.NewHub(edgetest.Faults{})
			reports := map[string][]crdt.Actor{}
			run := func(id, actor string) *Node {
				time.Sleep(time.Second)
				c := Config{Actor: actor, Link: hub.Link(id), OnConflict: func(a crdt.Actor) { reports[id] = append(reports[id], a) }}
				if actor == "twin" {
					c.Incarnation = incarnation
				}
				return open(t, c)
			}
			run("other", "other")
			first := run("first", "twin")
			second := run("second", "twin")
			for range 60 {
				add(t, first, "x", 1)
				add(t, second, "x", 2)
				pass(time.Second)
			}
			if want := []crdt.Actor{second.Actor()}; !slices.Equal(reports["first"], want) {
				t.Fatalf("incarnation %d: the first reported %v", incarnation, reports)
			}
			if incarnation != 0 && (len(reports["second"]) != 1 || len(reports["other"]) != 1) {
				t.Fatalf("reported: %v", reports)
			}
			if want := []crdt.Actor{first.Actor()}; incarnation == 0 && (!slices.Equal(reports["second"], want) || !slices.Equal(reports["other"], want)) {
				t.Fatalf("of the first reported: %v", reports)
			}
			if incarnation == 0 && first.Count("x") != 180 {
				t.Fatalf("two incarnations of one name count %d, not 180", first.Count("x"))
			}
		})
	}
}

// "Reported after three times State and 10 s".
func TestConflict_OfAnOlderNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		var began, told time.Time
		open(t, Config{Actor: "other", State: time.Second, Link: hub.Link("other"), OnConflict: func(crdt.Actor) { told = time.Now() }})
		open(t, Config{Actor: "twin", State: time.Second, Link: hub.Link("first")})
		pass(5 * time.Second)
		began = time.Now()
		open(t, Config{Actor: "twin", State: time.Second, Link: hub.Link("second")})
		pass(30 * time.Second)
		if after := told.Sub(began); after < 13*time.Second || after > 15*time.Second {
			t.Errorf("with a State of 1 s it is told after %s", after)
		}
	})
}

// TestReusedIncarnation: a node that lost its counts and goes on under the same
// incarnation agrees with the others and reports it.
func TestReusedIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a, b := open(t, Config{Actor: "a", Incarnation: 1, Link: hub.Link("a")}), open(t, Config{Actor: "b", Link: hub.Link("b")})
		add(t, a, "x", 5)
		pass(time.Second)
		a.Close()
		a = open(t, Config{Actor: "a", Incarnation: 1, Link: hub.Link("a")})
		add(t, a, "x", 2)
		pass(30 * time.Second)
		if a.Count("x") != 5 || b.Count("x") != 5 || a.Stats().Conflicts != 1 {
			t.Fatalf("%d, %d, %+v", a.Count("x"), b.Count("x"), a.Stats())
		}
	})
}

// TestLateCounts: what was counted at the end of a window and comes in the next one
// counts in the window it was taken in, and what it was too much is owed.
func TestLateCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		_, ls := cluster(t, hub, 2, LimiterConfig{Rate: ten})
		pass(8990 * time.Millisecond)
		take(t, ls[0], "k", 10)
		take(t, ls[1], "k", 4)
		hub.Split("n00", "n01")
		pass(20 * time.Millisecond)
		take(t, ls[1], "k", 1)
		hub.Heal()
		hub.Down("n01", true) // so that n00 does not move on by what it hears
		pass(9900 * time.Millisecond)
		if got, before := ls[1].Count("k", time.Now()), ls[1].Count("k", time.Now().Add(-10*time.Second)); got != 1 || before != 14 {
			t.Fatalf("%d now and %d before", got, before)
		}
		if d := take(t, ls[1], "k", 0); d.Remaining != 5 {
			t.Fatalf("one was taken and four are owed: %+v", d)
		}
	})
}

// interrupted is a link that has something done while a message is built: before it
// is sent, the counter is added to.
type interrupted struct {
	tape
	during func()
}

func (l *interrupted) Send(m []byte) error {
	if l.during != nil {
		l.during()
	}
	return l.tape.Send(m)
}

// TestAdditionDuringFlush: an addition while the flush sends is in the next one.
func TestAdditionDuringFlush(t *testing.T) {
	link := &interrupted{}
	n := open(t, Config{Actor: "a", Link: link, MaxMessage: 1})
	n.Close()
	add(t, n, "x", 1)
	link.during = func() { add(t, n, "x", 1); link.during = nil }
	n.flush(false, false)
	n.flush(false, false)
	other, _ := listener(t)
	for _, m := range link.sent {
		other.receive(m)
	}
	if other.Count("x") != 2 {
		t.Fatalf("%d arrived of 2", other.Count("x"))
	}
}

// TestClockFarOff: a node in 2099 limits nobody but itself, and is well once its
// clock is.
func TestClockFarOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		var skew atomic.Int64
		skew.Store(int64(99 * 365 * 24 * time.Hour))
		clock := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
		a := open(t, Config{Actor: "a", Link: hub.Link("a"), Now: clock})
		b := open(t, Config{Actor: "b", Link: hub.Link("b")})
		la, lb := limiter(t, a, LimiterConfig{Rate: ten}), limiter(t, b, LimiterConfig{Rate: ten})
		for _, key := range []string{"k", "own"} {
			if d, err := la.Take(key, clock(), 10); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		pass(time.Second)
		if d := take(t, lb, "k", 10); !d.Allowed || b.Stats().Skewed == 0 {
			t.Fatalf("%+v, %+v", d, b.Stats())
		}
		skew.Store(0)
		if d := take(t, la, "own", 1); !d.Allowed {
			t.Fatalf("at once when the clock is right again: %+v", d)
		}
		pass(10 * time.Second)
		if d := take(t, la, "k", 1); !d.Allowed {
			t.Fatalf("the clock is right again: %+v", d)
		}
	})
}

// TestOtherWindows: counts of a limiter with other windows are ignored and counted.
func TestOtherWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a, b := open(t, Config{Actor: "a", Link: hub.Link("a")}), open(t, Config{Actor: "b", Link: hub.Link("b")})
		minute := ten
		minute.Per = time.Minute
		la, lb := limiter(t, a, LimiterConfig{Rate: ten}), limiter(t, b, LimiterConfig{Rate: minute})
		take(t, la, "k", 10)
		pass(time.Second)
		if lb.Count("k", time.Now()) != 0 || b.Stats().Mismatched == 0 {
			t.Fatalf("%+v", b.Stats())
		}
	})
}
