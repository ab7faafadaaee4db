package world

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options say which world to run.
type Options struct {
	Seed uint64
	// Nodes is 1, 3 or 5; 0: the seed decides.
	Nodes int
	// Time is how long faults happen; default 60 s. Some time without faults follows.
	Time time.Duration
}

// Result is what became of a world.
type Result struct {
	Violations []string
	Simulated  time.Duration
	// Counts is how often each command, answer, fault and event was seen.
	Counts map[string]int
}

// Add sums results up.
func (r *Result) Add(o Result) {
	r.Violations = append(r.Violations, o.Violations...)
	r.Simulated += o.Simulated
	if r.Counts == nil {
		r.Counts = map[string]int{}
	}
	for k, n := range o.Counts {
		r.Counts[k] += n
	}
}

// Sum is the sum of the counts with names that begin with prefix.
func (r *Result) Sum(prefix string) (n int) {
	for k, c := range r.Counts {
		if strings.HasPrefix(k, prefix) {
			n += c
		}
	}
	return n
}

// Names are the counts' names that begin with prefix, in order.
func (r *Result) Names(prefix string) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(r.Counts)) {
		if strings.HasPrefix(k, prefix) {
			out = append(out, k)
		}
	}
	return out
}

// World is one that runs.
type World struct {
	opts      Options
	number    uint32 // of this process: no two worlds share an address
	began     time.Time
	net       *network
	truth     *truth
	ledger    *ledger
	tally     *tally
	marks     *marks
	campaigns campaigns
	nodes     []*node
	fate      dice // of snapshots on their way
	holds     int  // how many claims a session may have; 0: as many as it likes

	// ctx ends with the load, which no call outlives that has a limit.
	ctx  context.Context
	stop context.CancelFunc
	// watching ends when the world has been judged.
	watching context.Context
	unwatch  context.CancelFunc
	watchers sync.WaitGroup
	over     chan struct{} // closed when nodes are to end
	clients  sync.WaitGroup
	ending   sync.WaitGroup

	mu         sync.Mutex
	counts     map[string]int
	violations []string
	spectators []*spectator
}

var worlds atomic.Uint32

// Run runs a world to its end. It is to be called in a bubble of testing/synctest.
func Run(o Options) Result {
	w := newWorld(o)
	w.holds = mostHolds
	for _, n := range w.nodes {
		w.ending.Go(n.run)
	}
	w.load()
	w.nemesis()
	w.stop()
	w.heal()
	w.quiesce()
	w.judge()
	w.unwatch()
	w.watchers.Wait()
	close(w.over)
	w.ending.Wait()
	return Result{Violations: w.violations, Simulated: time.Since(w.began), Counts: w.counts}
}

func newWorld(o Options) *World {
	w := &World{opts: o, number: worlds.Add(1), began: time.Now(), counts: map[string]int{}, over: make(chan struct{})}
	rng := w.rng("world", 0)
	if w.opts.Time == 0 {
		w.opts.Time = time.Minute
	}
	if w.opts.Nodes == 0 {
		w.opts.Nodes = []int{1, 3, 3, 3, 3, 5}[rng.IntN(6)]
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.watching, w.unwatch = context.WithCancel(context.Background())
	w.net = newNetwork(w.rng("net", 0))
	w.net.transfer = w.transfer
	w.fate.Rand = w.rng("fate", 0)
	w.truth, w.ledger, w.tally = newTruth(w), newLedger(w), newTally(w)
	w.marks = newMarks(w)
	snapshots := uint64(30 + rng.IntN(300))
	if rng.IntN(2) == 0 {
		snapshots = uint64(8 + rng.IntN(12)) // a node that lags a little needs a snapshot
	}
	for i := range w.opts.Nodes {
		w.nodes = append(w.nodes, newNode(w, uint64(i+1), snapshots))
	}
	return w
}

// dice are randomness that several goroutines share.
type dice struct {
	mu sync.Mutex
	*rand.Rand
}

// IntN is that of rand.Rand.
func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Rand.IntN(n)
}

// rng is the randomness of one part of the world, which others do not disturb.
func (w *World) rng(part string, i uint64) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(part) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.opts.Seed, h+i))
}

// ip is the address of a machine: nodes have the first numbers, clients begin at 100.
func (w *World) ip(i uint64) string {
	return fmt.Sprintf("127.%d.%d.%d", w.number>>8&255, w.number&255, i)
}

func (w *World) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.violations) < 20 {
		w.violations = append(w.violations, fmt.Sprintf("after %s: ", time.Since(w.began))+fmt.Sprintf(format, args...))
	}
}

func (w *World) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// counted is how often something was seen.
func (w *World) counted(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[what]
}

// healthy is how long a world without faults may take to answer every call that
// waits: sessions that nobody renews end, and their successors are granted.
const healthy = 60 * time.Second

// quiesce waits for all clients to come to an end, which they do when their calls
// are answered.
func (w *World) quiesce() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.clients.Wait()
	}()
	select {
	case <-done:
	case <-time.After(healthy):
		w.violate("%s after the last fault calls are not answered: %s", healthy, strings.Join(w.ledger.waiting(), "; "))
		w.ledger.abandon()
		<-done
	}
}
