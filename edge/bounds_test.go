package edge

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// TestManyNodesFlushLess: where there are many nodes each receives no more than it is to,
// and they agree all the same.
func TestManyNodesFlushLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		var nodes []*Node
		for i := range 30 {
			name := fmt.Sprintf("n%02d", i)
			nodes = append(nodes, open(t, Config{Actor: name, Link: hub.Link(name), MaxIncoming: 50}))
		}
		pass(time.Second)
		before := nodes[0].Stats().Received
		for range 100 {
			for _, n := range nodes {
				add(t, n, "x", 1)
			}
			pass(100 * time.Millisecond)
		}
		if got := nodes[0].Stats().Received - before; got < 300 || got > 700 {
			t.Errorf("in 10 s %d messages came, not about 500", got)
		}
		pass(2 * time.Second)
		for _, n := range nodes {
			if n.Count("x") != 3000 {
				t.Errorf("%s has %d", n.Actor(), n.Count("x"))
			}
		}
	})
}

// TestIdleKeys: many keys that are used and left are forgotten everywhere, but not
// before they have paid; what is in use stays.
func TestIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, ls := cluster(t, edgetest.NewHub(edgetest.Faults{}), 2, LimiterConfig{Rate: ten, MaxDebt: 100})
		for i := range 5000 {
			take(t, ls[0], fmt.Sprint("key", i), 1)
		}
		if err := ls[0].Charge("owes", time.Now(), 45); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if ls[1].Keys() != 5001 {
			t.Fatalf("the other node knows %d keys", ls[1].Keys())
		}
		pass(30 * time.Second)
		if ls[0].Keys() != 1 || ls[1].Keys() != 1 || nodes[0].Stats().Evicted != 5000 {
			t.Fatalf("%d and %d keys are left", ls[0].Keys(), ls[1].Keys())
		}
		pass(30 * time.Second)
		if ls[0].Keys() != 0 || ls[1].Keys() != 0 {
			t.Fatalf("%d and %d keys are left", ls[0].Keys(), ls[1].Keys())
		}
	})
}

// TestFull: beyond MaxKeys there is an error, others go on, and room comes back.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ls := cluster(t, edgetest.NewHub(edgetest.Faults{}), 1, LimiterConfig{Rate: ten, MaxKeys: 3})
		for i := range 3 {
			take(t, ls[0], fmt.Sprint(i), 1)
		}
		if _, err := ls[0].Take("one more", time.Now(), 1); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		if err := ls[0].Charge("one more", time.Now(), 1); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		if !take(t, ls[0], "0", 1).Allowed || ls[0].Keys() != 3 {
			t.Fatal("a known key is refused")
		}
		pass(time.Minute)
		if !take(t, ls[0], "one more", 1).Allowed {
			t.Fatal("no room came back")
		}
	})
}

// TestMessagesAreBounded: a large state goes in many messages of a bounded size.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		nodes, ls := cluster(t, hub, 1, LimiterConfig{Rate: limit.Rate{Count: 9, Per: time.Hour, Algorithm: limit.FixedWindow}})
		for i := range 20_000 {
			take(t, ls[0], fmt.Sprint(strings.Repeat("k", i%400), i), 1)
		}
		for i := range 3000 {
			add(t, nodes[0], fmt.Sprint("counter", i), 1)
		}
		late := open(t, Config{Actor: "late", Link: hub.Link("late")})
		l := limiter(t, late, ls[0].config)
		pass(time.Second)
		if l.Keys() != 20_000 || len(late.AllCounts()) != 3000 {
			t.Fatalf("%d keys and %d counters came", l.Keys(), len(late.AllCounts()))
		}
		for _, d := range hub.Delivered() {
			if d.Size > 48<<10+2*MaxName {
				t.Fatalf("a message of %d bytes", d.Size)
			}
		}
	})
}

// TestManyGoroutines: goroutines that count, decide, read and watch beside flushes
// and messages lose nothing, and admit no more than the rate on one node.
func TestManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{Repeat: 50, MaxDelay: time.Millisecond})
		a := open(t, Config{Actor: "a", Link: hub.Link("a"), Flush: time.Millisecond, State: 2 * time.Millisecond})
		b := open(t, Config{Actor: "b", Link: hub.Link("b"), Flush: time.Millisecond, State: 2 * time.Millisecond})
		l := limiter(t, a, LimiterConfig{Rate: limit.Rate{Count: 1000, Per: time.Hour, Algorithm: limit.FixedWindow}})
		limiter(t, b, l.config)
		var allowed atomic.Int64
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() {
				for range 200 {
					add(t, a, "x", 1)
					add(t, b, "x", 1)
					if d, err := l.Take("k", time.Now(), 1); err == nil && d.Allowed {
						allowed.Add(1)
					}
					a.AllCounts()
					l.AllCounts(time.Now())
					time.Sleep(50 * time.Microsecond)
				}
			})
		}
		done.Wait()
		pass(time.Second)
		if a.Count("x") != 3200 || b.Count("x") != 3200 || allowed.Load() != 1000 {
			t.Fatalf("%d, %d, %d allowed", a.Count("x"), b.Count("x"), allowed.Load())
		}
	})
}

// TestBadInput: a clear error, and nothing has changed.
func TestBadInput(t *testing.T) {
	long := strings.Repeat("x", 10<<20)
	n := open(t, Config{Actor: "a"})
	l := limiter(t, n, LimiterConfig{Rate: ten})
	bad := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fs.ErrInvalid) || len(err.Error()) > 300 {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, c := range []Config{{}, {Actor: long}, {Actor: "a", Flush: -1}, {Actor: "a", Flush: time.Millisecond - 1}, {Actor: "a", State: -1}, {Actor: "a", MaxMessage: -1}, {Actor: "a", Flush: time.Minute, State: time.Second}, {Actor: "a", State: limit.MaxPer + 1}, {Actor: "a", State: math.MaxInt64}, {Actor: "a", Now: func() time.Time { return time.Time{} }}} {
		_, err := Open(c)
		bad("open", err)
	}
	rates := []limit.Rate{{}, {Count: -1, Per: time.Second}, {Count: math.MaxInt64, Per: time.Second, Algorithm: limit.FixedWindow}, {Count: 1, Per: time.Second, Initial: 1}, {Count: 1, Every: limit.Day, Algorithm: limit.CalendarWindow}, {Count: 1, Per: time.Second, Algorithm: limit.SlidingLog}, {Count: 1, Per: time.Microsecond, Algorithm: limit.FixedWindow}}
	configs := []LimiterConfig{{Rate: ten, LocalCap: -1}, {Rate: ten, LocalCap: 11}, {Rate: ten, MaxDebt: 161}, {Rate: ten, MaxKeys: -1}}
	for _, r := range rates {
		configs = append(configs, LimiterConfig{Rate: r})
	}
	for _, c := range configs {
		_, err := n.Limiter("bad", c)
		bad(fmt.Sprintf("%+v", c), err)
	}
	_, err := n.Limiter("l", LimiterConfig{Rate: ten, LocalCap: 1})
	bad("other settings", err)
	for _, key := range []string{"", long} {
		_, err := n.Counter(key)
		bad("counter", err)
		_, err = n.Limiter(key, LimiterConfig{Rate: ten})
		bad("limiter", err)
	}
	_, err = l.Take(long, time.Now(), 1)
	bad("take", err)
	bad("charge", l.Charge(long, time.Now(), 1))
	bad("charge", l.Charge("k", time.Now(), -1))
	for _, cost := range []int64{-1, 11, math.MaxInt64, math.MinInt64} {
		if d := take(t, l, "k", cost); d.Allowed || d.RetryAfter != limit.Never {
			t.Errorf("a cost of %d: %+v", cost, d)
		}
	}
	if l.Keys() != 0 || len(n.AllCounts()) != 0 {
		t.Error("bad input has left something")
	}
}

// TestCountsSaturate: a count stays at the end of its range, on all nodes.
func TestCountsSaturate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a, b := open(t, Config{Actor: "a", Link: hub.Link("a")}), open(t, Config{Actor: "b", Link: hub.Link("b")})
		add(t, a, "x", math.MaxUint64-1)
		add(t, a, "x", 5)
		add(t, b, "x", 7)
		pass(time.Minute)
		add(t, b, "x", 7)
		if a.Count("x") != math.MaxUint64 || b.Count("x") != math.MaxUint64 {
			t.Fatalf("%d, %d", a.Count("x"), b.Count("x"))
		}
	})
}

// A Limiter stands where a holdfast.Limiter does, also with the key "", for all together; its counts reach the others.
func TestEmptyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		var limiters []*Limiter
		for _, actor := range []string{"a", "b"} {
			n := open(t, Config{Actor: actor, Link: hub.Link(actor)})
			l, err := n.Limiter("l", LimiterConfig{Rate: limit.Rate{Count: 3, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}})
			if err != nil {
				t.Fatal(err)
			}
			limiters = append(limiters, l)
		}
		g, err := limiters[0].node.Group(limiters[0])
		if err != nil {
			t.Fatal(err)
		}
		if d, err := g.Allow(t.Context(), ""); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if err := limiters[0].Charge("", time.Now(), 1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if d, err := limiters[1].Allow(t.Context(), ""); err != nil || !d.Allowed || d.Remaining != 0 {
			t.Errorf("after 2 of 3 on another node: %+v, %v", d, err)
		}
	})
}
