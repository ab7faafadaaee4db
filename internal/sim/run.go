package sim

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// Options say what to simulate.
type Options struct {
	Seed uint64
	// Nodes is 1, 3 or 5; 0: as the seed has it.
	Nodes int
	// Clients is how many programs use the group; 0: 8.
	Clients int
	// Operators give member commands that may make no sense.
	Operators bool
	// Time is how long faults go on; 0: two minutes. The healing comes on top.
	Time time.Duration
}

// Result is what was seen.
type Result struct {
	// Violation is the first promise that was broken; "" if all were kept.
	Violation string
	// Trace is the same for the same seed.
	Trace      uint64
	Simulated  time.Duration
	Steps      int
	Operations int
	Grants     int
	Reads      int
	// History is what clients saw of the counters.
	History []HistoryOp

	Watched, Resyncs                             int
	SessionsLost                                 int
	Crashes, Partitions, Pauses, FullDisks       int
	Flips, Damaged, Changes, Snapshots, Installs int
	Restores, WallSteps, Renewals                int
	Commands, Wipes, Strangers, Replaced         int
	Ordered                                      int           // nodes that were replaced by order
	Mistakes, Foreign, Copies, Older             int           // wrong flags; disks of others refused; older copies put back, and found out
	Whole                                        time.Duration // the longest until a group was whole, after the healing
	Checks                                       int           // state checks that a node passed
	Decisions                                    int           // of limiters
}

// HistoryOp is one operation on a counter, as a client saw it: an Add of more
// than 0, or a read.
type HistoryOp struct {
	Client       int
	Name         string
	Add          uint64
	Call, Return int64 // true time; Return is math.MaxInt64 if the client never heard
	Value        uint64
}

// Faults is how many bad things happened.
func (r *Result) Faults() int {
	return r.Crashes + r.Partitions + r.Pauses + r.FullDisks + r.Flips + r.Changes + r.Restores + r.WallSteps
}

// Add sums up.
func (r *Result) Add(o Result) {
	r.Simulated += o.Simulated
	r.Whole = max(r.Whole, o.Whole)
	for _, f := range []struct{ to, from *int }{
		{&r.Steps, &o.Steps}, {&r.Operations, &o.Operations}, {&r.Grants, &o.Grants}, {&r.Reads, &o.Reads},
		{&r.SessionsLost, &o.SessionsLost}, {&r.Crashes, &o.Crashes}, {&r.Partitions, &o.Partitions},
		{&r.Pauses, &o.Pauses}, {&r.FullDisks, &o.FullDisks}, {&r.Flips, &o.Flips}, {&r.Damaged, &o.Damaged},
		{&r.Watched, &o.Watched}, {&r.Resyncs, &o.Resyncs}, {&r.Changes, &o.Changes}, {&r.Snapshots, &o.Snapshots}, {&r.Installs, &o.Installs},
		{&r.Restores, &o.Restores}, {&r.WallSteps, &o.WallSteps}, {&r.Renewals, &o.Renewals}, {&r.Commands, &o.Commands}, {&r.Wipes, &o.Wipes}, {&r.Strangers, &o.Strangers}, {&r.Replaced, &o.Replaced}, {&r.Ordered, &o.Ordered}, {&r.Mistakes, &o.Mistakes}, {&r.Foreign, &o.Foreign}, {&r.Copies, &o.Copies}, {&r.Older, &o.Older}, {&r.Checks, &o.Checks}, {&r.Decisions, &o.Decisions},
	} {
		*f.to += *f.from
	}
}

// Run simulates one seed.
func Run(o Options) Result {
	restore := seedRaft(o.Seed)
	defer restore()
	c := newCluster(o)
	c.begin()
	length := int64(o.Time)
	if length == 0 {
		length = int64(2 * time.Minute)
	}
	c.run(length)
	c.heal()
	c.run(c.now + healing)
	if c.leader() == nil { // a slow sync has just had one hand over
		c.run(c.now + handOver)
	}
	c.mend()
	if c.failed == "" {
		c.check.finish()
		for _, x := range c.watched {
			x.finish()
		}
	}
	c.res.Violation, c.res.Trace, c.res.Steps, c.res.Simulated = c.failed, c.trace, c.steps, time.Duration(c.now)
	return c.res
}

// healing is how long every waiter may take to be served once nothing bad
// happens any more and nobody holds anything for long: the longest TTL, eight
// seconds, and ten more.
const healing = 18 * second

// handOver is how long a healthy group may be without a leader: the disks of a healthy
// one stall for a second now and then, and another node takes over.
const handOver = 4 * second

// seedRaft makes the raft library's election jitter depend on the seed.
func seedRaft(seed uint64) (restore func()) {
	old := crand.Reader
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	crand.Reader = rand.NewChaCha8(key)
	return func() { crand.Reader = old }
}

func newCluster(o Options) *cluster {
	w := &world{rng: rand.New(rand.NewPCG(o.Seed, 0x486f6c64))}
	c := &cluster{world: w, opts: o, clusterID: 1, net: &network{w: w, cut: map[simLink]int{}},
		conns: map[replica.Caller]*conn{}, reads: map[replica.Caller]*read{}, asks: map[replica.Caller]func(replica.Answer){}}
	c.check = newChecker(c)
	if c.opts.Nodes == 0 {
		c.opts.Nodes = []int{1, 3, 3, 3, 5}[w.rng.IntN(5)]
	}
	if c.opts.Clients == 0 {
		c.opts.Clients = 8
	}
	c.net.loss = []float64{0, 0.001, 0.02, 0.1}[w.rng.IntN(4)]
	// With the small budget most ends take several entries.
	c.machine = core.Config{Revision: 1, Budget: []int{0, 2}[w.rng.IntN(2)]}
	// With few entries between snapshots most nodes that were away get one.
	c.checkEvery = 5 * time.Second
	c.snapEvery = []uint64{40, 300}[w.rng.IntN(2)]
	// A large state takes seconds: a leader's snapshot may come before its end.
	c.snapPace = []int64{millisecond, second}[w.rng.IntN(2)]
	return c
}

// begin starts nodes, clients and what is to plague them.
func (c *cluster) begin() {
	var founders []uint64
	for id := range uint64(c.opts.Nodes) {
		founders = append(founders, id+1)
	}
	c.nextID = uint64(c.opts.Nodes) + 1
	for _, id := range founders {
		c.addFounder(id, founders)
	}
	for id := range uint64(c.opts.Clients) {
		k := &client{c: c, id: id, clock: c.clock(), stays: id%4 == 0, ttl: time.Duration(c.between(second, []int64{2, 8}[id%2]*second))}
		c.clients = append(c.clients, k)
		c.after(c.between(0, second), func() { k.input(k.open) })
		k.work()
	}
	for id := range uint64(2) {
		k := &caller{c: c, id: callerBase + id, clock: c.clock(), ttl: c.between(second, 4*second)}
		c.callers = append(c.callers, k)
		c.after(c.between(0, second), k.open)
	}
	for id := range uint64(2) {
		a := &adder{c: c, id: adderBase + id}
		c.adders = append(c.adders, a)
		a.work()
	}
	for range 2 {
		x := newWatcher(c)
		c.watched = append(c.watched, x)
		x.watch()
	}
	c.after(2*second, c.nemesis)
	if c.opts.Operators {
		c.after(2*second, c.operate)
		c.wipeEarly()
	}
	c.backUp()
}

// heal ends all faults. From here on everything must come right by itself.
func (c *cluster) heal() {
	c.healing = true
	c.net.loss = 0
	clear(c.net.cut)
	c.correct()
	for _, k := range c.clients {
		for _, o := range k.calls {
			if o.held {
				k.letGoLater(o)
			}
		}
	}
	for _, n := range c.nodes {
		n.full, n.slow = false, 0
		if !n.up {
			n.restart()
		}
	}
}
