package edge

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// world is some nodes on a bad network, and a model that keeps every operation.
type world struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	hub   *edgetest.Hub
	nodes []*member
	rate  LimiterConfig
	ops   []op
	// lost are actors that were stopped while nobody could hear them, and what the
	// nodes that went on knew of each of their counts.
	lost map[crdt.Actor]map[string]uint64
}

// op is something a caller was told to have happened; a name with a slash is a key
// of the limiter.
type op struct {
	actor crdt.Actor
	name  string
	n     uint64
}

type member struct {
	name    string
	node    *Node
	limiter *Limiter
}

func (w *world) start(m *member) {
	flush := time.Duration(200+w.rng.IntN(800)) * time.Millisecond
	node, err := Open(Config{Actor: m.name, Link: w.hub.Link(m.name), Flush: flush, State: 3 * time.Second, MaxMessage: 64 + w.rng.IntN(400)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { node.Close() })
	synctest.Wait()
	m.node = node
	if m.limiter, err = node.Limiter("l", w.rate); err != nil {
		w.t.Fatal(err)
	}
}

// known is what a node knows of an actor's part of a count.
func (w *world) known(m *member, name string, a crdt.Actor) uint64 {
	if name[0] != '/' {
		c, err := m.node.Counter(name)
		if err != nil {
			w.t.Fatal(err)
		}
		return c.ByActor()[a]
	}
	e := m.limiter.shard(name).find(name)
	switch {
	case e == nil:
		return 0
	case a == m.node.me:
		return uint64(e.own.now)
	}
	for _, s := range e.slots {
		if s.actor.Value() == a {
			return uint64(s.n.now)
		}
	}
	return 0
}

func (w *world) value(m *member, name string) uint64 {
	if name[0] != '/' {
		return m.node.Count(name)
	}
	return uint64(m.limiter.Count(name, time.Now()))
}

// told is the sum of the operations on a name: of all, or of some actors.
func (w *world) told(name string, of func(crdt.Actor) bool) (sum uint64) {
	for _, o := range w.ops {
		if o.name == name && of(o.actor) {
			sum += o.n
		}
	}
	return sum
}

var historyNames = []string{"x", "y", "/p", "/q"}

func (w *world) step() {
	m := w.nodes[w.rng.IntN(len(w.nodes))]
	switch k := w.rng.IntN(20); {
	case k < 7:
		w.add(m)
	case k < 14:
		w.take(m)
	case k == 14:
		w.hub.Partition(m.name)
	case k == 15:
		w.hub.Split("a", "b", "c", "d")
	case k == 16:
		w.hub.Heal()
	case k == 17:
		w.hub.Down(m.name, w.rng.IntN(2) == 0)
	case k == 18 && w.rng.IntN(3) == 0:
		w.restart(m)
	default:
		time.Sleep(time.Duration(w.rng.IntN(2500)) * time.Millisecond)
		synctest.Wait()
	}
}

func (w *world) add(m *member) {
	name, n := historyNames[w.rng.IntN(2)], uint64(1+w.rng.IntN(5))
	c, err := m.node.Counter(name)
	if err != nil {
		w.t.Fatal(err)
	}
	c.Add(n)
	w.ops = append(w.ops, op{m.node.me, name, n})
}

// take judges the decision by what the node knew.
func (w *world) take(m *member) {
	name, n := historyNames[2+w.rng.IntN(2)], int64(1+w.rng.IntN(5))
	before, own := w.value(m, name), w.known(m, name, m.node.me)
	d, err := m.limiter.Take(name, time.Now(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	room := before+uint64(n) <= uint64(w.rate.Rate.Count)
	if w.rate.LocalCap > 0 {
		room = room && own+uint64(n) <= uint64(w.rate.LocalCap)
	}
	if d.Allowed != room {
		w.t.Fatalf("seed %d: with %d known and %d own, a cost of %d: %+v", w.seed, before, own, n, d)
	}
	if d.Allowed {
		w.ops = append(w.ops, op{m.node.me, name, uint64(n)})
	}
}

// restart stops a node while its last words go nowhere, and starts it as a new
// incarnation.
func (w *world) restart(m *member) {
	old := m.node.me
	w.lost[old] = map[string]uint64{}
	w.hub.Down(m.name, true)
	m.node.Close()
	for a, known := range w.lost {
		for _, name := range historyNames {
			known[name] = w.knownWithout(m, name, a)
		}
	}
	w.hub.Down(m.name, false)
	time.Sleep(time.Nanosecond) // the next incarnation begins later
	w.start(m)
}

// knownWithout is what the nodes but one know of an actor's part.
func (w *world) knownWithout(m *member, name string, a crdt.Actor) (most uint64) {
	for _, o := range w.nodes {
		if o != m {
			most = max(most, w.known(o, name, a))
		}
	}
	return most
}

// bounds holds at any time: a node knows its own additions and nothing that nobody
// was told.
func (w *world) bounds() {
	for _, m := range w.nodes {
		for _, name := range historyNames {
			got := w.value(m, name)
			least := w.told(name, func(a crdt.Actor) bool { return a == m.node.me })
			most := w.told(name, func(crdt.Actor) bool { return true })
			if got < least || got > most {
				w.t.Fatalf("seed %d: %s has %d of %s; its own are %d, all are %d", w.seed, m.name, got, name, least, most)
			}
		}
	}
}

// heal ends all faults and waits until everybody must have heard everything.
func (w *world) heal() {
	w.hub.Heal()
	w.hub.Set(edgetest.Faults{Seed: w.seed})
	for _, m := range w.nodes {
		w.hub.Down(m.name, false)
	}
	time.Sleep(2*3*time.Second + 4*time.Second)
	synctest.Wait()
}

// agree judges the end: exactly what callers were told, of actors that were lost at
// least what others knew.
func (w *world) agree() {
	for _, name := range historyNames {
		kept := w.told(name, func(a crdt.Actor) bool { return w.lost[a] == nil })
		for a, known := range w.lost {
			got := w.known(w.nodes[0], name, a)
			if told := w.told(name, func(o crdt.Actor) bool { return o == a }); got < known[name] || got > told {
				w.t.Fatalf("seed %d: of %s's %s there are %d; others knew %d, callers were told %d", w.seed, a, name, got, known[name], told)
			}
			kept += got
		}
		for _, m := range w.nodes {
			if got := w.value(m, name); got != kept {
				w.t.Fatalf("seed %d: %s has %d of %s, callers were told %d", w.seed, m.name, got, name, kept)
			}
		}
	}
}

func history(t *testing.T, seed uint64) []edgetest.Delivery {
	rng := rand.New(rand.NewPCG(seed, 4))
	w := &world{t: t, seed: seed, rng: rng, lost: map[crdt.Actor]map[string]uint64{}}
	w.hub = edgetest.NewHub(edgetest.Faults{Seed: seed, Loss: rng.IntN(60), Repeat: rng.IntN(60), MaxDelay: time.Duration(rng.IntN(3000)) * time.Millisecond})
	w.rate = LimiterConfig{Rate: limit.Rate{Count: int64(5 + rng.IntN(100)), Per: time.Hour, Algorithm: limit.FixedWindow}}
	if rng.IntN(2) == 0 {
		w.rate.LocalCap = 1 + rng.Int64N(w.rate.Rate.Count)
	}
	for i := range 2 + rng.IntN(3) {
		m := &member{name: string(rune('a' + i))}
		w.nodes = append(w.nodes, m)
		w.start(m)
	}
	for range 20 + rng.IntN(60) {
		w.step()
		w.bounds()
	}
	w.heal()
	w.agree()
	for _, m := range w.nodes {
		if s := m.node.Stats(); s.Garbage+s.Conflicts+s.Skewed+s.Mismatched+s.Full > 0 {
			t.Fatalf("seed %d: %s: %+v", seed, m.name, s)
		}
	}
	return w.hub.Delivered()
}

var histories = flag.Uint64("edge.histories", 60, "how many histories TestHistories and TestKeptHistories play")

// TestHistories: whatever the network does, afterwards every node has exactly what
// callers were told.
func TestHistories(t *testing.T) {
	for seed := range *histories {
		synctest.Test(t, func(t *testing.T) { history(t, seed) })
		if t.Failed() {
			return
		}
	}
}

// TestHistoriesRepeat: a seed is a history, message by message.
func TestHistoriesRepeat(t *testing.T) {
	for seed := range uint64(20) {
		var first, second []edgetest.Delivery
		synctest.Test(t, func(t *testing.T) { first = history(t, seed) })
		synctest.Test(t, func(t *testing.T) { second = history(t, seed) })
		if len(first) == 0 || !slices.Equal(first, second) {
			t.Fatalf("seed %d: %d and %d deliveries, which differ", seed, len(first), len(second))
		}
	}
}
