//go:build unix

package run_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// cutOff is the backend of a program that is stopped at its nth change: that one, done or not,
// and all calls after it have no answer. How often a runner reads between two changes
// depends on what one look finds: where reads count, no n is sure to be a certain change.
type cutOff struct {
	driver.Driver
	calls atomic.Int64
	at    int64
	done  bool // the nth call is done
	goOn  bool // the program is not stopped: only that call has no answer
	reads bool // they count, too
	cut   chan struct{}
	once  sync.Once
}

// call makes one call, unless the program is stopped.
func call[T any](c *cutOff, change bool, f func() (T, error)) (T, error) {
	var none T
	n, counts := c.calls.Load(), change || c.reads
	if counts {
		n = c.calls.Add(1)
	}
	if n < c.at || c.goOn && (n > c.at || !counts) {
		return f()
	}
	if n == c.at && c.done && counts {
		_, _ = f()
	}
	c.once.Do(func() { close(c.cut) })
	return none, driver.Errorf("", "", driver.ErrUnavailable, "this program is stopped")
}

func (c *cutOff) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	change := slices.ContainsFunc(r.Then, func(o driver.Op) bool { return o.Kind != driver.OpGet })
	return call(c, change, func() (*driver.TxnReply, error) { return c.Driver.Txn(ctx, r) })
}

func (c *cutOff) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if c.goOn { // a backend gives back what it has not told
		return c.Driver.Acquire(ctx, r)
	}
	return call(c, true, func() (driver.Grant, error) { return c.Driver.Acquire(ctx, r) })
}

func (c *cutOff) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	return call(c, false, func() (driver.InspectReply, error) { return c.Driver.Inspect(ctx, r) })
}

// outside is a log that both runners' commands write to, guarded by a fence.
type outside struct {
	t      *testing.T
	gate   fence.Gate
	mu     sync.Mutex
	runs   int
	starts map[string]int
}

// program has commands that write to the log; they are killed with it.
type program struct {
	*outside
	killed chan struct{}
	all    sync.WaitGroup
}

func (o *outside) program() *program { return &program{outside: o, killed: make(chan struct{})} }

// kill returns when no command runs, and none will.
func (o *program) kill() {
	o.mu.Lock()
	close(o.killed)
	o.mu.Unlock()
	o.all.Wait()
}

// Run is a command that takes a moment, and ends when what it runs under is over.
func (o *program) Run(c *run.Command) (run.Exit, error) {
	var token, held uint64
	for _, e := range c.Env {
		_, _ = fmt.Sscanf(e, "HOLDFAST_RUNNER_TOKEN=%d", &token)
		_, _ = fmt.Sscanf(e, "HOLDFAST_TOKEN=%d", &held)
	}
	if c.Phase == "deploy" && held == 0 {
		o.t.Error("deploy runs without what it holds")
	}
	if !o.change(c, 1) {
		return run.Exit{Code: 137}, nil
	}
	defer o.change(c, -1)
	if err := o.gate.Check(c.Ref.String(), fence.Token(token), fence.Exclusive); err != nil {
		o.t.Errorf("%s starts under an old token: %v", c.Phase, err)
	}
	select {
	case <-o.killed:
		return run.Exit{Code: 137}, nil
	case <-c.Hold.Done():
		return run.Exit{Code: 137, Lost: true}, nil
	case <-c.Stop:
		return run.Exit{Code: 143}, nil
	case <-time.After(2 * time.Millisecond):
		return succeed(c)
	}
}

func (o *program) change(c *run.Command, by int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if by > 0 && isClosed(o.killed) {
		return false
	}
	o.all.Add(by)
	if o.runs += by; o.runs > 1 {
		o.t.Errorf("%s runs beside another", c.Phase)
	}
	if by > 0 {
		o.starts[c.Phase]++
	}
	return true
}

// steps is a pipeline with every kind of step: a queue, conditions before and after, holds,
// a phase that may be started again and one that may not.
func steps() *pipeline.Definition {
	build := pipeline.NewPhase("build", "make")
	build.Retries = 3
	d := release(build, pipeline.NewPhase("deploy", "./deploy").WithPre(guard.KeyAbsent("freeze")).WithHolds(prod).WithPost(guard.KeyAbsent("broken"), time.Minute))
	d.Places = 1
	return d
}

// A runner is stopped at each of its changes, with and without the call being done, and a
// second runner is beside it: nothing that may not is started twice, nothing runs beside
// another, an end that nobody saw is asked for, and in the end nothing is held.
func TestStopped_EachStep(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) { stopEachStep(t, backends.URL(t, backend)) })
	}
}

func stopEachStep(t *testing.T, url string) {
	const events = 10 // of a run of steps, each a transaction, and the campaign
	asked := 0
	for _, done := range []bool{false, true} {
		for at := int64(1); ; at++ {
			cut, unknown := stopAt(t, url, at, done)
			if unknown {
				asked++
			}
			if !cut {
				if at <= events {
					t.Fatalf("a run has only %d changes", at-1)
				}
				break
			}
		}
	}
	if asked < 2 {
		t.Errorf("only %d of all runs asked", asked)
	}
}

// A runner gets no answer to one of its calls, which is done: it goes on all the same, and
// nothing is done twice.
func TestAnswerLost_EachStep(t *testing.T) {
	for _, reads := range []bool{false, true} {
		for at := int64(1); loseAnswer(t, at, reads); at++ {
		}
	}
}

// loseAnswer reports whether there was such a call.
func loseAnswer(t *testing.T, at int64, reads bool) bool {
	t.Helper()
	url := fmt.Sprintf("mem://%s-%d-%t", t.Name(), at, reads)
	d, err := driver.Open(t.Context(), url)
	ok(t, err)
	c := &cutOff{Driver: d, at: at, done: true, goOn: true, reads: reads, cut: make(chan struct{})}
	first, err := holdfast.New(c)
	ok(t, err)
	other := backends.Client(t, url)
	o := &outside{t: t, starts: map[string]int{}}
	r := submit(t, pipelines(t, run.Config{Space: other, Runner: o.program()}), steps())
	s, err := pipelines(t, run.Config{Space: first, Runner: o.program(), Recheck: 50 * time.Millisecond}).Run(t.Context(), r)
	if err != nil && !errors.Is(err, holdfast.ErrUnavailable) { // that of its very first calls
		t.Errorf("without the answer to call %d: %v", at, err)
	}
	if err == nil && (s.Status != pipeline.Done || o.starts["deploy"] != 1) {
		t.Errorf("without the answer to call %d: started %v, %+v", at, o.starts, s)
	}
	ok(t, first.Close())
	nothingHeld(t, other, r)
	return isClosed(c.cut)
}

// stopAt runs a run to its end by two runners, the first of which is stopped.
func stopAt(t *testing.T, url string, at int64, done bool) (cut, unknown bool) {
	t.Helper()
	d, err := driver.Open(t.Context(), url)
	ok(t, err)
	c := &cutOff{Driver: d, at: at, done: done, cut: make(chan struct{})}
	first, err := holdfast.New(c)
	ok(t, err)
	second, err := holdfast.Open(t.Context(), url)
	ok(t, err)
	defer second.Close()
	o := &outside{t: t, starts: map[string]int{}}
	stopped := o.program()
	q := pipelines(t, run.Config{Space: second, Runner: o.program(), Recheck: 50 * time.Millisecond})
	pipe := steps()
	pipe.Name = fmt.Sprintf("release-%d-%t", at, done)
	r := submit(t, q, pipe)
	p := pipelines(t, run.Config{Space: first, Runner: stopped})

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-c.cut:
		case <-ctx.Done():
		}
		stopped.kill()
		_ = first.Close() // its sessions are over then, as after the TTL
	})
	all.Go(func() { _, _ = p.Run(ctx, r) })
	until(t, q, r, func(rep *run.Report) bool { return rep.Runner != "" || isClosed(c.cut) || rep.State.Status.Ended() })
	all.Go(func() { unknown = answered(t, q, r) })
	s := ended(t, q, r)
	cancel()
	all.Wait()
	if s.Status != pipeline.Done {
		t.Errorf("stopped at change %d (done: %t) it is %+v", at, done, s)
	}
	never := unknown && o.starts["deploy"] == 0 // it was to start, and its program was stopped before it did
	if o.starts["deploy"] != 1 && !never || o.starts["build"] < 1 {
		t.Errorf("stopped at change %d (done: %t): started %v", at, done, o.starts)
	}
	nothingHeld(t, second, r)
	return isClosed(c.cut), unknown
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// answered says how the command ended, if the run asks before it has ended.
func answered(t *testing.T, p *run.Pipelines, r run.Ref) (asked bool) {
	t.Helper()
	rep := until(t, p, r, func(rep *run.Report) bool {
		return rep.State.Status == pipeline.Unknown || rep.State.Status.Ended()
	})
	if rep.State.Status != pipeline.Unknown {
		return false
	}
	if err := p.Answer(t.Context(), r, pipeline.Succeeded); err != nil {
		t.Error(err)
	}
	return true
}

func nothingHeld(t *testing.T, s *holdfast.Space, r run.Ref) {
	t.Helper()
	if res, err := s.Inspect(t.Context(), "prod"); err != nil || len(res.Holders) > 0 {
		t.Errorf("prod is held by %v, %v", res.Holders, err)
	}
	if l, err := s.Election("holdfast/pipelines/" + r.String()).Leader(t.Context()); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("%s is still run by %v, %v", r, l, err)
	}
}

// A run is cancelled while its runner is dying: the next run in the queue ends it when that
// is known, and takes its place.
func TestCancel_RunnerLost(t *testing.T) {
	for _, how := range []string{"cancelled", "replaced"} {
		t.Run(how, func(t *testing.T) {
			url := "mem://" + t.Name()
			first, other := backends.Client(t, url), backends.Client(t, url)
			killed := make(chan struct{})
			held, began := begun(func(*run.Command) (run.Exit, error) {
				<-killed
				return run.Exit{Code: 137}, nil
			})
			p := pipelines(t, run.Config{Space: first, Runner: held})
			q := pipelines(t, run.Config{Space: other, Runner: commands(succeed)})
			d := release(pipeline.NewPhase("deploy", "./deploy"))
			if d.Places = 1; how == "replaced" {
				d.Policy = pipeline.CancelOlder
			}
			r := submit(t, p, d)
			var all sync.WaitGroup
			all.Go(func() { _, _ = p.Run(t.Context(), r) })
			<-began
			next := submit(t, q, d)
			if how == "cancelled" {
				ok(t, q.Cancel(t.Context(), r, "not wanted"))
			}
			until(t, q, r, status(pipeline.Stopping))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			all.Go(func() {
				if s, err := q.Run(ctx, next); err != nil || s.Status != pipeline.Done {
					t.Errorf("the next is %+v, %v", s, err)
				}
			})
			until(t, q, next, func(rep *run.Report) bool { return rep.Runner != "" })
			ok(t, first.Close()) // its sessions are over then, as after the TTL
			close(killed)
			all.Wait()
			if rep := until(t, q, r, func(*run.Report) bool { return true }); rep.State.Status != pipeline.Cancelled {
				t.Errorf("the first is %+v", rep.State)
			}
		})
	}
}

// The end of a command that its runner saw is kept when that leaves, also if somebody has
// written to the run meanwhile.
func TestLeave_Changed(t *testing.T) {
	s, other := backends.Open(t, "memory")
	q := pipelines(t, run.Config{Space: other})
	changed, began := begun(func(c *run.Command) (run.Exit, error) {
		<-c.Stop
		if err := q.Cancel(t.Context(), c.Ref, "not wanted"); err != nil {
			t.Error(err)
		}
		return run.Exit{Code: 143}, nil
	})
	p := pipelines(t, run.Config{Space: s, Runner: changed})
	r := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy")))
	ok(t, left(t, p, r, began))
	if rep := until(t, q, r, func(*run.Report) bool { return true }); rep.State.Status != pipeline.Cancelled || rep.State.Code != 143 {
		t.Errorf("it is %+v", rep.State)
	}
}
