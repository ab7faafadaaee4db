// Package gateway answers the plain calls of a node, whatever dialect they come in:
// leases that are kept by hand, waits, idempotency keys, and which node a call goes to.
// Each call passes one door, [Gateway.Through], or [Gateway.Stay] if it stays for long.
// It knows no protocol: the dialects beside it map gRPC and HTTP to its calls.
package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// Gateway turns plain calls into commands on sessions. A plain caller keeps no
// stream: its leases are sessions that this node numbers the commands of, and
// everything that hangs on no lease goes over a session of the gateway's own.
type Gateway struct {
	s     *server.Server
	waits waitTable
	memo  memo
	meter *meter
	gate  gate

	tenures *tenures
	label   func(error) string // what metrics call an outcome

	mu      sync.Mutex
	leases  map[core.SessionID]*lease
	sweepAt int               // how many leases there are at the next sweep
	plain   map[string]*lease // by namespace
	ids     uint64            // of leases made here

	// draining is closed when waits have to end, life ends with close.
	draining chan struct{}
	once     sync.Once
	life     context.Context
	end      context.CancelFunc
	work     tasks
}

// New is the gateway of a node. Make one for each node: it keeps account of the calls
// that wait. label is what metrics call an outcome.
func New(s *server.Server, label func(error) string) *Gateway {
	g := &Gateway{s: s, label: label, leases: map[core.SessionID]*lease{}, plain: map[string]*lease{}, ids: rand.Uint64(), draining: make(chan struct{}), meter: newMeter(s)}
	g.waits.s = s
	g.waits.waits, g.waits.ends = map[core.SessionID]*attached{}, map[string]*endings{}
	g.life, g.end = context.WithCancel(context.Background())
	g.tenures = &tenures{s: s, lead: s.Leader, life: g.life, late: map[*Tenure]*time.Timer{}}
	g.Limit(DefaultCalls, DefaultWaits, DefaultStreams)
	return g
}

// What Limit sets by default.
const (
	DefaultCalls   = 8192
	DefaultWaits   = 32_768
	DefaultStreams = 4096
)

// Limit sets how many calls there may be, of them waits, and waits on one connection.
func (g *Gateway) Limit(calls, waits, streams int) { g.gate.limit(calls, waits, streams) }

// Node is the node behind the gateway.
func (g *Gateway) Node() *server.Server { return g.s }

// Metrics are those of the node and of the calls that came through the door.
func (g *Gateway) Metrics() prometheus.Gatherer { return g.meter.registry }

// Drain ends all waits, and returns when they are withdrawn, or ctx ends. Calls go on: what
// begins meanwhile is not waited for.
func (g *Gateway) Drain(ctx context.Context) {
	g.once.Do(func() { close(g.draining) })
	g.work.wait(ctx)
	g.work.wait(ctx) // for what those that have ended left to be taken back
}

// Close is the end, after Drain.
func (g *Gateway) Close() {
	ctx, cancel := context.WithTimeout(g.life, settle)
	defer cancel()
	g.work.wait(ctx)
	g.end()
	g.waits.close()
}

// tasks counts waits, and what goes on after them.
type tasks struct {
	mu  sync.Mutex
	now *round // nil: nothing has begun since the last wait
}

// round is the tasks that began between two waits.
type round struct {
	n     int
	empty chan struct{} // closed when nothing is left; nil: nobody waits for that
}

// begin counts a task until its end.
func (t *tasks) begin() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		t.now = &round{}
	}
	r := t.now
	r.n++
	return func() { t.end(r) }
}

func (t *tasks) end(r *round) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.n--; r.n == 0 && r.empty != nil {
		close(r.empty)
	}
}

// wait waits for the tasks that have begun before, until ctx ends.
func (t *tasks) wait(ctx context.Context) {
	t.mu.Lock()
	r := t.now
	t.now = nil
	if r == nil || r.n == 0 {
		t.mu.Unlock()
		return
	}
	r.empty = make(chan struct{})
	t.mu.Unlock()
	select {
	case <-r.empty:
	case <-ctx.Done():
	}
}

// settle is how long the gateway itself tries to bring something to its end that
// nobody waits for: the session's own end does it otherwise.
const settle = 5 * time.Second

// later runs f when its caller does not wait any more.
func (g *Gateway) later(f func(ctx context.Context)) {
	end := g.work.begin()
	go func() {
		defer end()
		ctx, cancel := context.WithTimeout(g.life, settle)
		defer cancel()
		f(ctx)
	}()
}

// lookAgain is how often a call that waits for a leader looks whether it is this node.
const lookAgain = 50 * time.Millisecond

// patiently repeats what certainly did not happen while the group has no leader, as
// right after its start, or has this node for one by now; once only for a call that has
// waited for a leader before.
func (g *Gateway) patiently(ctx context.Context, f func() error) error {
	err := f()
	for waited := time.Duration(0); waited < g.tenures.patience() && !callerOf(ctx).waited; waited += lookAgain {
		if !errors.Is(err, server.ErrNotLeader) || g.tenures.current().elsewhere() {
			return err
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return &driver.Error{Kind: ctx.Err(), Outcome: driver.NotDone}
		}
		err = f()
	}
	return err
}

// submit runs a frame.
func (g *Gateway) submit(ctx context.Context, f *core.Frame) (r core.Reply, err error) {
	err = g.propose(ctx, func(ctx context.Context) error {
		r, err = g.s.Submit(ctx, f)
		callerOf(ctx).note(&r, err)
		return err
	})
	return r, err
}

// renew renews a session.
func (g *Gateway) renew(ctx context.Context, id core.SessionID, ttl time.Duration) (r core.Renewed, err error) {
	err = g.propose(ctx, func(ctx context.Context) error {
		r, err = g.s.Renew(ctx, id, ttl)
		return err
	})
	return r, err
}

// propose asks the node for what it has to write, patiently.
func (g *Gateway) propose(ctx context.Context, f func(ctx context.Context) error) error {
	return g.tenured(ctx, func(ctx context.Context) error {
		return g.patiently(ctx, func() error { return f(ctx) })
	})
}

// tenured is f with a ctx that ends with the tenure of this node, if it leads: one that is cut off
// learns nothing of what it has proposed.
func (g *Gateway) tenured(ctx context.Context, f func(ctx context.Context) error) error {
	if t := g.tenures.current(); t.here {
		var cancel context.CancelFunc
		ctx, cancel = t.During(ctx)
		defer cancel()
	}
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errIsolated) {
		err = &driver.Error{Kind: driver.ErrUnavailable, Err: errIsolated}
	}
	return err
}

// look reads the machine.
func (g *Gateway) look(ctx context.Context, f func(m *core.Machine, now int64)) error {
	return g.s.Look(ctx, f)
}

// read answers a command that changes nothing.
func (g *Gateway) read(ctx context.Context, c core.Command) (r core.Result, now int64, err error) {
	ns := callerOf(ctx).namespace
	err = g.look(ctx, func(m *core.Machine, at int64) {
		r, now = m.Read(ns, &c), at
	})
	if err == nil {
		err = refusal(&r, now, nil)
	}
	return r, now, err
}

// do runs a command that hangs on no lease, with the caller's idempotency key if
// it has one.
func (g *Gateway) do(ctx context.Context, c core.Command) (r core.Result, now int64, err error) {
	if key := callerOf(ctx).key; key != "" {
		r, now, err = g.doKeyed(ctx, key, c)
	} else {
		r, now, err = g.doAnew(ctx, c)
	}
	if errors.Is(err, driver.ErrExhausted) && deletes(&c) {
		return g.inNothing(ctx, c, err)
	}
	return r, now, err
}

// doAnew runs a command that hangs on no lease, whatever key the caller has.
func (g *Gateway) doAnew(ctx context.Context, c core.Command) (core.Result, int64, error) {
	reply, r, err := g.plainLease(callerOf(ctx).namespace).runAlone(ctx, c)
	for errors.Is(err, errWindow) && ctx.Err() == nil { // many calls at the same time: there is room soon, or in the next session
		reply, r, err = g.plainLease(callerOf(ctx).namespace).runAlone(ctx, c)
	}
	if err != nil {
		return core.Result{}, 0, err
	}
	return r, reply.Now, refusal(&r, reply.Now, c.Wants)
}

// refusal is the error of a result; nil: it is none.
func refusal(r *core.Result, now int64, wants []core.Want) error {
	if r.Code == core.CodeOK || r.Code == core.CodeQueued {
		return nil
	}
	e := convert.Refusal(r.Code, r.Text)
	switch r.Code {
	case core.CodeHeld:
		e.Holders, e.Waiting = convert.Holders(now, r.Holders, wants), int(r.Waiting)
		e.RetryAfter = retryAfter(e.Holders)
	case core.CodeUnavailable: // the group is held until a time, or nobody knows how long
		e.RetryAfter = max(e.RetryAfter, convert.Left(now, r.Deadline))
	}
	return e
}

// retryAfter is when a try may do better: at the latest when a holder has to
// renew, and before that after a second, since it may release at any time.
func retryAfter(holders []driver.Claim) time.Duration {
	d := time.Second
	for i := range holders {
		if left := holders[i].ExpiresIn; left > 0 {
			d = min(d, left)
		}
	}
	return d
}

// Header tells where an answer of that revision comes from.
func (g *Gateway) Header(ctx context.Context, revision uint64) *pb.Header {
	h := &pb.Header{ClusterId: g.s.ClusterID(), Revision: int64(revision)}
	if st, err := g.s.Status(ctx); err == nil {
		h.MemberId, h.RaftTerm = st.ID, st.Term
	}
	return h
}

// headerNow is Header with the revision of this node, which has applied all that it has answered:
// for answers without one of their own.
func (g *Gateway) headerNow(ctx context.Context) *pb.Header {
	h := &pb.Header{ClusterId: g.s.ClusterID()}
	if st, err := g.s.Status(ctx); err == nil {
		h.MemberId, h.RaftTerm, h.Revision = st.ID, st.Term, int64(st.Revision)
	}
	return h
}
