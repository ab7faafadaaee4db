package edge

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// TestSilenceRelievesNobody: a node that has told the whole of a key, and has nothing to tell of it any
// more, relieves no other: what only that one has heard of a node that was killed is told.
func TestSilenceRelievesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(edgetest.Faults{}, 0)
		long := LimiterConfig{Rate: limit.Rate{Count: 1000, Per: 10 * time.Minute, Algorithm: limit.FixedWindow}}
		links, ls := map[string]*keeper{}, map[string]*Limiter{}
		kept := make(chan struct{}, 1) // c has kept its windows since it was received
		s.onKeep = func(p Place, _ time.Duration) {
			if p.Actor.Node == "c" && p.Kind == kindWindows {
				select {
				case kept <- struct{}{}:
				default:
				}
			}
		}
		start := func(name string) *Node {
			links[name] = s.link(name)
			n := open(t, Config{Actor: name, Link: links[name], Flush: 500 * time.Millisecond}) // half an hour of flushes costs the most
			ls[name] = limiter(t, n, long)
			return n
		}
		start("a")
		start("b")
		c := start("c")
		take(t, ls["a"], "k", 1)
		pass(30 * time.Second)
		for range 5 { // a uses the key no more
			pass(5 * time.Minute)
			take(t, ls["b"], "k", 1)
		}
		pass(6 * time.Minute) // far from the end of a window
		<-kept                // of long ago
		<-kept
		s.harm("a")
		take(t, ls["c"], "k", 5)
		want := ls["c"].Count("k", time.Now())
		pass(time.Second)
		s.harm("c")
		c.Close()
		links["a"].mend()
		pass(90 * time.Second)
		if got := ls["b"].Count("k", time.Now()); got != want {
			t.Fatalf("b has heard of %d, not %d", got, want)
		}
		start("d")
		pass(30 * time.Second)
		for _, name := range []string{"a", "d"} {
			if got := ls[name].Count("k", time.Now()); got != want {
				t.Errorf("%s has heard of %d, b of %d", name, got, want)
			}
		}
	})
}

// TestReliefLeadsToEarlierNodes: of two nodes the earlier one relieves the other and is not relieved by it, or neither
// would tell what both know; what was not kept relieves nobody.
func TestReliefLeadsToEarlierNodes(t *testing.T) {
	a, b := open(t, Config{Actor: "a"}), open(t, Config{Actor: "b"})
	for _, c := range []struct {
		by, of *Node
		kept   bool
		is     bool
	}{{a, b, true, true}, {b, a, true, false}, {a, a, true, false}, {a, b, false, false}} {
		if v := c.of.judging(&message{sender: c.by.me, kept: c.kept}); (v != nil) != c.is {
			t.Errorf("a message of %s (kept: %t) can relieve %s: %t", c.by.me, c.kept, c.of.me, v != nil)
		}
	}
}
