//go:build unix

package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// outage is a backend that answers nothing as long as it is down.
type outage struct {
	driver.Driver
	down atomic.Bool
}

var errDown = driver.Errorf("", "", driver.ErrUnavailable, "the backend is down")

func (o *outage) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if o.down.Load() {
		return nil, errDown
	}
	return o.Driver.Txn(ctx, r)
}

func (o *outage) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if o.down.Load() {
		return driver.Grant{}, errDown
	}
	return o.Driver.Acquire(ctx, r)
}

// A command that has ended while the backend was away, for however long, is not started again
// by the runner that saw its end, and nobody is asked. What holds it up is told once.
func TestOutage_EndIsKept(t *testing.T) {
	for _, retries := range []int{0, 3} {
		for _, code := range []int{0, 7} {
			synctest.Test(t, func(t *testing.T) {
				o := &outage{Driver: memhold.New()}
				s, err := holdfast.New(o)
				ok(t, err)
				defer s.Close()
				starts, stalls := 0, []string(nil)
				p := pipelines(t, run.Config{Space: s, OnError: func(_ run.Ref, err error) { stalls = append(stalls, err.Error()) }, Runner: commands(func(c *run.Command) (run.Exit, error) {
					starts++
					time.Sleep(time.Minute)
					if starts > 1 {
						return run.Exit{}, nil
					}
					o.down.Store(true)
					time.AfterFunc(2*time.Minute, func() { o.down.Store(false) })
					return run.Exit{Code: code, Tail: "seen"}, nil
				})})
				ph := pipeline.NewPhase("deploy", "./deploy")
				ph.Retries = retries
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				last, err := p.Run(ctx, submit(t, p, release(ph)))
				ok(t, err)
				if len(stalls) != 1 || !strings.Contains(stalls[0], "the backend is down") {
					t.Errorf("told of the outage: %q; want one line", stalls)
				}
				switch {
				case code == 0 && (last.Status != pipeline.Done || starts != 1 || last.Tail != "seen"):
					t.Errorf("%d starts, then %+v", starts, last)
				case code != 0 && retries == 0 && (last.Status != pipeline.Failed || last.Code != code || starts != 1):
					t.Errorf("%d starts, then %+v", starts, last)
				case code != 0 && retries > 0 && (last.Status != pipeline.Done || starts != 2):
					t.Errorf("%d starts, then %+v", starts, last)
				}
			})
		}
	}
}

// full is a backend that has no room as long as it is down: it can be read.
type full struct{ *outage }

func (f *full) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if f.down.Load() && slices.ContainsFunc(r.Then, func(op driver.Op) bool { return op.Kind == driver.OpPut }) {
		return nil, driver.Errorf("", "", driver.ErrUnavailable, "no room")
	}
	return f.Driver.Txn(ctx, r)
}

func (f *full) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	return f.Driver.Acquire(ctx, r)
}

// A run that cannot be written says why within a minute, once, and goes on when there is room again: whether there is
// none when it begins, or from the end of its command on.
func TestOutage_NoRoom(t *testing.T) {
	for _, when := range []string{"before it begins", "when its command ends"} {
		synctest.Test(t, func(t *testing.T) {
			f := &full{&outage{Driver: memhold.New()}}
			s, err := holdfast.New(f)
			ok(t, err)
			defer s.Close()
			fill := func() {
				f.down.Store(true)
				time.AfterFunc(time.Hour, func() { f.down.Store(false) })
			}
			told, at := "", time.Duration(0)
			began := time.Now()
			p := pipelines(t, run.Config{Space: s, OnError: func(r run.Ref, err error) { told, at = told+r.String()+": "+err.Error(), time.Since(began) }, Runner: commands(func(c *run.Command) (run.Exit, error) {
				if when != "before it begins" {
					fill()
				}
				return succeed(c)
			})})
			r := submit(t, p, release(pipeline.NewPhase("build", "make")))
			if when == "before it begins" {
				fill()
			}
			if last, err := p.Run(t.Context(), r); err != nil || last.Status != pipeline.Done || time.Since(began) < time.Hour {
				t.Errorf("%s: it is %+v after %s: %v", when, last, time.Since(began), err)
			}
			if told != "release/1: pipeline: write release/1: holdfast: txn: unavailable: no room" || at > time.Minute {
				t.Errorf("%s: after %s it has told %q", when, at, told)
			}
		})
	}
}

// unheard is a backend that keeps the first launch of a command, and is down from then on for a while.
type unheard struct {
	*outage
	once sync.Once
}

func (u *unheard) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if slices.ContainsFunc(r.Then, func(op driver.Op) bool { return bytes.Contains(op.Value, []byte(`"kind":"launched"`)) }) {
		u.once.Do(func() {
			_, _ = u.Driver.Txn(ctx, r)
			u.down.Store(true)
			time.AfterFunc(2*time.Minute, func() { u.down.Store(false) })
		})
	}
	return u.outage.Txn(ctx, r)
}

// A command that its runner has not started, since it did not hear whether that was kept, is started
// once when the backend is back: nobody is asked how it ended.
func TestOutage_Launch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := holdfast.New(&unheard{outage: &outage{Driver: memhold.New()}})
		ok(t, err)
		defer s.Close()
		starts := 0
		p := pipelines(t, run.Config{Space: s, Runner: commands(func(c *run.Command) (run.Exit, error) {
			starts++
			return succeed(c)
		})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		last, err := p.Run(ctx, submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithHolds(prod))))
		if ok(t, err); last.Status != pipeline.Done || starts != 1 || last.Attempt != 1 {
			t.Errorf("started %d times, it is %+v", starts, last)
		}
	})
}

// blockedOrEnded is a run that waits for its condition, or has ended where it should have.
func blockedOrEnded(rep *run.Report) bool {
	return rep.State.Status == pipeline.Blocked && rep.State.Reason != "" || rep.State.Status.Ended()
}

// What has changed while the run waited for its lock is seen before the command starts, and
// the lock is not kept meanwhile.
func TestWhen_ChangedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		p := pipelines(t, run.Config{Space: s, Runner: commands(succeed)})
		h, err := s.Mutex("prod").Acquire(t.Context())
		ok(t, err)
		r := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithPre(guard.KeyAbsent("freeze")).WithHolds(prod)))
		done := make(chan pipeline.State, 1)
		go func() { done <- ended(t, p, r) }()
		until(t, p, r, status(pipeline.Acquiring))
		time.Sleep(time.Hour)
		_, err = s.KV().Put(t.Context(), "freeze", nil)
		ok(t, err)
		ok(t, h.Release())
		if rep := until(t, p, r, blockedOrEnded); rep.State.Status.Ended() {
			t.Fatalf("it is %+v", rep.State)
		}
		h, err = s.Mutex("prod").Acquire(t.Context())
		ok(t, err)
		ok(t, h.Release())
		_, err = s.KV().Delete(t.Context(), "freeze")
		ok(t, err)
		if last := <-done; last.Status != pipeline.Done {
			t.Errorf("it is %+v", last)
		}
	})
}

// rival is a source of files that takes from a limiter whenever it is asked, if it is allowed.
type rival struct {
	of  *holdfast.Limiter
	got *atomic.Int64
}

// Find says that there is no file.
func (s rival) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	if d, err := s.of.Allow(ctx, ""); err == nil && d.Allowed {
		s.got.Add(1)
	}
	facts := guard.Inputs{}
	for _, in := range inputs {
		facts[in] = guard.Fact{}
	}
	return facts
}

// Follow tells nothing.
func (s rival) Follow(ctx context.Context, _ func() []guard.Input, _ func(...guard.Input)) {
	<-ctx.Done()
}

// What a run has waited for at a limiter is its own while its condition is looked at again: no
// other can have it, so that the run would wait for another period.
func TestLimits_KeptWhileChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		deploys, got := s.Limiter("deploys", limit.Rate{Algorithm: limit.TokenBucket, Count: 1, Per: time.Hour}), &atomic.Int64{}
		_, err := deploys.Allow(t.Context(), "")
		ok(t, err)
		g := gather.New(gather.Config{Space: s, Sources: map[guard.Source]gather.Source{guard.SourceFile: rival{deploys, got}}})
		p := pipelines(t, run.Config{Space: s, Runner: commands(succeed), Gatherer: g})
		began := time.Now()
		ph := pipeline.NewPhase("deploy", "./deploy").WithPre(guard.FileNotExists("freeze")).WithLimits(pipeline.Limit{Limiter: "deploys", Cost: 1})
		if last := ended(t, p, submit(t, p, release(ph))); last.Status != pipeline.Done {
			t.Errorf("it is %+v", last)
		}
		if after := time.Since(began); after > 61*time.Minute || got.Load() != 0 {
			t.Errorf("it was done after %s, and another got %d", after, got.Load())
		}
	})
}

// A command that cannot be run says why where the run tells its reason, and one that is not there
// has a code of its own, and is not tried again.
func TestCannotRun_Reason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		for code, why := range map[int]error{126: errors.New("permission denied"), 127: fmt.Errorf("deploi: %w", fs.ErrNotExist)} {
			p := pipelines(t, run.Config{Space: s, Runner: commands(func(*run.Command) (run.Exit, error) { return run.Exit{}, why })})
			deploy := pipeline.NewPhase("deploy", "./deploi")
			deploy.Retries = 2
			last := ended(t, p, submit(t, p, release(deploy)))
			if last.Attempt != map[int]int{126: 3, 127: 1}[code] || last.Code != code || last.Reason != "deploy: its command cannot be run: "+why.Error() {
				t.Errorf("it is %+v", last)
			}
		}
	})
}

// Limits are given back if the command does not start: its program is not there, or what was
// waited for is not so any more.
func TestLimits_NotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		deploys := s.Limiter("deploys", limit.Rate{Algorithm: limit.TokenBucket, Count: 3, Per: 3 * time.Hour})
		_, err := deploys.AllowN(t.Context(), "", 3)
		ok(t, err)
		time.Sleep(3 * time.Hour)
		p := pipelines(t, run.Config{Space: s, Runner: commands(func(*run.Command) (run.Exit, error) {
			return run.Exit{}, errors.New("there is no such program")
		})})
		ph := pipeline.NewPhase("deploy", "./deploi").WithLimits(pipeline.Limit{Limiter: "deploys", Cost: 1})
		ph.Retries = 2
		if last := ended(t, p, submit(t, p, release(ph))); last.Status != pipeline.Failed || last.Code != 126 {
			t.Errorf("it is %+v", last)
		}
		if n, err := deploys.Available(t.Context(), ""); err != nil || n != 3 {
			t.Errorf("%d of 3 are left, %v", n, err)
		}

		_, err = deploys.AllowN(t.Context(), "", 3)
		ok(t, err)
		r := submit(t, p, release(ph.WithPre(guard.KeyAbsent("freeze"))))
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := p.Run(ctx, r)
			left <- err
		}()
		until(t, p, r, status(pipeline.Launching))
		_, err = s.KV().Put(t.Context(), "freeze", nil)
		ok(t, err)
		time.Sleep(time.Hour)
		if rep := until(t, p, r, blockedOrEnded); rep.State.Status.Ended() {
			t.Errorf("it is %+v", rep.State)
		}
		if n, err := deploys.Available(t.Context(), ""); err != nil || n != 1 {
			t.Errorf("%d are left after an hour, %v", n, err)
		}
		cancel()
		<-left
	})
}

// A cost that a limiter never allows fails its phase: to wait for it would have no end. What was taken from others
// is given back, and no retry is used.
func TestLimits_Never(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		for _, name := range []string{"api", "db"} {
			ok(t, s.Limiter(name, limit.Rate{}).SetRate(t.Context(), limit.Rate{Count: 1, Per: time.Hour}))
		}
		p := pipelines(t, run.Config{Space: s, Runner: commands(succeed)})
		ph := pipeline.NewPhase("deploy", "./deploy").WithLimits(pipeline.Limit{Limiter: "api", Cost: 1}, pipeline.Limit{Limiter: "db", Cost: 9})
		ph.Retries = 2
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		last, err := p.Run(ctx, submit(t, p, release(ph)))
		if ok(t, err); last.Status != pipeline.Failed || last.Attempt != 1 || !strings.Contains(last.Reason, `the limiter "db" never allows a cost of 9: the most is 1`) {
			t.Errorf("%+v", last)
		}
		if n, err := s.Limiter("api", limit.Rate{}).Available(t.Context(), ""); err != nil || n != 1 {
			t.Errorf("%d of 1 are left, %v", n, err)
		}
	})
}

// A command that its runner did not start, since what it was to run under was over, has taken nothing from limiters, and
// is started by the same attempt.
func TestLimits_RunnerDidNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		deploys := s.Limiter("deploys", limit.Rate{Algorithm: limit.TokenBucket, Count: 3, Per: 3 * time.Hour})
		_, err := deploys.AllowN(t.Context(), "", 3) // now it exists
		ok(t, err)
		time.Sleep(3 * time.Hour)
		asked := 0
		p := pipelines(t, run.Config{Space: s, Runner: commands(func(c *run.Command) (run.Exit, error) {
			if asked++; asked < 3 {
				return run.Exit{Lost: true, NotStarted: true}, nil
			}
			return succeed(c)
		})})
		ph := pipeline.NewPhase("deploy", "./deploy").WithLimits(pipeline.Limit{Limiter: "deploys", Cost: 1})
		if last := ended(t, p, submit(t, p, release(ph))); last.Status != pipeline.Done || last.Attempt != 1 || asked != 3 {
			t.Errorf("asked %d times: %+v", asked, last)
		}
		if n, err := deploys.Available(t.Context(), ""); err != nil || n != 2 {
			t.Errorf("%d of 3 are left, %v", n, err)
		}
	})
}

// late is a backend that answers a write with a text only after something has happened, and a
// while later.
type late struct {
	driver.Driver
	text   string
	before func()
}

func (l *late) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	for i := range r.Then {
		if before := l.before; before != nil && bytes.Contains(r.Then[i].Value, []byte(l.text)) {
			l.before = nil
			before()
			time.Sleep(2 * time.Second)
		}
	}
	return l.Driver.Txn(ctx, r)
}

// A runner that is told to end while it writes that a command starts does not start it, and
// the run has not failed: the next runner goes on with the same attempt.
func TestStart_RunnerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &late{Driver: memhold.New(), text: `"kind":"launched"`, before: cancel}
		s, err := holdfast.New(l)
		ok(t, err)
		defer s.Close()
		starts := 0
		p := pipelines(t, run.Config{Space: s, Runner: commands(func(c *run.Command) (run.Exit, error) {
			starts++
			return succeed(c)
		})})
		r := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithHolds(prod)))
		if last, err := p.Run(ctx, r); !errors.Is(err, context.Canceled) || last.Status != pipeline.Launching || starts != 0 {
			t.Fatalf("%d starts, %+v, %v", starts, last, err)
		}
		if held, err := s.Inspect(t.Context(), "prod"); err != nil || len(held.Holders) > 0 {
			t.Errorf("it holds %+v, %v", held.Holders, err)
		}
		if last := ended(t, p, r); last.Status != pipeline.Done || last.Attempt != 1 || starts != 1 {
			t.Errorf("%d starts, %+v", starts, last)
		}
	})
}

// A hold that is lost while it is written that the command starts is taken anew, and the
// command starts once.
func TestStart_HoldLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &late{Driver: memhold.New(), text: `"kind":"launched"`}
		s, err := holdfast.New(l)
		ok(t, err)
		defer s.Close()
		l.before = func() {
			held, err := s.Inspect(t.Context(), "prod")
			ok(t, err)
			_, err = s.ForceRelease(t.Context(), "prod", held.Holders[0].Token)
			ok(t, err)
		}
		starts := 0
		p := pipelines(t, run.Config{Space: s, Runner: commands(func(c *run.Command) (run.Exit, error) {
			starts++
			return succeed(c)
		})})
		last := ended(t, p, submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithHolds(prod))))
		if last.Status != pipeline.Done || last.Attempt != 1 || starts != 1 {
			t.Errorf("%d starts, %+v", starts, last)
		}
	})
}

// strict is a backend that refuses a name for ever.
type strict struct{ driver.Driver }

func (s strict) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if r.Wants[0].Name == "prod" {
		return driver.Grant{}, driver.Errorf("acquire", "prod", driver.ErrInvalid, "no such name here")
	}
	return s.Driver.Acquire(ctx, r)
}

// What a backend refuses for ever is a failure of the phase, not a wait without end.
func TestHolds_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := holdfast.New(strict{memhold.New()})
		ok(t, err)
		defer s.Close()
		p := pipelines(t, run.Config{Space: s, Runner: commands(succeed)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		last, err := p.Run(ctx, submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithHolds(prod))))
		if ok(t, err); last.Status != pipeline.Failed || !strings.Contains(last.Reason, "no such name here") {
			t.Errorf("%+v", last)
		}
	})
}

// A semaphore that has another limit than the definition says is never had with that one: the phase fails, and says both.
func TestHolds_OtherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		h, err := s.Semaphore("workers", 3).Acquire(t.Context(), 1)
		ok(t, err)
		defer h.Release()
		p := pipelines(t, run.Config{Space: s, Runner: commands(succeed)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		workers := pipeline.Want{Kind: "semaphore", Name: "workers", Weight: 1, Limit: 5}
		last, err := p.Run(ctx, submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithHolds(workers))))
		if ok(t, err); last.Status != pipeline.Failed || !strings.Contains(last.Reason, "has the limit 3, and the phase holds it with 5") {
			t.Errorf("%+v", last)
		}
	})
}
