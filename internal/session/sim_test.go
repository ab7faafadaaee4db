package session_test

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

var (
	schedules = flag.Int("session.schedules", 10_000, "random schedules to run")
	budget    = flag.Duration("session.budget", 0, "run random schedules for this long instead")
	onlySeed  = flag.Uint64("session.seed", 0, "run this schedule alone and tell what happens")
)

// A schedule is a whole little world, in one goroutine and with one source of
// chance: a server around the real machine, clients around real sessions, and
// links that delay, lose, repeat and reorder. The clock of the world is true
// time; everybody in it has a clock that is up to 1 % wrong.
func TestRandomSchedules(t *testing.T) {
	if *onlySeed != 0 {
		w := newWorld(*onlySeed)
		w.trace = t.Logf
		w.run()
		report(t, w)
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	start := time.Now()
	sum := onEveryCore(func(seed, step uint64) (sum tally) {
		for ; more(seed, start) && !t.Failed(); seed += step {
			w := newWorld(seed)
			w.run()
			report(t, w)
			sum.add(&w.tally)
		}
		return sum
	})
	t.Logf("proof: %v in %s", &sum, time.Since(start).Round(time.Millisecond))
	sum.check(t)
}

// onEveryCore runs f with the seeds from 1 on dealt out among the cores.
func onEveryCore(f func(seed, step uint64) tally) (sum tally) {
	cores := runtime.GOMAXPROCS(0)
	parts := make(chan tally)
	for i := range cores {
		go func() { parts <- f(uint64(i+1), uint64(cores)) }()
	}
	for range cores {
		part := <-parts
		sum.plus(&part)
	}
	return sum
}

func more(seed uint64, start time.Time) bool {
	if *budget > 0 {
		return time.Since(start) < *budget
	}
	return seed <= uint64(*schedules)
}

func report(t *testing.T, w *world) {
	t.Helper()
	for _, f := range w.failures {
		t.Errorf("schedule %d: %s (run it with -session.seed=%d)", w.seed, f, w.seed)
	}
}

// The same seed gives the same world, or a failure could not be looked at.
func TestSchedulesRepeat(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := newWorld(seed), newWorld(seed)
		a.run()
		b.run()
		if a.tally != b.tally || a.server.m.Hash() != b.server.m.Hash() {
			t.Fatalf("schedule %d ran differently the second time: %+v, %+v", seed, a.tally, b.tally)
		}
	}
}

// tally counts what happened, so that a simulation in which nothing happens is
// noticed.
type tally struct {
	schedules, events, sent, dropped, repeated, breaks, pauses, stalls int
	grants, lost, expired, forced, cancels, unknown, sessions          int
	resyncs                                                            int
}

// add counts one schedule.
func (t *tally) add(o *tally) {
	t.schedules++
	t.plus(o)
}

func (t *tally) plus(o *tally) {
	for _, p := range [...]struct{ sum, n *int }{
		{&t.schedules, &o.schedules}, {&t.events, &o.events}, {&t.sent, &o.sent}, {&t.dropped, &o.dropped}, {&t.repeated, &o.repeated},
		{&t.breaks, &o.breaks}, {&t.pauses, &o.pauses}, {&t.stalls, &o.stalls}, {&t.grants, &o.grants},
		{&t.lost, &o.lost}, {&t.expired, &o.expired}, {&t.forced, &o.forced}, {&t.cancels, &o.cancels},
		{&t.unknown, &o.unknown}, {&t.sessions, &o.sessions}, {&t.resyncs, &o.resyncs},
	} {
		*p.sum += *p.n
	}
}

func (t *tally) String() string {
	return fmt.Sprintf("%d schedules, %d events, %d messages (%d lost, %d repeated), %d breaks, %d pauses, %d stalls, "+
		"%d sessions, %d grants, %d holds lost, %d sessions expired, %d forced, %d cancels, %d unknown, %d re-attached",
		t.schedules, t.events, t.sent, t.dropped, t.repeated, t.breaks, t.pauses, t.stalls,
		t.sessions, t.grants, t.lost, t.expired, t.forced, t.cancels, t.unknown, t.resyncs)
}

// check demands that the schedules were worth running.
func (t *tally) check(tb testing.TB) {
	if t.schedules < 1000 {
		return
	}
	for what, n := range map[string]int{
		"grants": t.grants / 10, "losses": t.lost, "expired sessions": t.expired, "forced": t.forced, "cancels": t.cancels,
		"unknown outcomes": t.unknown, "breaks": t.breaks, "pauses": t.pauses, "stalls": t.stalls, "lost messages": t.dropped,
		"repeated messages": t.repeated, "re-attached": t.resyncs,
	} {
		if n < t.schedules/10 {
			tb.Errorf("only %d %s in %d schedules: the simulation has become too tame", n, what, t.schedules)
		}
	}
}

// world is one schedule.
type world struct {
	seed     uint64
	rnd      *rand.Rand
	now      int64 // true time, ns
	queue    events
	order    uint64
	server   *server
	clients  []*client
	ids      map[core.SessionID]*client
	healed   bool
	trace    func(string, ...any)
	failures []string
	tally    tally
	nature   nature
	counter  counted
	grants   map[uint64]*grant
	wishes   map[core.SessionID]int // acquires less grants
}

// nature is how bad this world is.
type nature struct {
	ttl             int64
	delay           int64 // of a message, at most
	drop, dup, mess int   // per mille of messages
	late            int   // per mille of messages that come much later
	breakEvery      int64 // mean time between breaks of a link; 0: never
	pauseEvery      int64
	stallEvery      int64
	forget          int // per mille of table rows that the server forgets
	length          int64
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), ids: map[core.SessionID]*client{},
		grants: map[uint64]*grant{}, wishes: map[core.SessionID]int{},
		counter: counted{values: map[uint64]bool{}, blocks: map[uint64]bool{}}}
	w.nature = w.someNature()
	w.server = newServer(w)
	for i := range 2 + w.rnd.IntN(2) {
		w.clients = append(w.clients, newClient(w, i))
	}
	return w
}

func pick[T any](w *world, of ...T) T { return of[w.rnd.IntN(len(of))] }

func (w *world) someNature() nature {
	ttl := pick(w, sec(1), sec(1), sec(2), sec(5), sec(30))
	return nature{
		ttl:        ttl,
		delay:      pick(w, 1*ms, ttl/50, ttl/50, ttl/10, ttl/4),
		drop:       pick(w, 0, 0, 20, 200),
		dup:        pick(w, 0, 20, 200),
		mess:       pick(w, 0, 0, 50, 500),
		late:       pick(w, 0, 10, 50),
		breakEvery: pick(w, 0, ttl/2, ttl*2),
		pauseEvery: pick(w, 0, ttl, ttl*4),
		stallEvery: pick(w, 0, ttl, ttl*4),
		forget:     pick(w, 0, 0, 0, 100),
		length:     ttl * pick(w, int64(1), 2, 3),
	}
}

// chance is true n times in a thousand, and never in a healed world.
func (w *world) chance(n int) bool { return !w.healed && w.rnd.IntN(1000) < n }

func (w *world) upTo(n int64) int64 { return w.rnd.Int64N(max(n, 1)) }

func (w *world) after(d int64, f func()) {
	w.order++
	heap.Push(&w.queue, event{at: w.now + max(d, 0), order: w.order, f: f})
}

func (w *world) fail(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf("at %s: ", time.Duration(w.now))+fmt.Sprintf(format, args...))
}

func (w *world) say(format string, args ...any) {
	if w.trace != nil {
		w.trace("%12s "+format, append([]any{time.Duration(w.now)}, args...)...)
	}
}

// run lets the world be bad for a time, heals it, and looks at what is left
// once everything could have settled.
func (w *world) run() {
	w.say("%+v", w.nature)
	for _, c := range w.clients {
		c.start()
	}
	w.server.trouble()
	w.until(w.nature.length)
	w.heal()
	w.until(w.now + 4*w.nature.ttl)
	w.settled()
}

func (w *world) until(end int64) {
	for len(w.queue) > 0 && w.queue[0].at <= end && len(w.failures) == 0 {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		w.tally.events++
		e.f()
	}
	w.now = end
}

type event struct {
	at    int64
	order uint64
	f     func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}
