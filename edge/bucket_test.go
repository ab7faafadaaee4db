package edge

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

var gcra = limit.Rate{Count: 10, Per: 10 * time.Second, Burst: 5}

// TestBucketAlone: a node alone decides as package limit does.
func TestBucketAlone(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 5))
		rate := limit.Rate{Count: 1 + rng.Int64N(20), Per: time.Duration(1+rng.IntN(100)) * time.Second, Burst: 1 + rng.Int64N(20), Algorithm: limit.Algorithm(rng.IntN(2))}
		l, state, now := newLimiter(&Node{}, "l", LimiterConfig{Rate: rate}), limit.State{}, time.Unix(10_000, 0)
		for range 100 {
			now = now.Add(time.Duration(rng.Int64N(int64(2 * rate.Per / time.Duration(rate.Count)))))
			cost := rng.Int64N(rate.Burst + 2)
			got, err := l.Take("k", now, cost)
			var want limit.Decision
			if state, want = limit.Take(rate, state, now.UnixNano(), cost); err != nil || got != want {
				t.Fatalf("seed %d: a cost of %d: %+v, %v, not %+v", seed, cost, got, err, want)
			}
		}
	}
}

// TestBucketsTogether: what all nodes take comes out of one bucket, also what comes
// late, is repeated or was taken before a node came.
func TestBucketsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{Repeat: 50, MaxDelay: 50 * time.Millisecond})
		_, ls := cluster(t, hub, 3, LimiterConfig{Rate: gcra})
		for i := range 5 {
			if d := take(t, ls[i%3], "k", 1); !d.Allowed {
				t.Fatalf("of a burst of 5 number %d: %+v", i+1, d)
			}
			pass(200 * time.Millisecond) // in all of it one comes back
		}
		if d := take(t, ls[2], "k", 2); d.Allowed {
			t.Fatalf("above the burst: %+v", d)
		}
		late := limiter(t, open(t, Config{Actor: "late", Link: hub.Link("late")}), LimiterConfig{Rate: gcra})
		pass(400 * time.Millisecond)
		if d := take(t, late, "k", 3); d.Allowed {
			t.Fatalf("a node that came late: %+v", d)
		}
		pass(5 * time.Second)
		if d := take(t, late, "k", 5); !d.Allowed {
			t.Fatalf("after a pause: %+v", d)
		}
	})
}

// TestBucketOfAJoiner: a node that joins others that use a bucket at its rate, for more or
// less than a window, admits what the rate still allows and soon no more than that.
func TestBucketOfAJoiner(t *testing.T) {
	for _, before := range []time.Duration{30 * time.Second, 60 * time.Second, 95 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			hub := edgetest.NewHub(edgetest.Faults{})
			rate := LimiterConfig{Rate: limit.Rate{Count: 10, Per: time.Second, Burst: 10}}
			a := limiter(t, open(t, Config{Actor: "a", Link: hub.Link("a")}), rate)
			began, admitted := time.Now(), int64(0)
			one := func(l *Limiter) {
				if take(t, l, "k", 1).Allowed {
					admitted++
				}
			}
			for time.Since(began) < before {
				one(a)
				pass(100 * time.Millisecond)
			}
			b := limiter(t, open(t, Config{Actor: "b", Link: hub.Link("b")}), rate)
			pass(500 * time.Millisecond)
			was := admitted
			for range 100 { // together at the rate
				one(a)
				pass(100 * time.Millisecond)
				one(b)
				pass(100 * time.Millisecond)
			}
			if got := admitted - was; got < 195 {
				t.Errorf("after %s at the rate a joiner and the other admit %d of 200", before, got)
			}
			was = admitted
			for range 300 { // together at four times the rate
				for range 2 {
					one(a)
					one(b)
				}
				pass(100 * time.Millisecond)
			}
			if got := admitted - was; got > 350 {
				t.Errorf("after %s at the rate a joiner and the other admit %d in 30 s, of 300", before, got)
			}
		})
	}
}

// TestBucketOfABusyJoiner: a node that joins while others use a bucket below its rate, so
// that what it hears of a key first is what was taken just now, refuses nothing and finds
// nothing to be too much.
func TestBucketOfABusyJoiner(t *testing.T) {
	const flush = 500 * time.Millisecond // half an hour of flushes costs the most
	for name := range networks() {       // each in a time of its own: nodes of the one before would go on
		synctest.Test(t, func(t *testing.T) {
			to := networks()[name]
			time.Sleep(45 * time.Minute) // before there is a node: it costs nothing
			rate := LimiterConfig{Rate: limit.Rate{Count: 3600, Per: time.Hour, Burst: 60}}
			var others []*Limiter
			for _, n := range []string{"a", "c"} {
				others = append(others, limiter(t, open(t, Config{Actor: n, Link: to(n), Flush: flush, State: time.Minute}), rate))
			}
			use := func(each time.Duration, ls ...*Limiter) {
				for _, l := range ls {
					if d := take(t, l, "k", 1); !d.Allowed {
						t.Fatalf("%s: %s refuses below the rate: %+v", name, l.node.Actor(), d)
					}
					pass(each)
				}
			}
			for range 450 { // 30 minutes, half of them in the window before, at half the rate
				use(2*time.Second, others...)
			}
			b := limiter(t, open(t, Config{Actor: "b", Link: to("b"), Flush: flush, State: time.Minute}), rate)
			for i := range 4 * 57 { // nearly the burst of a key that is dirty with every flush
				use(3*time.Millisecond, others[0])
				pass(27 * time.Millisecond)
				if i%57 == 56 {
					pass(57 * time.Second) // so that all of it stays below the rate
					use(0, b)
				}
			}
			if over := b.Stats().Over; over > 0 {
				t.Errorf("%s: %d were found to be too many", name, over)
			}
		})
	}
}

// TestStartInTwoParts: what nodes that have heard of each other admit while they are apart is owed,
// also in the first two windows after they began.
func TestStartInTwoParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		time.Sleep(30 * time.Minute) // much of the window was before
		var ls []*Limiter
		for _, name := range []string{"n00", "n01"} {
			n := open(t, Config{Actor: name, Link: hub.Link(name)})
			ls = append(ls, limiter(t, n, LimiterConfig{Rate: limit.Rate{Count: 3600, Per: time.Hour, Burst: 60}}))
			pass(time.Second) // one is earlier
		}
		for _, l := range ls {
			take(t, l, "k", 1)
		}
		pass(time.Second)
		hub.Split("n00", "n01")
		for _, l := range ls {
			take(t, l, "k", 58)
		}
		pass(time.Second)
		hub.Heal()
		pass(15 * time.Second)
		for _, l := range ls {
			if d := take(t, l, "k", 1); d.Allowed || d.RetryAfter < 40*time.Second {
				t.Errorf("%s: 118 of a burst of 60 were taken: %+v", l.node.Actor(), d)
			}
		}
	})
}

// TestStrangerOwes: what a node took that began no earlier than this one is charged when it comes,
// however long it was not heard.
func TestStrangerOwes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		time.Sleep(30 * time.Minute)
		hub.Split("n00", "n01")
		_, ls := cluster(t, hub, 2, LimiterConfig{Rate: limit.Rate{Count: 3600, Per: time.Hour, Burst: 60}})
		for _, l := range ls {
			take(t, l, "k", 59)
		}
		pass(time.Second)
		hub.Heal()
		pass(15 * time.Second)
		if d := take(t, ls[0], "k", 1); d.Allowed || d.RetryAfter < 40*time.Second {
			t.Errorf("118 of a burst of 60 were taken: %+v", d)
		}
	})
}

// TestBucketOwes: nodes that were apart pay for what they admitted too much, at most
// MaxDebt, and it is counted.
func TestBucketOwes(t *testing.T) {
	for debt, wait := range map[int64]time.Duration{0: 20 * time.Second, 3: 8 * time.Second, -1: 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			hub := edgetest.NewHub(edgetest.Faults{})
			_, ls := cluster(t, hub, 5, LimiterConfig{Rate: gcra, MaxDebt: debt})
			hub.Split("n00", "n01", "n02", "n03", "n04")
			if got := drain(t, ls); got != 25 {
				t.Fatalf("apart, %d were admitted", got)
			}
			hub.Heal()
			began := time.Now()
			pass(10 * time.Second) // the states
			d := take(t, ls[0], "k", 5)
			switch since := time.Since(began); {
			case wait > since && (d.Allowed || d.RetryAfter > wait+5*time.Second-since+time.Second):
				t.Fatalf("debt %d: after %s: %+v", debt, since, d)
			case wait <= since-5*time.Second && !d.Allowed:
				t.Fatalf("debt %d: after %s: %+v", debt, since, d)
			}
			if over := ls[0].Stats().Over; debt == 0 && (over < 10 || over > 20) {
				t.Errorf("%d were found to be too many", over)
			}
		})
	}
}

// TestGroup: of several windows of a key all admit or none takes anything, also of a
// region's and of all; on many goroutines no window has more than it may.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		var groups []*Group
		for i, region := range []string{"eu", "eu", "us"} {
			n := open(t, Config{Actor: fmt.Sprint(i), Link: hub.Link(fmt.Sprint(i))})
			all, err := n.Limiter("all", LimiterConfig{Rate: limit.Rate{Name: "all", Count: 5, Per: time.Hour, Algorithm: limit.FixedWindow}})
			if err != nil {
				t.Fatal(err)
			}
			local, err := n.Limiter(region, LimiterConfig{Rate: limit.Rate{Name: region, Count: 3, Per: time.Minute, Algorithm: limit.SlidingWindow}})
			if err != nil {
				t.Fatal(err)
			}
			g, err := n.Group(local, all)
			if err != nil {
				t.Fatal(err)
			}
			groups = append(groups, g)
		}
		for i, c := range []struct {
			group   int
			allowed bool
			policy  string
		}{{0, true, "eu"}, {1, true, "eu"}, {0, true, "eu"}, {1, false, "eu"}, {0, false, "eu"}, {2, true, "all"}, {2, true, "all"}, {2, false, "all"}} {
			pass(200 * time.Millisecond)
			d, err := groups[c.group].Allow(t.Context(), "k")
			if err != nil || d.Allowed != c.allowed || d.Policy != c.policy {
				t.Fatalf("request %d: %+v, %v", i, d, err)
			}
		}
		if n := groups[2].limiters[1].Count("k", time.Now()); n != 2 {
			t.Errorf("a denied request took from the region: %d", n)
		}
	})
}

// TestGroupOfMany: on many goroutines no window of a group has more than it may.
func TestGroupOfMany(t *testing.T) {
	n := open(t, Config{Actor: "a"})
	var groups [2]*Group
	var both [2]*Limiter
	for i := range both {
		var err error
		if both[i], err = n.Limiter(fmt.Sprint(i), LimiterConfig{Rate: limit.Rate{Count: int64(1000 - i*500), Per: 24 * time.Hour, Algorithm: limit.FixedWindow}}); err != nil {
			t.Fatal(err)
		}
	}
	groups[0], _ = n.Group(both[0], both[1])
	groups[1], _ = n.Group(both[1], both[0])
	if !slices.Equal(groups[0].limiters, groups[1].limiters) {
		t.Fatal("two groups lock in different orders, and would wait for each other")
	}
	now, done := time.Now(), make(chan int)
	for i := range 8 {
		go func() {
			allowed := 0
			for range 200 {
				if d, err := groups[i%2].Take("k", now, 1); err == nil && d.Allowed {
					allowed++
				}
			}
			done <- allowed
		}()
	}
	sum := 0
	for range 8 {
		sum += <-done
	}
	if a, b := both[0].Count("k", now), both[1].Count("k", now); sum != 500 || a != 500 || b != 500 {
		t.Errorf("%d were allowed, %d and %d are counted", sum, a, b)
	}
	other := open(t, Config{Actor: "b"})
	for what, err := range map[string]error{
		"none":    second(n.Group()),
		"nil":     second(n.Group(nil)),
		"twice":   second(n.Group(both[0], both[0])),
		"foreign": second(other.Group(both[0])),
	} {
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("a group of %s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestObserve: every decision is told and counted.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := map[bool]int{}
		n := open(t, Config{Actor: "a", Observe: func(l, key string, d limit.Decision) { told[d.Allowed && l == "l" && key == "k"]++ }})
		l := limiter(t, n, LimiterConfig{Rate: gcra})
		for range 7 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if s := l.Stats(); told[true] != 5 || told[false] != 2 || s.Allowed != 5 || s.Denied != 2 {
			t.Errorf("%v, %+v", told, s)
		}
	})
}

// TestDivergence: it is what the nodes' totals differ by, and nothing once they agree.
func TestDivergence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		nodes, ls := cluster(t, hub, 2, LimiterConfig{Rate: ten})
		hub.Split("n00", "n01")
		add(t, nodes[0], "x", 7)
		take(t, ls[0], "k", 2)
		pass(time.Second)
		if got := nodes[0].Divergence(); got != 9 {
			t.Errorf("apart: %d", got)
		}
		hub.Heal()
		pass(30 * time.Second)
		for _, n := range nodes {
			if n.Divergence() != 0 || n.Total() != 7 || n.SyncAge() > 15*time.Second {
				t.Errorf("%s: %d, %d, %s", n.Actor(), n.Divergence(), n.Total(), n.SyncAge())
			}
		}
	})
}
