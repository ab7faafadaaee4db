package edge

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// TestManyActors: a counter and a key that very many nodes have used, each gone for good,
// are told in messages that a link takes; what one node tells relieves the next; and what is
// kept is enough when all are gone.
func TestManyActors(t *testing.T) {
	const many = 1800
	synctest.Test(t, func(t *testing.T) {
		s := newStore(edgetest.Faults{}, 0)
		s.most = 64 << 10
		hour := LimiterConfig{Rate: limit.Rate{Count: 100 * many, Per: time.Hour, Algorithm: limit.FixedWindow}}
		start := func(name string) (*Node, *Limiter) {
			n := open(t, Config{Actor: name, Link: s.link(name)})
			return n, limiter(t, n, hour)
		}
		a, la := start("a")
		var gone crdt.GCounter
		w := window{limiter: "l", per: int64(time.Hour), algorithm: limit.FixedWindow, key: "k", epoch: la.rule.epoch(time.Now().UnixNano())}
		for i := range many {
			uid := fmt.Sprintf("0d2c6a3e-7f61-4a43-8f0e-%012d", i)
			gone.Add(crdt.Actor{Node: uid, Incarnation: 1}, 2)
			w.slots = append(w.slots, slot{actorOf(uid), pair{3, 0}})
		}
		a.apply(&message{sender: crdt.Actor{Node: "gone"}, counts: []count{{name: "x", count: gone}}, windows: []window{w}}, time.Time{})
		b, lb := start("b")
		pass(time.Minute)
		if b.Count("x") != 2*many || lb.Count("k", time.Now()) != 3*many || a.Stats().SendErrors+b.Stats().SendErrors > 0 {
			t.Fatalf("b has %d and %d, %+v, %+v", b.Count("x"), lb.Count("k", time.Now()), a.Stats(), b.Stats())
		}
		if told := s.told("b", kindCounters); told > 3*many {
			t.Errorf("b keeps %d bytes that a keeps too", told)
		}
		add(t, b, "x", 1)
		pass(time.Minute)
		a.Close()
		pass(2 * time.Minute)
		if told := s.told("b", kindCounters); told < 30*many {
			t.Errorf("a is gone, and b keeps %d bytes", told)
		}
		b.Close()
		late, ll := start("late")
		pass(time.Minute)
		if late.Count("x") != 2*many+1 || ll.Count("k", time.Now()) != 3*many {
			t.Errorf("what is kept is %d and %d", late.Count("x"), ll.Count("k", time.Now()))
		}
	})
}

// told is the size of what is kept of an actor and a kind.
func (s *store) told(actor, kind string) (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, text := range s.kept {
		if p.Actor.Node == actor && p.Kind == kind {
			sum += len(text)
		}
	}
	return sum
}

// TestPartsOfAWhole: a whole in parts counts once all of them have come, of one sender.
func TestPartsOfAWhole(t *testing.T) {
	type piece struct {
		part, of uint64
		by       string
	}
	for i, c := range []struct {
		pieces   []piece
		complete bool
	}{
		{[]piece{{0, 0, "a"}}, true},
		{[]piece{{0, 3, "a"}, {2, 3, "a"}, {1, 3, "a"}}, true},
		{[]piece{{0, 3, "a"}, {2, 3, "a"}, {2, 3, "a"}}, false},
		{[]piece{{1, 2, "a"}}, false},
		{[]piece{{0, 2, "a"}, {1, 2, "b"}}, false},
		{[]piece{{0, 2, "a"}, {1, 3, "a"}}, false},
		{[]piece{{0, 2, "b"}, {0, 2, "a"}, {1, 2, "a"}}, true},
	} {
		var p parts
		var all crdt.GCounter
		var complete bool
		for _, piece := range c.pieces {
			o := &count{part: piece.part, of: piece.of}
			o.count.Add(crdt.Actor{Node: fmt.Sprint(piece.part)}, 1)
			all, complete = p.take(o, actorOf(piece.by))
		}
		if complete != c.complete || complete && all.Value() != max(c.pieces[0].of, 1) {
			t.Errorf("case %d: %t, %d", i, complete, all.Value())
		}
	}
}

// slowLink takes a millisecond for each message.
type slowLink struct{ *edgetest.Link }

func (l slowLink) Send(m []byte) error {
	time.Sleep(time.Millisecond)
	return l.Link.Send(m)
}

// TestNewsDuringAState: a state that takes seconds to be sent does not keep others from hearing of what
// is taken meanwhile, and nodes do not seem to differ by that.
func TestNewsDuringAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		rate := LimiterConfig{Rate: limit.Rate{Count: 1_000_000, Per: time.Hour, Algorithm: limit.FixedWindow}}
		a := limiter(t, open(t, Config{Actor: "a", Link: slowLink{hub.Link("a")}, MaxMessage: 50}), rate)
		other := open(t, Config{Actor: "b", Link: hub.Link("b")})
		b := limiter(t, other, rate)
		for i := range 5000 {
			take(t, a, fmt.Sprint("key ", i), 1)
		}
		time.Sleep(20 * time.Second)
		for i := range int64(150) {
			if got := b.Count("hot", time.Now()); got < i-5 {
				t.Fatalf("of %d in as many times 100 ms the other has heard of %d", i, got)
			}
			if by := other.Divergence(); by > 10 {
				t.Fatalf("after %d times 100 ms the other differs by %d", i, by)
			}
			take(t, a, "hot", 1)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// TestMostActors: a key has 10,000 other actors at most, whatever messages name; what is beyond is counted, and those
// that it has go on. The next window has room again.
func TestMostActors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, Config{Actor: "a"})
		l := limiter(t, n, LimiterConfig{Rate: limit.Rate{Count: 1 << 20, Per: time.Minute, Algorithm: limit.FixedWindow}})
		hear := func(from, to int, count int64) {
			now := time.Now().UnixNano()
			w := window{limiter: "l", per: int64(time.Minute), algorithm: limit.FixedWindow, key: "k", epoch: l.rule.epoch(now)}
			for i := from; i < to; i++ {
				w.slots = append(w.slots, slot{actorOf(fmt.Sprint(i)), pair{now: count}})
			}
			l.merge(&w, now, nil)
		}
		hear(0, 9_999, 1)
		hear(9_999, 10_005, 1)
		if got, full := l.Count("k", time.Now()), n.Stats().Full; got != 10_000 || full != 5 {
			t.Errorf("%d are counted, and %d found no room", got, full)
		}
		hear(9_998, 10_001, 3)
		take(t, l, "k", 1)
		if got, full := l.Count("k", time.Now()), n.Stats().Full; got != 10_000+2*2+1 || full != 6 {
			t.Errorf("after those that are known counted on it is %d, and %d found no room", got, full)
		}
		pass(2 * time.Minute)
		hear(10_000, 10_005, 1)
		if got, full := l.Count("k", time.Now()), n.Stats().Full; got != 5 || full != 6 {
			t.Errorf("in a later window %d are counted, and %d found no room", got, full)
		}
	})
}
