package edge

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
)

// seedCounter is a counter as it is usually written: a map of the actors' counts under a lock, summed up
// when it is read, sent as JSON.
type seedCounter struct {
	mu     sync.RWMutex
	actor  string
	counts map[string]uint64
}

func (s *seedCounter) add(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[s.actor] += n
}

func (s *seedCounter) value() (sum uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, n := range s.counts {
		sum += n
	}
	return sum
}

func (s *seedCounter) merge(counts map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, n := range counts {
		s.counts[a] = max(s.counts[a], n)
	}
}

func (s *seedCounter) encode() []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	text, _ := json.Marshal(s.counts)
	return text
}

// actors is how many have counted.
const actors = 100

// pair100 are the two counters with the counts of as many actors, and those counts.
func pair100(b *testing.B) (ours *Counter, seed *seedCounter, state *count, counts map[string]uint64) {
	n := open(b, Config{Actor: "a"})
	n.Close()
	ours, err := n.Counter("x")
	if err != nil {
		b.Fatal(err)
	}
	state, counts = &count{name: "x"}, map[string]uint64{}
	for i := range actors {
		name := fmt.Sprintf("pod-%08x-%04x", i*7919, i)
		counts[name] = uint64(1000 + i)
		state.count.Add(crdt.Actor{Node: name, Incarnation: 1}, uint64(1000+i))
	}
	seed = &seedCounter{actor: "a", counts: map[string]uint64{}}
	ours.merge(state, nil)
	seed.merge(counts)
	return ours, seed, state, counts
}

// readers is how many read a counter while it is measured.
const readers = 2

// compare tells what f takes to what g does, each with readers beside it: the median of several tries,
// since others may use the processors.
func compare(b *testing.B, f, g, readF, readG func()) {
	var ratios []float64
	for range 9 {
		ratios = append(ratios, float64(timed(f, readF))/float64(timed(g, readG)))
	}
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ratios[len(ratios)/2], "ours/seed")
}

// timed is how long a thousand calls of f take beside readers.
func timed(f, read func()) time.Duration {
	quit := make(chan struct{})
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
					read()
					runtime.Gosched()
				}
			}
		})
	}
	calls := 0
	began := time.Now()
	for time.Since(began) < 100*time.Millisecond {
		for range 100 {
			f()
		}
		calls += 100
	}
	took := time.Since(began)
	close(quit)
	reading.Wait()
	return took * 1000 / time.Duration(calls)
}

// BenchmarkSeed compares a counter of 100 actors, that others read, with the usual one.
func BenchmarkSeed(b *testing.B) {
	ours, seed, state, counts := pair100(b)
	read, readSeed := func() { ours.Value() }, func() { seed.value() }
	var buf []byte
	some := fmt.Sprintf("pod-%08x-%04x", 7*7919, 7)
	out := &batch{node: ours.node, total: 1}
	for what, f := range map[string][2]func(){
		"add":   {func() { ours.Add(1) }, func() { seed.add(1) }},
		"value": {read, readSeed},
		"merge": {
			func() { state.count.Add(crdt.Actor{Node: some, Incarnation: 1}, 1); ours.merge(state, nil) },
			func() { counts[some]++; seed.merge(counts) }, // one part is news
		},
		"encode": {func() { buf = state.count.Append(buf[:0]) }, func() { seed.encode() }},
		"sent":   {func() { out.begin(); out.addState(ours); out.cut(); out.send() }, func() { seed.encode() }}, // what a node sends of it, checked and named
	} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
			}
			compare(b, f[0], f[1], read, readSeed)
		})
	}
}

// BenchmarkBytes is the heap of a key that three nodes use, of 1,000,000.
func BenchmarkBytes(b *testing.B) {
	const keys = 1_000_000
	for b.Loop() {
		n := open(b, Config{Actor: "a"})
		n.Close()
		l := newLimiter(n, "l", LimiterConfig{Rate: wide})
		now := time.Now()
		before := heap()
		for i := range keys {
			key := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
			l.Take(key, now, 1)
			w := window{per: int64(wide.Per), algorithm: wide.Algorithm, key: key, epoch: l.rule.epoch(now.UnixNano())}
			for _, a := range []string{"b", "c"} {
				w.slots = append(w.slots, slot{actorOf(a), pair{now: 1}})
			}
			l.merge(&w, now.UnixNano(), nil)
		}
		b.ReportMetric(float64(heap()-before)/keys, "B/key")
		runtime.KeepAlive(l)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
