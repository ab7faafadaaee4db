package edge

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// TestFullWhileDown: a node with a link that takes nothing forgets idle keys all the same.
func TestFullWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		nodes, ls := cluster(t, hub, 1, LimiterConfig{Rate: ten, MaxKeys: 3})
		hub.Down("n00", true)
		for range 5 {
			for i := range 3 {
				take(t, ls[0], fmt.Sprint(i, time.Now().Unix()), 1)
			}
			if _, err := ls[0].Take("one more", time.Now(), 1); !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			pass(time.Minute)
		}
		if n := ls[0].Keys(); n != 0 || nodes[0].Stats().Evicted != 15 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// TestKeysOf2099WhileDown: so it does with keys of a time when its clock was far ahead.
func TestKeysOf2099WhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var skew atomic.Int64
		skew.Store(int64(73 * 365 * 24 * time.Hour))
		hub := edgetest.NewHub(edgetest.Faults{})
		hub.Down("a", true)
		n := open(t, Config{Actor: "a", Link: hub.Link("a"), Now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
		l := limiter(t, n, LimiterConfig{Rate: ten, MaxKeys: 100})
		for i := range 100 {
			if d, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		pass(time.Second)
		skew.Store(0)
		pass(time.Minute)
		if l.Keys() != 0 {
			t.Errorf("%d keys are left", l.Keys())
		}
	})
}

// TestDownCostsLittle: a link that takes nothing is tried with one message a flush, not with
// all that changed since; what still counts is told, once, when it takes messages again.
func TestDownCostsLittle(t *testing.T) {
	const keys = 1000 // far more than one message has room for
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		rate := LimiterConfig{Rate: limit.Rate{Count: 9, Per: time.Minute, Algorithm: limit.FixedWindow}}
		nodes := []*Node{open(t, Config{Actor: "a", Link: hub.Link("a"), State: time.Hour, MaxMessage: 4 << 10}), open(t, Config{Actor: "b", Link: hub.Link("b"), State: time.Hour})}
		ls := []*Limiter{limiter(t, nodes[0], rate), limiter(t, nodes[1], rate)}
		pass(time.Second)
		hub.Down("a", true)
		for round := range 5 {
			for i := range keys {
				take(t, ls[0], fmt.Sprint("key ", round, " ", i), 1)
			}
			add(t, nodes[0], "x", 1)
			if err := setOf(t, nodes[0]).Add(fmt.Sprint(round)); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
		}
		if errs := nodes[0].Stats().SendErrors; errs > 5*60*10+100 {
			t.Errorf("in 5 minutes %d messages were refused", errs)
		}
		take(t, ls[0], "last", 2)
		hub.Down("a", false)
		before := len(hub.Delivered())
		pass(5 * time.Second)
		if n, k := ls[1].Count("last", time.Now()), ls[1].Keys(); n != 2 || k > keys+1 || k < 1 {
			t.Errorf("the other node counts %d, and has %d keys", n, k)
		}
		if n := nodes[1].Count("x"); n != 5 || len(setOf(t, nodes[1]).Elements()) != 5 {
			t.Errorf("the other node counts %d, and has %v", n, setOf(t, nodes[1]).Elements())
		}
		size := 0
		for _, d := range hub.Delivered()[before:] {
			if d.From == "a" {
				size += d.Size
			}
		}
		if size > 40*keys {
			t.Errorf("%d bytes were sent, also of windows that nobody counts any more", size)
		}
	})
}

// narrowLink takes no message of more than 1,000 bytes.
type narrowLink struct{ *edgetest.Link }

func (l narrowLink) Send(m []byte) error {
	if len(m) > 1000 {
		return errors.New("too large")
	}
	return l.Link.Send(m)
}

// TestTooLargeForTheLink: a value that the link never takes costs no messages beside the one a flush.
func TestTooLargeForTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a := open(t, Config{Actor: "a", Link: narrowLink{hub.Link("a")}, State: time.Hour, MaxMessage: 500})
		b := open(t, Config{Actor: "b", Link: hub.Link("b"), State: time.Hour})
		pass(time.Second)
		if err := registerOf(t, a).Store(make([]byte, 2000)); err != nil {
			t.Fatal(err)
		}
		before := a.Stats()
		for range 100 {
			add(t, a, "x", 1)
			pass(100 * time.Millisecond)
		}
		after := a.Stats()
		if n := after.Sent - after.SendErrors - (before.Sent - before.SendErrors); n > 110 || b.Count("x") < 98 {
			t.Errorf("in 100 flushes %d messages were delivered, and the other counts %d", n, b.Count("x"))
		}
	})
}

// boundedLink says what it takes.
type boundedLink struct{ narrowLink }

func (boundedLink) MaxMessage() int { return 1000 }

// TestBoundedLink: what many keys, and a key and a counter of many nodes, have to tell goes over a link that takes small
// messages only.
func TestBoundedLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		hour := LimiterConfig{Rate: limit.Rate{Count: 1_000_000, Per: time.Hour, Algorithm: limit.FixedWindow}}
		a := open(t, Config{Actor: "a", Link: boundedLink{narrowLink{hub.Link("a")}}})
		b := open(t, Config{Actor: "b", Link: hub.Link("b")})
		la, lb := limiter(t, a, hour), limiter(t, b, hour)
		for i := range 3000 {
			take(t, la, fmt.Sprintf("key of some length %d", i), 1)
		}
		var gone crdt.GCounter
		w := window{limiter: "l", per: int64(time.Hour), algorithm: limit.FixedWindow, key: "k", epoch: la.rule.epoch(time.Now().UnixNano())}
		for i := range 300 {
			uid := fmt.Sprintf("0d2c6a3e-7f61-4a43-8f0e-%012d", i)
			gone.Add(crdt.Actor{Node: uid, Incarnation: 1}, 2)
			w.slots = append(w.slots, slot{actorOf(uid), pair{3, 0}})
		}
		a.apply(&message{sender: crdt.Actor{Node: "gone"}, counts: []count{{name: "x", count: gone}}, windows: []window{w}}, time.Time{})
		pass(time.Minute)
		if s := a.Stats(); s.SendErrors > 0 || lb.Keys() != 3001 || lb.Count("k", time.Now()) != 900 || b.Count("x") != 600 {
			t.Errorf("the other has %d keys, %d of one and a counter of %d; %+v", lb.Keys(), lb.Count("k", time.Now()), b.Count("x"), s)
		}
	})
}
