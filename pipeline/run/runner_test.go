//go:build unix

package run_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// Cancel ends a run wherever it stands: one that nobody runs at once, one that runs when its
// command has ended, and one with a lost runner too.
func TestCancel(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			s, other := backends.Open(t, backend)
			stopped, began := begun(untilStopped)
			p, q := pipelines(t, run.Config{Space: s, Runner: stopped}), pipelines(t, run.Config{Space: other, Runner: commands(untilStopped)})
			d := release(pipeline.NewPhase("deploy", "./deploy").WithHolds(prod))
			r := submit(t, p, d)
			ok(t, q.Cancel(t.Context(), r, "not wanted"))
			if s := ended(t, p, r); s.Status != pipeline.Cancelled || s.Reason != "not wanted" {
				t.Errorf("cancelled while it waits: %+v", s)
			}
			if err := q.Cancel(t.Context(), r, "again"); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("cancelled twice: %v", err)
			}
			r = submit(t, p, d)
			done := make(chan pipeline.State)
			go func() { done <- ended(t, p, r) }()
			<-began // that it is Running is known earlier
			ok(t, q.Cancel(t.Context(), r, "not wanted"))
			if s := <-done; s.Status != pipeline.Cancelled || s.Code != 143 {
				t.Errorf("cancelled while it runs: %+v", s)
			}
			stopped, began = begun(untilStopped)
			p = pipelines(t, run.Config{Space: s, Runner: stopped})
			r = submit(t, p, d)
			ok(t, left(t, p, r, began))
			if rep := until(t, q, r, func(*run.Report) bool { return true }); rep.State.Status != pipeline.Failed || rep.Runner != "" {
				t.Errorf("left while it runs: %+v", rep)
			}
		})
	}
}

// Of many that say something of a run at the same time each sees what was said before: a run
// is cancelled once.
func TestCancel_Once(t *testing.T) {
	const callers = 16
	s, other := backends.Open(t, "memory")
	var read atomic.Int32
	ready := make(chan struct{})
	together := func() time.Time { // an event gets its time when its writer has read the run
		if read.Add(1) == callers {
			close(ready)
		}
		<-ready
		return time.Now()
	}
	ps := []*run.Pipelines{pipelines(t, run.Config{Space: s, Now: together}), pipelines(t, run.Config{Space: other, Now: together})}
	r := submit(t, pipelines(t, run.Config{Space: s, Runner: commands(succeed)}), release(pipeline.NewPhase("deploy", "./deploy")))
	var all sync.WaitGroup
	var done atomic.Int32
	for i := range callers {
		all.Go(func() {
			if err := ps[i%2].Cancel(t.Context(), r, "not wanted"); err == nil {
				done.Add(1)
			} else if !errors.Is(err, fs.ErrInvalid) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if rep := until(t, ps[0], r, status(pipeline.Cancelled)); done.Load() != 1 || rep.Events != 2 {
		t.Errorf("cancelled %d times, with %d events", done.Load(), rep.Events)
	}
}

// begun is a runner of commands, and tells when the first of them has begun.
func begun(f commands) (commands, <-chan struct{}) {
	began := make(chan struct{})
	tell := sync.OnceFunc(func() { close(began) })
	return func(c *run.Command) (run.Exit, error) {
		tell()
		return f(c)
	}, began
}

// left runs a run until its command has begun, and leaves it then. That its state is Running is known earlier:
// a run that is left in between starts no command.
func left(t *testing.T, p *run.Pipelines, r run.Ref, began <-chan struct{}) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, r)
		done <- err
	}()
	<-began
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("left with %w", err)
	}
	return nil
}

// A phase that waits for a semaphore before it holds it starts, also if nobody has used that yet.
func TestWhen_UnusedSemaphore(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			s, _ := backends.Open(t, backend)
			p := pipelines(t, run.Config{Space: s, Runner: commands(succeed)})
			agents := pipeline.Want{Kind: "semaphore", Name: "agents", Weight: 2, Limit: 3}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			last, err := p.Run(ctx, submit(t, p, release(pipeline.NewPhase("work", "./work").WithPre(guard.SemaphoreAvailable("agents", 2)).WithHolds(agents))))
			if err != nil || last.Status != pipeline.Done {
				t.Errorf("it is %+v, %v", last, err)
			}
		})
	}
}

// What is held is lost while the command runs: the command is ended, and the phase has
// failed; a second attempt takes it anew.
func TestLostHold(t *testing.T) {
	s, other := backends.Open(t, "memory")
	var starts atomic.Int32
	began := make(chan struct{})
	p := pipelines(t, run.Config{Space: s, Runner: commands(func(c *run.Command) (run.Exit, error) {
		if starts.Add(1) > 1 {
			return succeed(c)
		}
		close(began)
		return untilStopped(c)
	})})
	ph := pipeline.NewPhase("deploy", "./deploy").WithHolds(prod)
	ph.Retries = 1
	r := submit(t, p, release(ph))
	done := make(chan pipeline.State)
	go func() { done <- ended(t, p, r) }()
	<-began
	rep := until(t, p, r, status(pipeline.Running))
	_, err := other.ForceRelease(t.Context(), "prod", holdfast.Token(rep.State.Token))
	ok(t, err)
	if s := <-done; s.Status != pipeline.Done || s.Attempt != 2 || starts.Load() != 2 {
		t.Errorf("after %d starts it is %+v", starts.Load(), s)
	}
	told, err := other.KV().Get(t.Context(), gather.EventPrefix+"pipeline/lost/"+r.String())
	if err != nil || !strings.Contains(string(told.Value), `it was taken by force`) || !strings.Contains(string(told.Value), `"attempt":1`) {
		t.Errorf("the loss is told as %s, %v", told.Value, err)
	}
}

// docs/guards.md: "If they are lost while the command runs, it is ended, and the phase has failed: the reason says why they
// were lost". A command is ended before what it runs under is over, when that cannot be renewed: it has not succeeded then,
// however well it takes the signal, and its exit code is its own.
func TestLostHold_NotRenewed(t *testing.T) {
	for _, c := range []struct {
		holds []pipeline.Want
		code  int
		want  string
	}{
		{[]pipeline.Want{prod}, 0, "deploy: what it held was lost while its command ran: it could not be renewed in time; the command was ended, with exit code 0"},
		{[]pipeline.Want{prod}, 143, "deploy: what it held was lost while its command ran: it could not be renewed in time; the command was ended, with exit code 143"},
		{nil, 3, "deploy: its runner had lost the run while its command ran: it could not be renewed in time; the command was ended, with exit code 3"},
	} {
		s, _ := backends.Open(t, "memory")
		p := pipelines(t, run.Config{Space: s, Runner: commands(func(*run.Command) (run.Exit, error) { return run.Exit{Code: c.code, Lost: true}, nil })})
		r := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithHolds(c.holds...), pipeline.NewPhase("next", "true")))
		if s := ended(t, p, r); s.Status != pipeline.Failed || s.Code != c.code || s.Reason != c.want {
			t.Errorf("ended with exit code %d it is %+v", c.code, s)
		}
	}
}

// The reason tells whether the hold was lost, or the run.
func TestLostHold_Which(t *testing.T) {
	for _, want := range []string{"what it held was lost", "its runner had lost the run"} {
		s, other := backends.Open(t, "memory")
		p := pipelines(t, run.Config{Space: s, Runner: commands(func(c *run.Command) (run.Exit, error) {
			name := "prod"
			if !strings.Contains(want, "held") {
				name = "holdfast/pipelines/" + c.Ref.String()
			}
			held, err := other.Inspect(t.Context(), name)
			if err == nil {
				_, err = other.ForceRelease(t.Context(), name, held.Holders[0].Token)
			}
			if err != nil {
				t.Error(err)
			}
			<-c.Hold.Done()
			return run.Exit{Lost: true}, nil
		})})
		r := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithHolds(prod)))
		if s := ended(t, p, r); s.Status != pipeline.Failed || !strings.HasPrefix(s.Reason, "deploy: "+want) || !strings.Contains(s.Reason, "by force") || s.Code != 0 {
			t.Errorf("when %s it is %+v", want, s)
		}
	}
}

// Runs wait for a place of their pipeline by its policy, over two runners, and one without
// a runner holds up nobody.
func TestPlaces(t *testing.T) {
	for policy, want := range map[pipeline.Policy]string{
		pipeline.FIFO: "1 2 3 4", pipeline.Newest: "1 4", pipeline.CancelOlder: "4", pipeline.Priority: "1 4 3 2",
	} {
		t.Run(string(policy), func(t *testing.T) {
			s, other := backends.Open(t, "node")
			var mu sync.Mutex
			var order []string
			open := make(chan struct{})
			runner := commands(func(c *run.Command) (run.Exit, error) {
				select {
				case <-open:
				case <-c.Stop:
					return run.Exit{Code: 143}, nil
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, c.Ref.ID)
				return succeed(c)
			})
			ps := []*run.Pipelines{pipelines(t, run.Config{Space: s, Runner: runner}), pipelines(t, run.Config{Space: other, Runner: runner})}
			d := release(pipeline.NewPhase("deploy", "./deploy"))
			d.Places, d.Policy = 1, policy
			var all sync.WaitGroup
			var refs []run.Ref
			for i := range 4 {
				p := ps[i%2]
				r, err := p.Submit(t.Context(), run.Submission{Definition: d, Priority: i})
				ok(t, err)
				refs = append(refs, r)
				all.Go(func() { ended(t, p, r) })
				until(t, p, r, func(rep *run.Report) bool {
					return rep.Runner != "" && (i > 0 && policy != pipeline.CancelOlder || rep.State.Status == pipeline.Running)
				})
			}
			if policy == pipeline.FIFO {
				if rep := until(t, ps[0], refs[3], func(*run.Report) bool { return true }); rep.Place != 3 || !slices.Equal(rep.Ahead, []string{"1"}) {
					t.Errorf("the last has place %d behind %q", rep.Place, rep.Ahead)
				}
			}
			close(open)
			all.Wait()
			if got := strings.Join(order, " "); got != want {
				t.Errorf("%s: %s; want %s", policy, got, want)
			}
		})
	}
}

// A run that waits and has no runner is passed over, once it has had time to find one.
func TestPlaces_Abandoned(t *testing.T) {
	s, _ := backends.Open(t, "memory")
	later, began := atomic.Int64{}, time.Now()
	clock := func() time.Time { return began.Add(time.Duration(later.Load())) } // which goes on by the word of the test alone
	p := pipelines(t, run.Config{Space: s, Runner: commands(succeed), Recheck: 20 * time.Millisecond, Now: clock})
	d := release(pipeline.NewPhase("deploy", "./deploy"))
	d.Places = 1
	first, second := submit(t, p, d), submit(t, p, d)
	done := make(chan pipeline.State)
	go func() { done <- ended(t, p, second) }()
	until(t, p, second, func(r *run.Report) bool { return r.Runner != "" })
	select {
	case s := <-done:
		t.Fatalf("it has overtaken one that was just submitted: %+v", s)
	case <-time.After(100 * time.Millisecond):
	}
	later.Store(int64(time.Minute))
	if s := <-done; s.Status != pipeline.Done {
		t.Errorf("the second is %+v", s)
	}
	if s := ended(t, p, first); s.Status != pipeline.Done {
		t.Errorf("the first is %+v", s)
	}
}

// A run that waits, and was left by its runner a moment ago, holds up nobody; the run behind it
// tells where it stands meanwhile, and which run without a runner has the place.
func TestPlaces_Left(t *testing.T) {
	for _, backend := range []string{"memory", "file", "node"} {
		t.Run(backend, func(t *testing.T) {
			s, other := backends.Open(t, backend)
			told, began := make(chan pipeline.State, 100), time.Now()
			clock := func() time.Time { return began } // so nothing is as old as a run that never found a runner
			hung := commands(func(c *run.Command) (run.Exit, error) {
				<-c.Stop
				return run.Exit{Code: 143}, nil
			})
			p := pipelines(t, run.Config{Space: s, Runner: hung, Recheck: time.Hour, Now: clock})
			q := pipelines(t, run.Config{Space: other, Runner: commands(succeed), Recheck: time.Hour, Now: clock, Told: func(_ run.Ref, s pipeline.State) { told <- s }})
			ph := pipeline.NewPhase("deploy", "./deploy")
			ph.Retries = 1
			d := release(ph)
			d.Places = 1
			run1, run2, run3 := submit(t, p, d), submit(t, p, d), submit(t, p, d)
			leave := []func(){going(t, p, run1), going(t, p, run2)}
			until(t, p, run1, func(r *run.Report) bool { return r.State.Status == pipeline.Running })
			until(t, p, run2, func(r *run.Report) bool { return r.Runner != "" && r.Events > 1 })
			done := make(chan pipeline.State, 1)
			go func() { done <- ended(t, q, run3) }()
			for s := range told {
				if s.Reason == "it has place 2 in the queue; the places are taken by 1" {
					break
				}
			}
			leave[1]()
			leave[0]()
			if rep := until(t, q, run3, func(r *run.Report) bool {
				return r.State.Reason != "it has place 2 in the queue; the places are taken by 1"
			}); rep.State.Reason != "it has place 2 in the queue; the places are taken by 1 (which no program runs)" {
				t.Errorf("it says %q", rep.State.Reason)
			}
			ok(t, q.Cancel(t.Context(), run1, "it is not wanted"))
			select {
			case s := <-done:
				if s.Status != pipeline.Done {
					t.Errorf("the third is %+v", s)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the second, which no program runs, holds up the third")
			}
			if rep, err := q.Report(t.Context(), run2); err != nil || rep.State.Status != pipeline.Queued {
				t.Errorf("the second is %+v, %v", rep.State, err)
			}
		})
	}
}

// going runs a run, until the function that it returns has it left.
func going(t *testing.T, p *run.Pipelines, r run.Ref) (leave func()) {
	ctx, stop := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = p.Run(ctx, r)
	}()
	return func() { stop(); <-left }
}

// A limiter lets a phase start by its rate; what a phase took that does not start is given
// back.
func TestLimits(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	s := backends.Client(t, pg.URL(pg.CreateDatabase(t)))
	p := pipelines(t, run.Config{Space: s, Runner: commands(succeed)})
	api, db := s.Limiter("api", limit.Rate{}), s.Limiter("db", limit.Rate{})
	ok(t, api.SetRate(t.Context(), limit.Rate{Algorithm: limit.TokenBucket, Count: 2, Per: time.Hour}))
	ok(t, db.SetRate(t.Context(), limit.Rate{Algorithm: limit.TokenBucket, Count: 1, Per: time.Hour}))
	ph := pipeline.NewPhase("deploy", "./deploy").WithLimits(pipeline.Limit{Limiter: "api", Cost: 1}, pipeline.Limit{Limiter: "db", Cost: 1})
	if s := ended(t, p, submit(t, p, release(ph))); s.Status != pipeline.Done {
		t.Fatalf("the first is %+v", s)
	}
	r := submit(t, p, release(ph))
	done := make(chan pipeline.State)
	go func() { done <- ended(t, p, r) }()
	rep := until(t, p, r, func(r *run.Report) bool { return r.State.Reason != "" })
	if rep.State.Status != pipeline.Launching || !strings.Contains(rep.State.Reason, `the limiter "db" allows`) {
		t.Errorf("it waits as %+v", rep.State)
	}
	until(t, p, r, func(*run.Report) bool { // at times it asks both again
		n, err := api.Available(t.Context(), "")
		ok(t, err)
		return n == 1 // the second has not started
	})
	ok(t, p.Cancel(t.Context(), r, "enough"))
	<-done
}
