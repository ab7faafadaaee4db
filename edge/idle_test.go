package edge

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// networks are links of both sorts, for nodes by name.
func networks() map[string]func(string) Link {
	hub, s := edgetest.NewHub(edgetest.Faults{}), newStore(edgetest.Faults{}, 0)
	return map[string]func(string) Link{
		"a link":   func(name string) Link { return hub.Link(name) },
		"a keeper": func(name string) Link { return s.link(name) },
	}
}

// TestIdleNodesAreThere: nodes that have nothing to tell hear each other all the same, also
// where others have.
func TestIdleNodesAreThere(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			for name, link := range networks() {
				var nodes []*Node
				for _, actor := range []string{"a", "b", "c"} {
					nodes = append(nodes, open(t, Config{Actor: actor, Link: link(actor), Flush: 500 * time.Millisecond}))
				}
				ls := []*Limiter{limiter(t, nodes[0], LimiterConfig{Rate: ten}), limiter(t, nodes[1], LimiterConfig{Rate: ten}), limiter(t, nodes[2], LimiterConfig{Rate: ten})}
				take(t, ls[1], "k", 1)
				for range 300 {
					if busy {
						take(t, ls[0], "k", 1)
					}
					pass(time.Second)
					for _, n := range nodes {
						peers := n.Peers()
						if n.SyncAge() > 20*time.Second || len(peers) != 2 {
							t.Fatalf("%s, %s: nothing was heard for %s, of %v", name, n.Actor(), n.SyncAge(), peers)
						}
						for _, p := range peers {
							if age := time.Since(p.Heard); age > 20*time.Second {
								t.Fatalf("%s, %s: %s was not heard for %s", name, n.Actor(), p.Actor, age)
							}
						}
					}
				}
			}
		})
	}
}

// TestDivergenceOfNobody: the end of a window, and nodes that were closed or replaced, make
// no difference between those that run.
func TestDivergenceOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := LimiterConfig{Rate: limit.Rate{Count: 10_000, Per: time.Minute, Algorithm: limit.FixedWindow}}
		for name, link := range networks() {
			a := open(t, Config{Actor: "a", Link: link("a")})
			b := open(t, Config{Actor: "b", Link: link("b")})
			gone := open(t, Config{Actor: "gone", Link: link("gone")})
			again := open(t, Config{Actor: "again", Link: link("again")})
			la := limiter(t, a, minute)
			for _, n := range []*Node{b, gone, again} {
				limiter(t, n, minute)
			}
			for i := range 1790 {
				if i%600 == 10 || i == 750 {
					take(t, la, "k", 1000)
				}
				if i == 700 {
					gone.Close()
					again.Close()
					again = open(t, Config{Actor: "again", Link: link("again")})
					limiter(t, again, minute)
				}
				pass(100 * time.Millisecond)
				if i%600 < 10 || i%600 > 120 && (i < 700 || i > 870) { // after what was taken all have told a state
					if d := max(a.Divergence(), b.Divergence()); d > 0 {
						t.Fatalf("%s: after %d ms nodes differ by %d: %+v, %+v", name, i*100, d, a.Peers(), b.Peers())
					}
				}
			}
			if a.Total() != 1000 || b.Total() != 1000 {
				t.Errorf("%s: %d and %d", name, a.Total(), b.Total())
			}
		}
	})
}

// TestDivergenceOfUnevenLoad: where one node takes everything, none differs by more than what is on its
// way: what was taken in three times Flush, one each until it is told, until the other says that it was
// heard, and until it says so again. A node that hears nothing is told as diverging all the same.
func TestDivergenceOfUnevenLoad(t *testing.T) {
	const each, onTheWay = 4, 3 * 4 // in a time of Flush
	long := LimiterConfig{Rate: limit.Rate{Count: 1_000_000, Per: time.Hour, Algorithm: limit.FixedWindow}}
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		s := newStore(edgetest.Faults{}, 0)
		for name, net := range map[string]struct {
			hub  *edgetest.Hub
			link func(string) Link
		}{
			"a link":   {hub, func(name string) Link { return hub.Link(name) }},
			"a keeper": {s.hub, func(name string) Link { return s.link(name) }},
		} {
			var nodes []*Node
			var busy *Limiter
			for _, actor := range []string{"c", "b", "a"} {
				n := open(t, Config{Actor: actor, Link: net.link(actor)})
				nodes, busy = append(nodes, n), limiter(t, n, long)
				pass(30 * time.Millisecond) // they flush at different moments
			}
			load := func(d time.Duration, look func(most uint64)) {
				for range d / (25 * time.Millisecond) {
					take(t, busy, "k", each/4)
					pass(25 * time.Millisecond)
					look(max(nodes[0].Divergence(), nodes[1].Divergence(), nodes[2].Divergence()))
				}
			}
			agree := func(most uint64) {
				if most > onTheWay {
					t.Fatalf("%s: nodes differ by %d, more than %d: %+v", name, most, onTheWay, nodes[2].Peers())
				}
			}
			load(time.Minute, agree)
			net.hub.Partition("c")
			load(5*time.Second, func(uint64) {})
			if a, b := nodes[2].Divergence(), nodes[1].Divergence(); min(a, b) < 5*10*each-onTheWay {
				t.Errorf("%s: a node that was cut off differs by %d and %d", name, a, b)
			}
			net.hub.Heal()
			pass(20 * time.Second)
			load(time.Minute, agree)
			pass(time.Second)
			for _, n := range nodes {
				if n.Divergence() != 0 {
					t.Errorf("%s, %s: without load nodes differ by %d", name, n.Actor(), n.Divergence())
				}
			}
		}
	})
}

// TestReplacedNodesDoNotCount: nodes that were closed, or replaced by a later incarnation,
// do not make the others flush less often.
func TestReplacedNodesDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		watcher := open(t, Config{Actor: "w", Link: hub.Link("w")})
		for round := range 3 {
			var nodes []*Node
			for i := range 20 {
				name := fmt.Sprint("same", i)
				if i >= 10 {
					name = fmt.Sprint("uid ", round, "-", i)
				}
				nodes = append(nodes, open(t, Config{Actor: name, Link: hub.Link(name)}))
			}
			pass(3 * time.Second)
			if live := watcher.peers.live(time.Now(), time.Minute); live != 20 {
				t.Errorf("round %d: %d nodes are live, not 20", round, live)
			}
			for _, n := range nodes { // some without a last word
				hub.Down(n.Actor().Node, n.Actor().Node < "same5")
				n.Close()
				hub.Down(n.Actor().Node, false)
			}
		}
	})
}

// TestKindsStayKept: whatever grows or shrinks, a register that was kept is kept at every
// moment; parts that are not needed any more are emptied, and windows need not be kept for
// longer than they count.
func TestKindsStayKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(edgetest.Faults{}, 0)
		n := open(t, Config{Actor: "a", Link: s.link("a"), MaxMessage: 300})
		l := limiter(t, n, LimiterConfig{Rate: ten})
		if err := registerOf(t, n).Store([]byte("v")); err != nil {
			t.Fatal(err)
		}
		add(t, n, "x", 1)
		pass(15 * time.Second)
		size := s.size()
		s.onKeep = func(p Place, life time.Duration) {
			if !s.hasRegister(t) {
				t.Errorf("the register is not kept after %v", p)
			}
			if forGood := p.Kind != kindWindows; forGood && life != 0 && life != 10*time.Second || !forGood && (life < 10*time.Second || life > 40*time.Second) {
				t.Errorf("%v is kept for %s", p, life)
			}
		}
		for i := range 200 {
			add(t, n, fmt.Sprint("counter ", i), 1)
			take(t, l, fmt.Sprint("key ", i), 1)
			pass(100 * time.Millisecond)
		}
		if grown := s.size(); grown < 10*size {
			t.Fatalf("%d bytes, not many more than %d", grown, size)
		}
		pass(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		for p, text := range s.kept {
			if m, err := parse(text); err != nil || len(m.windows) > 0 {
				t.Errorf("%v still has %d windows, %v", p, len(m.windows), err)
			}
		}
	})
}

func (s *store) size() (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.kept {
		sum += len(text)
	}
	return sum
}

// hasRegister reports that a message which is kept has a register.
func (s *store) hasRegister(t *testing.T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.kept {
		m, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range m.values {
			if v.kind == sectionRegister {
				return true
			}
		}
	}
	return false
}
