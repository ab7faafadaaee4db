//go:build unix

package server_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/remote"
)

var (
	kills = flag.Int("server.kills", 5, "how many times TestNodesDie kills a random node")
	stops = flag.Int("server.stops", 5, "how many times it stops the leader")
)

// load is programs that use a group while its nodes die. Whatever a node has
// answered must be true for ever; no call may fail, no hold be lost.
type load struct {
	t        *testing.T
	ctx      context.Context
	stop     atomic.Bool
	all      sync.WaitGroup
	programs []*program

	inside atomic.Int32  // holders of the shared lock
	token  atomic.Uint64 // the greatest of its tokens
	shared atomic.Int64  // acknowledged adds to the shared counter
	calls  atomic.Int64

	mu    sync.Mutex
	fault time.Time
	cut   map[*program]bool  // those whose calls have all begun before the fault
	back  chan time.Duration // gets how long each of them was cut off
}

// program is one client process's worth of sessions.
type program struct {
	l    *load
	name string
	s    *holdfast.Space
	own  *holdfast.Hold // from the beginning to the end
	n    int64          // its counter, and the value of its key
}

func newLoad(t *testing.T, g *nodes, n int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, ctx: ctx, back: make(chan time.Duration, n), cut: map[*program]bool{}}
	for i := range n {
		p := &program{l: l, name: strconv.Itoa(i)}
		var err error
		if p.s, err = remote.Open(remote.Config{Endpoints: g.clients()}, holdfast.TTL(30*time.Second), holdfast.Owner(p.name)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.s.Close() })
		if p.own, err = p.s.Mutex("own/" + p.name).Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		l.programs = append(l.programs, p)
	}
	for _, p := range l.programs {
		for _, work := range []func() error{p.count, p.lock, p.add} {
			l.all.Go(func() { p.repeat(work) })
		}
	}
	t.Cleanup(func() {
		l.stop.Store(true)
		cancel()
		l.all.Wait()
	})
	return l
}

// repeat works until the load ends or something is wrong.
func (p *program) repeat(work func() error) {
	for !p.l.stop.Load() {
		begin := time.Now()
		if err := work(); err != nil {
			p.l.t.Errorf("program %s: %v", p.name, err)
			return
		}
		p.l.worked(p, begin)
	}
}

// count makes its own counter and its own key one greater.
func (p *program) count() error {
	n, err := p.s.Counter("count/"+p.name).Add(p.l.ctx, 1)
	if err != nil {
		return err
	}
	if p.n++; n != p.n {
		return fmt.Errorf("its counter is %d, want %d", n, p.n)
	}
	_, err = p.s.KV().Put(p.l.ctx, "key/"+p.name, []byte(strconv.FormatInt(n, 10)))
	return err
}

// add counts together with everybody.
func (p *program) add() error {
	_, err := p.s.Counter("shared").Add(p.l.ctx, 1)
	p.l.shared.Add(1)
	return err
}

// lock takes the lock that all want.
func (p *program) lock() error {
	h, err := p.s.Mutex("shared lock").Acquire(p.l.ctx)
	if err != nil {
		return err
	}
	if p.l.inside.Add(1) != 1 {
		return errors.New("two hold the same lock")
	}
	token := uint64(h.Token())
	if before := p.l.token.Swap(token); before >= token {
		return fmt.Errorf("token %d came after %d", token, before)
	}
	p.l.inside.Add(-1)
	if err := h.Release(); err != nil && !errors.Is(err, holdfast.ErrUnavailable) { // then it goes on by itself
		return err
	}
	return nil
}

// worked notes a call that has succeeded.
func (l *load) worked(p *program, begin time.Time) {
	l.calls.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut[p] && begin.After(l.fault) {
		delete(l.cut, p)
		l.back <- time.Since(l.fault)
	}
}

// outage does harm and returns, for each program, how long it was until a call
// that began afterwards was answered. One fault at a time: a session may be lost
// if many failovers together take as long as it lives.
func (l *load) outage(harm func(), meanwhile func(since time.Time)) (all []time.Duration) {
	l.t.Helper()
	harm()
	at := time.Now()
	l.mu.Lock()
	l.fault = at
	for _, p := range l.programs {
		l.cut[p] = true
	}
	l.mu.Unlock()
	meanwhile(at)
	for range l.programs {
		select {
		case d := <-l.back:
			all = append(all, d)
		case <-time.After(2 * patience):
			l.t.Fatal("nothing is answered any more")
		}
	}
	return all
}

// end stops the load and compares what the group has with what was answered.
func (l *load) end() {
	l.t.Helper()
	l.stop.Store(true)
	l.all.Wait()
	reader := l.programs[0].s
	if n, err := reader.Counter("shared").Load(l.ctx); err != nil || n != l.shared.Load() {
		l.t.Errorf("the shared counter is %d, %v, want %d", n, err, l.shared.Load())
	}
	for _, p := range slices.Backward(l.programs) {
		l.check(p, reader)
		reader = p.s
	}
}

func (l *load) check(p *program, reader *holdfast.Space) {
	l.t.Helper()
	if n, err := reader.Counter("count/" + p.name).Load(l.ctx); err != nil || n != p.n {
		l.t.Errorf("counter %s is %d, %v, want %d", p.name, n, err, p.n)
	}
	if kv, err := reader.KV().Get(l.ctx, "key/"+p.name); err != nil || string(kv.Value) != strconv.FormatInt(p.n, 10) {
		l.t.Errorf("key %s is %q, %v, want %d", p.name, kv.Value, err, p.n)
	}
	if err := p.own.Err(); err != nil {
		l.t.Errorf("program %s has lost its hold: %v", p.name, err)
	}
	_, err := reader.Mutex("own/" + p.name).TryAcquire(l.ctx)
	held, ok := errors.AsType[*holdfast.Error](err)
	if !ok || len(held.Holders) != 1 || held.Holders[0].Token != p.own.Token() {
		l.t.Errorf("a try of the lock of program %s: %v, want that it is held with token %d", p.name, err, p.own.Token())
	}
}

// Nothing that was answered is lost, and no session, when nodes of a group are
// killed or stopped under load.
func TestNodesDie(t *testing.T) {
	g := newNodes(t, 3)
	g.leader(-1)
	l := newLoad(t, g, 3)
	faults := slices.Concat(slices.Repeat([]bool{true}, *kills), slices.Repeat([]bool{false}, *stops))
	rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	var seen outages
	for _, kill := range faults {
		g.settled()
		lead := g.leader(-1)
		switch victim := rand.IntN(3); {
		case !kill:
			g.stop(l, lead, &seen)
		case victim == lead:
			g.killLeader(l, lead, &seen)
		default:
			seen.followers = append(seen.followers, l.outage(g.procs[victim].kill, func(time.Time) {})...)
			g.start(victim)
		}
		if t.Failed() {
			break
		}
	}
	l.end()
	g.agreed()
	n := len(l.programs)
	t.Logf("proof: %d calls of %d programs; %d leaders and %d followers killed, %d leaders stopped: no answer lost, no session lost", l.calls.Load(), n, len(seen.killed)/n, len(seen.followers)/n, len(seen.stopped)/n)
	t.Logf("proof: failover, until another node led: %s", spread(seen.elected))
	t.Logf("proof: and for each program, until a call that began afterwards was answered: leader killed %s, leader stopped %s, follower killed %s", spread(seen.killed), spread(seen.stopped), spread(seen.followers))
}

// outages are how long it took: elected until another node led, the rest until a
// call was answered.
type outages struct{ elected, killed, stopped, followers []time.Duration }

// killLeader kills the leader and starts it again.
func (g *nodes) killLeader(l *load, i int, seen *outages) {
	seen.killed = append(seen.killed, l.outage(g.procs[i].kill, g.elected(i, seen))...)
	g.start(i)
}

// stop stops the leader until another leads.
func (g *nodes) stop(l *load, i int, seen *outages) {
	halt := func() { _ = g.procs[i].cmd.Process.Signal(syscall.SIGSTOP) }
	seen.stopped = append(seen.stopped, l.outage(halt, g.elected(i, seen))...)
	_ = g.procs[i].cmd.Process.Signal(syscall.SIGCONT)
}

// elected notes how long it is until another node than i leads.
func (g *nodes) elected(i int, seen *outages) func(since time.Time) {
	return func(since time.Time) {
		g.leader(i)
		seen.elected = append(seen.elected, time.Since(since))
	}
}

func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "never"
	}
	d = slices.Sorted(slices.Values(d))
	at := func(p float64) time.Duration { return d[int(p*float64(len(d)-1)+0.5)].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %s, p99 %s (%d)", at(0.5), at(0.99), len(d))
}
