package edge

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// A caller that comes late, with the time at which its job began, charges the present
// window and undoes nothing.
func TestLateCaller(t *testing.T) {
	for _, algorithm := range []limit.Algorithm{limit.FixedWindow, limit.GCRA} {
		synctest.Test(t, func(t *testing.T) {
			n := open(t, Config{Actor: "a"})
			l := limiter(t, n, LimiterConfig{Rate: limit.Rate{Algorithm: algorithm, Count: 10, Per: time.Second}})
			began := time.Now()
			time.Sleep(5 * time.Minute)
			take(t, l, "k", 9)
			if err := l.Charge("k", began, 1); err != nil {
				t.Fatal(err)
			}
			if d := take(t, l, "k", 1); d.Allowed {
				t.Errorf("%v: ten of ten were taken: %+v", algorithm, d)
			}
			if d, err := l.Take("k", began, 1); err != nil || d.Allowed {
				t.Errorf("%v: a late caller takes more: %+v, %v", algorithm, d, err)
			}
		})
	}
}

// A group decides a late caller as a limiter does.
func TestLateCallerOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, Config{Actor: "a"})
		l := limiter(t, n, LimiterConfig{Rate: limit.Rate{Algorithm: limit.FixedWindow, Count: 10, Per: time.Second}})
		g, err := n.Group(l)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(5 * time.Minute)
		take(t, l, "k", 9)
		for _, allowed := range []bool{true, false} {
			if d, err := g.Take("k", began, 1); err != nil || d.Allowed != allowed {
				t.Errorf("with 9 of 10 taken before: %+v, %v", d, err)
			}
		}
		if d := take(t, l, "k", 1); d.Allowed {
			t.Errorf("ten of ten were taken: %+v", d)
		}
	})
}

// After Close a limiter that is full forgets idle keys by itself.
func TestFullAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, Config{Actor: "a"})
		l := limiter(t, n, LimiterConfig{Rate: ten, MaxKeys: 1000})
		n.Close()
		for round := range 5 {
			for i := range 900 {
				if d := take(t, l, fmt.Sprint(round, "-", i), 1); !d.Allowed {
					t.Fatalf("%+v", d)
				}
			}
			if _, err := l.Take("late", time.Now().AddDate(99, 0, 0), 0); err != nil {
				t.Fatal(err)
			}
			pass(30 * time.Second)
		}
		if l.Keys() > 1000 {
			t.Errorf("%d keys", l.Keys())
		}
	})
}

// A register of a node with a clock that was in 2099 and is right again: what it writes
// then is what all have, and it believes the others again.
func TestRegisterBackFrom2099(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Bool
		hub := edgetest.NewHub(edgetest.Faults{})
		now := func() time.Time {
			if ahead.Load() {
				return time.Now().AddDate(99, 0, 0)
			}
			return time.Now()
		}
		a := open(t, Config{Actor: "a", Link: hub.Link("a"), Now: now})
		b := open(t, Config{Actor: "b", Link: hub.Link("b")})
		ahead.Store(true)
		write := func(n *Node, v string) {
			if err := registerOf(t, n).Store([]byte(v)); err != nil {
				t.Fatal(err)
			}
		}
		write(a, "2099")
		pass(time.Minute)
		ahead.Store(false)
		write(b, "of b")
		pass(time.Minute)
		if got := registerOf(t, a).Load(); string(got) != "of b" {
			t.Errorf("with a right clock again it has %q", got)
		}
		write(a, "of a")
		pass(time.Minute)
		for _, n := range []*Node{a, b} {
			if got := registerOf(t, n).Load(); string(got) != "of a" {
				t.Errorf("%s has %q", n.Actor(), got)
			}
		}
	})
}

// A register of a node with a clock that was set back: what it writes then is later than all that it
// knew, of the others and its own, and is what all have.
func TestRegisterSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, link := range networks() {
			var back atomic.Int64
			now := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
			nodes := []*Node{open(t, Config{Actor: "a", Link: link("a"), Now: now}), open(t, Config{Actor: "b", Link: link("b")}), open(t, Config{Actor: "c", Link: link("c")})}
			write := func(by int, v string) {
				if err := registerOf(t, nodes[by]).Store([]byte(v)); err != nil {
					t.Fatal(err)
				}
				pass(30 * time.Second)
				for _, n := range nodes {
					if got := registerOf(t, n).Load(); string(got) != v {
						t.Errorf("%s: %s has %q, not %q", name, n.Actor(), got, v)
					}
				}
			}
			for _, last := range []int{0, 1} {
				back.Store(0)
				pass(30 * time.Second)
				write(last, fmt.Sprint("right ", last))
				back.Store(int64(time.Hour))
				write(0, fmt.Sprint("set back ", last))
				write(0, fmt.Sprint("again ", last))
			}
		}
	})
}

// A register of nodes with clocks that were in 2099, all of them, and are right again.
func TestRegisterAllBackFrom2099(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		var ahead atomic.Int64
		ahead.Store(int64(73 * 365 * 24 * time.Hour))
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		nodes := []*Node{open(t, Config{Actor: "a", Link: hub.Link("a"), Now: now}), open(t, Config{Actor: "b", Link: hub.Link("b"), Now: now})}
		for i, v := range []string{"2099", "now", "later"} {
			if err := registerOf(t, nodes[i%2]).Store([]byte(v)); err != nil {
				t.Fatal(err)
			}
			pass(30 * time.Second)
			ahead.Store(0)
			pass(30 * time.Second)
			for _, n := range nodes {
				if got := registerOf(t, n).Load(); i > 0 && string(got) != v {
					t.Errorf("%s has %q, not %q", n.Actor(), got, v)
				}
			}
		}
	})
}

// A bucket that takes longer than ten years to be full is empty when all of it was taken.
func TestLongFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, open(t, Config{Actor: "a"}), LimiterConfig{Rate: limit.Rate{Algorithm: limit.GCRA, Count: 1, Per: 24 * time.Hour, Burst: 10_000}})
		for i := range 10_000 {
			if d := take(t, l, "k", 1); !d.Allowed {
				t.Fatalf("the %dth of a burst of 10,000: %+v", i+1, d)
			}
		}
		if d := take(t, l, "k", 1); d.Allowed {
			t.Errorf("one more than the burst: %+v", d)
		}
	})
}

// Keys of a time when the clock was far ahead leave when it is right again.
func TestKeysOf2099Leave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var skew atomic.Int64
		skew.Store(int64(73 * 365 * 24 * time.Hour))
		n := open(t, Config{Actor: "a", Now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
		l := limiter(t, n, LimiterConfig{Rate: ten, MaxKeys: 100})
		for i := range 100 {
			if d, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		pass(time.Second)
		skew.Store(0)
		pass(time.Minute)
		for i := range 100 { // others, for which there would be no room
			if _, err := l.Allow(t.Context(), fmt.Sprint("new ", i)); err != nil {
				t.Error(err)
			}
		}
		if n.Total() != 100 {
			t.Errorf("of 100 taken in this window the total has %d", n.Total())
		}
	})
}

// A node with a clock that is a little ahead is heard by what it keeps.
func TestKeptBySomebodyAhead(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for ahead, heard := range map[time.Duration]time.Time{-time.Second: now.Add(-time.Second), time.Second: now, time.Hour: {}} {
		s := &peer{}
		s.hear(&message{sender: crdt.Actor{Node: "b"}, kept: true, sent: now.Add(ahead).UnixMilli()}, now, false)
		if !s.heard.Equal(heard) {
			t.Errorf("ahead by %s: heard at %s, want %s", ahead, s.heard, heard)
		}
	}
}

// A caller that comes late, for a key of its own, leaves the total of the present window as it is.
func TestTotalOfLateCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		nodes, ls := cluster(t, hub, 2, LimiterConfig{Rate: limit.Rate{Count: 10, Per: time.Minute, Algorithm: limit.FixedWindow}})
		began := time.Now()
		pass(10 * time.Minute)
		take(t, ls[0], "k", 5)
		pass(time.Second)
		for i := range 500 { // some of each shard
			if err := ls[0].Charge(fmt.Sprint(i), began, 1); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second)
		if total, differs := nodes[0].Total(), nodes[1].Divergence(); total != 5 || differs != 0 {
			t.Errorf("of 5 in this window the total has %d, and nodes differ by %d", total, differs)
		}
	})
}

// Keys that a node forgot while its clock was far ahead count once in its total when it has heard of them again.
func TestTotalBackFrom2099(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		var ahead atomic.Int64
		clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		a := open(t, Config{Actor: "a", Link: hub.Link("a")})
		b := open(t, Config{Actor: "b", Link: hub.Link("b"), Now: clock})
		c := LimiterConfig{Rate: limit.Rate{Count: 10, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}}
		take(t, limiter(t, a, c), "k", 5)
		l := limiter(t, b, c)
		pass(time.Minute)
		ahead.Store(int64(100 * 365 * 24 * time.Hour))
		pass(time.Minute)
		if l.Keys() != 0 {
			t.Fatal("the key is not forgotten")
		}
		ahead.Store(0)
		pass(time.Minute)
		if total, differs := b.Total(), a.Divergence(); l.Count("k", time.Now()) != 5 || total != 5 || differs != 0 {
			t.Errorf("of 5 in this window the total has %d, and nodes differ by %d", total, differs)
		}
	})
}

// By a clock that was set back a key is in the window that it was in, and a wait lasts until the end of that.
func TestWaitWhileTheClockIsSetBack(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		l := limiter(t, open(t, Config{Actor: "a"}), LimiterConfig{Rate: limit.Rate{Count: 2, Per: time.Minute, Algorithm: a}})
		at := time.Now().Truncate(time.Minute)
		if d, err := l.Take("k", at, 2); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		back := at.Add(-30 * time.Second)
		d, err := l.Take("k", back, 1)
		if err != nil || d.Allowed || d.RetryAfter < 90*time.Second {
			t.Errorf("%s: %+v, %v", a, d, err)
		}
		if d, err := l.Take("k", back.Add(d.RetryAfter), 1); err != nil || !d.Allowed {
			t.Errorf("%s, after the wait: %+v, %v", a, d, err)
		}
	}
}
