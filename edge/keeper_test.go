package edge

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// store is a Keeper's memory behind a hub: what reaches it is kept and then sent to the
// others, each of which may miss it.
type store struct {
	hub  *edgetest.Hub
	loss int // in percent, of what is to be kept
	most int // the size of a message that is refused is above it; 0: none is

	mu       sync.Mutex
	rng      *rand.Rand
	kept     map[Place][]byte
	halfOpen map[string]bool
	onKeep   func(Place, time.Duration) // nil: nobody is told
}

func newStore(f edgetest.Faults, loss int) *store {
	return &store{
		hub: edgetest.NewHub(f), loss: loss, rng: rand.New(rand.NewPCG(f.Seed, 9)),
		kept: map[Place][]byte{}, halfOpen: map[string]bool{},
	}
}

// keeper is one node's connection to a store.
type keeper struct {
	*edgetest.Link
	store   *store
	name    string
	receive func([]byte)
	missed  func()
}

var _ Keeper = (*keeper)(nil)

func (s *store) link(name string) *keeper {
	return &keeper{Link: s.hub.Link(name), store: s, name: name}
}

func (s *store) cut(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halfOpen[name]
}

func (k *keeper) Send(m []byte) error {
	if k.store.cut(k.name) {
		return nil
	}
	return k.Link.Send(m)
}

func (k *keeper) Keep(p Place, life time.Duration, m []byte) error {
	if k.store.cut(k.name) || k.store.loses() {
		return nil
	}
	if k.store.most > 0 && len(m) > k.store.most {
		return errors.New("the message is too large")
	}
	if err := k.Link.Send(m); err != nil {
		return err
	}
	k.store.mu.Lock()
	k.store.kept[p] = bytes.Clone(m)
	k.store.mu.Unlock()
	if k.store.onKeep != nil {
		k.store.onKeep(p, life)
	}
	return nil
}

func (s *store) loses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(100) < s.loss
}

func (k *keeper) Missed(ask func()) { k.missed = ask }

func (k *keeper) Listen(receive func([]byte)) (stop func(), err error) {
	k.receive = receive
	end, err := k.Link.Listen(func(m []byte) {
		if !k.store.cut(k.name) {
			receive(m)
		}
	})
	first := time.AfterFunc(time.Millisecond, k.Replay)
	return func() { first.Stop(); end() }, err
}

// Replay hands over all that is kept, in an order that is the same in every run.
func (k *keeper) Replay() {
	s := k.store
	s.mu.Lock()
	var list [][]byte
	if !s.halfOpen[k.name] {
		for _, p := range slices.SortedFunc(maps.Keys(s.kept), func(a, b Place) int {
			return cmp.Or(a.Actor.Compare(b.Actor), cmp.Compare(a.Kind, b.Kind), a.Part-b.Part)
		}) {
			list = append(list, s.kept[p])
		}
	}
	s.mu.Unlock()
	for _, m := range list {
		k.receive(m)
	}
}

// harm makes a connection half-open: what goes over it, either way, is lost, and no side
// notices.
func (s *store) harm(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halfOpen[name] = true
}

// mend replaces a connection that was half-open or has lost messages.
func (k *keeper) mend() {
	k.store.mu.Lock()
	delete(k.store.halfOpen, k.name)
	k.store.mu.Unlock()
	k.missed()
	k.Replay()
}

func (s *store) purge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.kept)
}

// parts are what the kept messages tell of the actors' parts, by name of a count.
func (s *store) parts(t *testing.T) map[string]map[crdt.Actor]uint64 {
	parts := map[string]map[crdt.Actor]uint64{}
	raise := func(name string, a crdt.Actor, n uint64) {
		if parts[name] == nil {
			parts[name] = map[crdt.Actor]uint64{}
		}
		parts[name][a] = max(parts[name][a], n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.kept {
		m, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range m.counts {
			for _, a := range c.count.Actors() {
				raise(c.name, a, c.count.Of(a))
			}
		}
		for _, w := range m.windows {
			for _, s := range w.slots {
				raise(w.key, s.actor.Value(), uint64(s.n.now))
			}
		}
	}
	return parts
}

// keptWorld is nodes that come and go on a store, and a model that keeps every operation.
type keptWorld struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	store   *store
	running []*keptMember
	rate    LimiterConfig
	ops     []op
	// least is what must not be lost of actors that were killed.
	least map[crdt.Actor]map[string]uint64
	// elements are those that were added, with the nodes that added and removed them last.
	elements map[string]*element
	writes   []op // of the register, n is the time
}

type element struct {
	by      crdt.Actor
	removed crdt.Actor
}

type keptMember struct {
	name    string
	link    *keeper
	node    *Node
	limiter *Limiter // nil: not open yet
}

const keptState = 3 * time.Second

func (w *keptWorld) start(name string) *keptMember {
	time.Sleep(time.Nanosecond) // each incarnation begins later
	m := &keptMember{name: name, link: w.store.link(name)}
	flush := time.Duration(200+w.rng.IntN(800)) * time.Millisecond
	node, err := Open(Config{Actor: name, Link: m.link, Flush: flush, State: keptState, MaxMessage: 64 + w.rng.IntN(400)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { node.Close() })
	m.node = node
	w.running = append(w.running, m)
	synctest.Wait()
	return m
}

func (w *keptWorld) openLimiter(m *keptMember) *Limiter {
	if m.limiter == nil {
		l, err := m.node.Limiter("l", w.rate)
		if err != nil {
			w.t.Fatal(err)
		}
		m.limiter = l
	}
	return m.limiter
}

// known is what a node knows of the actors' parts of a count.
func (m *keptMember) known(t *testing.T, name string) map[crdt.Actor]uint64 {
	if name[0] != '/' {
		c, err := m.node.Counter(name)
		if err != nil {
			t.Fatal(err)
		}
		return c.ByActor()
	}
	parts := map[crdt.Actor]uint64{}
	if m.limiter == nil {
		return parts
	}
	s := m.limiter.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(name)
	if e == nil {
		return parts
	}
	parts[m.node.me] = uint64(e.own.now)
	for _, s := range e.slots {
		parts[s.actor.Value()] = uint64(s.n.now)
	}
	return parts
}

// settle notes what must stay known of actors that do not run, after something was lost.
func (w *keptWorld) settle() {
	kept := w.store.parts(w.t)
	for _, name := range historyNames {
		known := []map[crdt.Actor]uint64{kept[name]}
		for _, m := range w.running {
			known = append(known, m.known(w.t, name))
		}
		for a, least := range w.least {
			least[name] = 0
			for _, parts := range known {
				least[name] = max(least[name], parts[a])
			}
		}
	}
}

func (w *keptWorld) step() {
	if len(w.running) == 0 || len(w.running) < 4 && w.rng.IntN(25) == 0 {
		w.join()
		return
	}
	m := w.running[w.rng.IntN(len(w.running))]
	switch k := w.rng.IntN(32); {
	case k < 6:
		w.add(m)
	case k < 12:
		w.take(m)
	case k < 15:
		w.change(m)
	case k < 17:
		w.write(m)
	case k < 19:
		w.store.harm(m.name)
	case k < 21:
		m.link.mend()
	case k == 21:
		w.store.purge()
		w.settle()
	case k == 22:
		w.kill(m)
	case k == 23:
		w.kill(m)
		w.start(m.name)
	default:
		time.Sleep(time.Duration(w.rng.IntN(2500)) * time.Millisecond)
		synctest.Wait()
	}
}

// join starts a node that comes anywhere in the order of those that run.
func (w *keptWorld) join() {
	name := string(rune('a' + w.rng.IntN(8)))
	if !slices.ContainsFunc(w.running, func(m *keptMember) bool { return m.name == name }) {
		w.start(name)
	}
}

// kill stops a node, and nobody hears its last words.
func (w *keptWorld) kill(m *keptMember) {
	w.store.harm(m.name)
	m.node.Close()
	w.store.mu.Lock()
	delete(w.store.halfOpen, m.name)
	w.store.mu.Unlock()
	w.running = slices.DeleteFunc(w.running, func(o *keptMember) bool { return o == m })
	w.least[m.node.me] = map[string]uint64{}
	w.settle()
}

func (w *keptWorld) add(m *keptMember) {
	name, n := historyNames[w.rng.IntN(2)], uint64(1+w.rng.IntN(5))
	add(w.t, m.node, name, n)
	w.ops = append(w.ops, op{m.node.me, name, n})
}

func (w *keptWorld) take(m *keptMember) {
	name, n := historyNames[2+w.rng.IntN(2)], int64(1+w.rng.IntN(5))
	if take(w.t, w.openLimiter(m), name, n).Allowed {
		w.ops = append(w.ops, op{m.node.me, name, uint64(n)})
	}
}

// change adds an element of its own to the set, or removes one.
func (w *keptWorld) change(m *keptMember) {
	s := setOf(w.t, m.node)
	if there := s.Elements(); len(there) > 0 && w.rng.IntN(3) == 0 {
		e := there[w.rng.IntN(len(there))]
		s.Remove(e)
		w.elements[e].removed = m.node.me
		return
	}
	e := fmt.Sprint("e", len(w.elements))
	if err := s.Add(e); err != nil {
		w.t.Fatal(err)
	}
	w.elements[e] = &element{by: m.node.me}
}

func (w *keptWorld) write(m *keptMember) {
	time.Sleep(2 * time.Millisecond) // a later write is of a later millisecond
	n := uint64(len(w.writes))
	if err := registerOf(w.t, m.node).Store([]byte(fmt.Sprint(n))); err != nil {
		w.t.Fatal(err)
	}
	w.writes = append(w.writes, op{m.node.me, "", n})
}

// heal ends all faults, opens all limiters and waits until all must have heard all.
func (w *keptWorld) heal() {
	w.store.hub.Set(edgetest.Faults{Seed: w.seed})
	w.store.mu.Lock()
	w.store.loss = 0
	w.store.mu.Unlock()
	if len(w.running) == 0 {
		w.start("d")
	}
	for _, m := range w.running {
		w.openLimiter(m)
		m.link.mend()
	}
	time.Sleep(15 * keptState)
	synctest.Wait()
}

// picture is all that a node knows.
func (m *keptMember) picture(t *testing.T) string {
	text := fmt.Sprint(setOf(t, m.node).Elements(), " ", string(registerOf(t, m.node).Load()))
	for _, name := range historyNames {
		n := m.node.Count(name)
		if name[0] == '/' {
			n = uint64(m.limiter.Count(name, time.Now()))
		}
		text += fmt.Sprint(" ", name, "=", n)
	}
	return text
}

// judge holds the end against the model, and returns what all nodes agree on.
func (w *keptWorld) judge() string {
	first := w.running[0]
	for _, name := range historyNames {
		w.judgeCount(name, first.known(w.t, name))
	}
	w.judgeSet(setOf(w.t, first.node))
	w.judgeRegister(string(registerOf(w.t, first.node).Load()))
	for _, m := range w.running[1:] {
		if a, b := first.picture(w.t), m.picture(w.t); a != b {
			w.t.Fatalf("seed %d: %s has %s, %s has %s", w.seed, first.name, a, m.name, b)
		}
	}
	return first.picture(w.t)
}

// judgeCount: of actors that run exactly what callers were told, of others no more than
// that and no less than could be known when they were killed.
func (w *keptWorld) judgeCount(name string, got map[crdt.Actor]uint64) {
	told := map[crdt.Actor]uint64{}
	for _, o := range w.ops {
		if o.name == name {
			told[o.actor] += o.n
		}
	}
	for a := range got {
		told[a] += 0
	}
	for a, most := range told {
		least := most
		if w.least[a] != nil {
			least = w.least[a][name]
		}
		if got[a] < least || got[a] > most {
			w.t.Fatalf("seed %d: of %s's %s there are %d; at least %d, callers were told %d", w.seed, a, name, got[a], least, most)
		}
	}
}

func (w *keptWorld) judgeSet(s *Set) {
	for e, was := range w.elements {
		runs := w.least[was.by] == nil
		removed := was.removed != crdt.Actor{}
		surely := removed && w.least[was.removed] == nil
		if s.Has(e) && surely || !s.Has(e) && runs && !removed {
			w.t.Fatalf("seed %d: %s, added by %s and removed by %s: %v", w.seed, e, was.by, was.removed, s.Has(e))
		}
	}
	if got := s.Elements(); len(got) > len(w.elements) {
		w.t.Fatalf("seed %d: elements from nowhere: %v", w.seed, got)
	}
}

// judgeRegister: no write is later than the last one of a node that runs, but one of a
// node that was killed.
func (w *keptWorld) judgeRegister(got string) {
	last := -1
	for i, o := range w.writes {
		if w.least[o.actor] == nil {
			last = i
		}
	}
	var n int
	if _, err := fmt.Sscan(got, &n); (err != nil && last >= 0) || (err == nil && n < last) {
		w.t.Fatalf("seed %d: the register has %q, write %d was by a node that runs", w.seed, got, last)
	}
}

// keptHistory: after all faults nodes agree with the model, and what is kept then is
// enough for a node that comes when all others are gone, whatever was purged before.
func keptHistory(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	w := &keptWorld{t: t, seed: seed, rng: rng, least: map[crdt.Actor]map[string]uint64{}, elements: map[string]*element{}}
	f := edgetest.Faults{Seed: seed, Loss: rng.IntN(50), Repeat: rng.IntN(50), MaxDelay: time.Duration(rng.IntN(2000)) * time.Millisecond}
	w.store = newStore(f, rng.IntN(50))
	w.rate = LimiterConfig{Rate: limit.Rate{Count: 10_000, Per: time.Hour, Algorithm: limit.FixedWindow}}
	for range 1 + rng.IntN(3) {
		w.join()
	}
	for range 30 + rng.IntN(90) {
		w.step()
	}
	w.heal()
	agreed := w.judge()
	for _, m := range w.running {
		if s := m.node.Stats(); s.Garbage+s.Conflicts+s.Skewed+s.Mismatched+s.Full > 0 {
			t.Fatalf("seed %d: %s: %+v", seed, m.name, s)
		}
	}
	if rng.IntN(2) == 0 {
		w.store.purge()
		time.Sleep(5 * keptState)
		synctest.Wait()
	}
	for len(w.running) > 0 {
		w.kill(w.running[0])
	}
	late := w.start(string(rune('a' + rng.IntN(26))))
	time.Sleep(2 * keptState)
	w.openLimiter(late)
	time.Sleep(keptState)
	synctest.Wait()
	if got := late.picture(t); got != agreed {
		t.Fatalf("seed %d: all nodes had %s, what is kept is %s", seed, agreed, got)
	}
}

// TestKeptHistories: counts, limits, sets and registers agree for good with what callers
// were told, after messages that were lost, connections that were half-open, nodes that
// were killed, came again under their names or came new, and a store that was purged.
func TestKeptHistories(t *testing.T) {
	for seed := range *histories {
		synctest.Test(t, func(t *testing.T) { keptHistory(t, seed) })
		if t.Failed() {
			return
		}
	}
}

// A link that keeps nothing can carry what others keep, as one does that is wrapped: a limiter that is
// opened late learns from the others what was taken.
func TestKeptOverAPlainLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(edgetest.Faults{}, 0)
		hour := LimiterConfig{Rate: limit.Rate{Count: 10, Per: time.Hour, Algorithm: limit.FixedWindow}}
		a := open(t, Config{Actor: "a", Link: s.link("a")})
		b := open(t, Config{Actor: "b", Link: struct{ Link }{s.link("b")}})
		take(t, limiter(t, a, hour), "k", 3)
		pass(time.Minute)
		l := limiter(t, b, hour)
		pass(time.Second)
		if n := l.Count("k", time.Now()); n != 3 {
			t.Errorf("%d of 3 are known", n)
		}
	})
}
