// Package kthtrip breaks each operation of a backend at its first, second, …
// k-th round trip to the engine, until there are no more, and checks afterwards
// what package holdfast promises: every name can be granted to anybody within a
// bound, nothing is left in the engine, no connection stays open, no name ever has
// two holders, and what was told to be done or not done was.
//
// A backend gives an [Engine]: a proxy that counts round trips and disturbs one,
// the faults that it knows, and what the engine still has. [Run] does the rest,
// through the public API:
//
//	func TestKthTrip(t *testing.T) {
//		kthtrip.Run(t, kthtrip.Engine{URL: server.URL(), Proxy: newProxy, Faults: faults, Left: left}, *budget)
//	}
//
// [GivenUp] does it with requests that are given up when nothing is heard of the engine any more.
package kthtrip

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// Fault is what happens to one round trip. These are for every engine; a proxy
// can know more, such as the errors that its engine answers with.
type Fault string

// The faults of every engine.
const (
	CutBefore Fault = "cut before" // the connection breaks before the engine hears the request
	CutAfter  Fault = "cut after"  // the connection breaks when the engine has answered, before the client hears it
	Delay     Fault = "delay"      // the answer comes [Late] late
	// Silence and Deafness are the faults of [GivenUp]: the engine hears the request, or does not, and then nothing passes either
	// way until the fault is disarmed.
	Silence  Fault = "silence"
	Deafness Fault = "deafness"
)

const (
	// TTL is that of the sessions of the client that is disturbed.
	TTL = 4 * time.Second
	// Late is how late a delayed answer is: more than a grant with this TTL may
	// take, less than the TTL.
	Late = time.Second
)

// Proxy is the path of one client to the engine.
type Proxy interface {
	// Open opens the client.
	Open(ctx context.Context) (driver.Driver, error)
	// Arm has the k-th round trip from now on, the first being 1, meet f.
	Arm(k int, f Fault)
	// Disarm ends that, and tells whether the round trip has come.
	Disarm() (struck bool)
	// Conns is how many connections the client has open.
	Conns() int
	// Killed: the fault was the end of the client's process.
	Killed() bool
	// End ends the path, when its client is closed.
	End()
}

// Engine is a backend under trial.
type Engine struct {
	// URL is how the other client reaches the engine, undisturbed.
	URL string
	// Proxy makes a path for a client.
	Proxy func(t testing.TB) Proxy
	// Faults are those that the proxy knows.
	Faults []Fault
	// Left lists what the engine still has of names with a prefix, which are idle;
	// "" is every name.
	Left func(t testing.TB, prefix string) []string
	// Bound is how long a name may stay taken, or something left, after a fault; 0:
	// 3 TTL. A client that could not say that it ends leaves its names for a TTL.
	Bound time.Duration
	// Parallel is how many trials run beside each other; 0: 8.
	Parallel int
}

var (
	seed = flag.Uint64("kthtrip.seed", 0, "order in which operations and faults are tried; 0: a random one")
	only = flag.String("kthtrip.only", "", "regular expression for the names of the operations to try; empty: all")
)

// pair is an operation and what happens to it.
type pair struct {
	op    Operation
	fault Fault
}

// run is one call of Run.
type run struct {
	t          *testing.T
	e          Engine
	operations []Operation
	until      time.Time // when the budget is used up; zero: never
	bystander  *holdfast.Space

	trials, struck atomic.Int64
	mu             sync.Mutex
	whole          map[string]bool // operations that succeeded
}

// Run tries every operation that the backend declares with every fault, as long
// as the budget lasts, in a random order that its seed repeats; 0 has no end: all of
// them. It reports in a line that begins with "proof: ".
func Run(t *testing.T, e Engine, budget time.Duration) { try(t, e, budget, operations()) }

// try is Run for some operations.
func try(t *testing.T, e Engine, budget time.Duration, operations []Operation) {
	e.Bound, e.Parallel = orElse(e.Bound, 3*TTL), orElse(e.Parallel, 8)
	r := &run{t: t, e: e, operations: named(operations), whole: map[string]bool{}}
	if budget > 0 {
		r.until = time.Now().Add(budget)
	}
	r.bystander = r.open(t.Context(), e.URL)
	all := r.pairs()
	next := make(chan pair)
	var workers sync.WaitGroup
	for range e.Parallel {
		workers.Go(func() {
			for p := range next {
				r.trips(p)
			}
		})
	}
	given := r.hand(next, all)
	workers.Wait()
	r.finish(given, len(all))
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (r *run) open(ctx context.Context, url string) *holdfast.Space {
	s, err := holdfast.Open(ctx, url)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// pairs are all operations that the backend has with all faults, in random order.
func (r *run) pairs() []pair {
	var all []pair
	for _, op := range r.operations {
		if !op.in(r.bystander) {
			continue
		}
		for _, f := range r.e.Faults {
			all = append(all, pair{op, f})
		}
	}
	s := orElse(*seed, rand.Uint64())
	r.t.Logf("-kthtrip.seed=%d", s)
	rand.New(rand.NewPCG(s, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// over: the budget is used up.
func (r *run) over() bool { return !r.until.IsZero() && time.Now().After(r.until) }

// hand gives the pairs to the workers until the budget is used up, and tells how
// many it gave.
func (r *run) hand(next chan<- pair, all []pair) int {
	defer close(next)
	for i, p := range all {
		if r.over() {
			return i
		}
		next <- p
	}
	return len(all)
}

// maxTrips bounds k for operations that ask the engine again and again.
const maxTrips = 40

// trips disturbs an operation at its first round trip, its second, and so on,
// until it ends before there is a k-th one, or the budget is used up.
func (r *run) trips(p pair) {
	for k := 1; k <= maxTrips && !r.t.Failed() && (k == 1 || !r.over()); k++ {
		x := &trial{r: r, op: p.op, fault: p.fault, k: k}
		r.trials.Add(1)
		if !x.run() {
			return
		}
		r.struck.Add(1)
	}
}

// succeeded notes that an operation does what it is for.
func (r *run) succeeded(op string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole[op] = true
}

// finish looks at the engine as a whole.
func (r *run) finish(given, all int) {
	if err := r.bystander.Close(); err != nil {
		r.t.Errorf("the bystander's Close: %v", err)
	}
	if left := r.leftovers(r.t.Context(), ""); len(left) > 0 && !r.t.Failed() {
		r.t.Errorf("the engine still has %q", left)
	}
	for _, op := range r.operations {
		if given == all && op.in(r.bystander) && !r.whole[op.Name] && !r.t.Failed() {
			r.t.Errorf("%s never succeeded", op.Name)
		}
	}
	r.t.Logf("proof: %d of %d pairs of an operation and a fault: %d trials, %d of them disturbed at their k-th round trip, %s", given, all,
		r.trials.Load(), r.struck.Load(), verdict(r.t.Failed()))
}

func verdict(failed bool) string {
	if failed {
		return "some broke a promise"
	}
	return "0 broke a promise"
}

// leftovers is what the engine still has after the bound.
func (r *run) leftovers(ctx context.Context, prefix string) (left []string) {
	within(ctx, r.e.Bound, func() bool {
		left = r.e.Left(r.t, prefix)
		return len(left) == 0
	})
	return left
}

// within looks until it is so, for at most d.
func within(ctx context.Context, d time.Duration, so func() bool) bool {
	for deadline := time.Now().Add(d); !so(); {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

func (p pair) String() string { return fmt.Sprintf("%s, %s", p.op.Name, p.fault) }
