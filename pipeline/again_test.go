package pipeline_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/pipeline"
)

// What was so when the run began to wait for its holds, or for a limiter, is checked again
// before the command starts: with what it holds, which is given back if it is not so any more.
func TestStep_ChecksAgain(t *testing.T) {
	frozen := deploy()
	frozen.Limits = []pipeline.Limit{{Limiter: "deploys", Cost: 1}}
	for _, at := range []pipeline.Status{pipeline.Acquiring, pipeline.Launching} {
		p := newPlayer(t, frozen)
		p.start()
		p.checked(guard.Passed, "")
		if at == pipeline.Launching {
			p.acquired()
		}
		p.is(at, "deploy", 1)
		p.now = p.now.Add(time.Hour)
		if at == pipeline.Launching {
			p.must(p.of(pipeline.Launched))
		} else {
			p.acquired()
		}
		p.is(pipeline.Blocked, "deploy", 1)
		if p.held == 0 || p.starts["deploy"] > 0 {
			t.Errorf("%s: holding %d, %d starts", at, p.held, p.starts["deploy"])
		}
		p.checked(guard.Failed, "frozen")
		if p.held != 0 || !slices.ContainsFunc(p.effects, func(f pipeline.Effect) bool { return f.Kind == pipeline.Check }) {
			t.Errorf("%s: frozen it holds %d, and does %+v", at, p.held, p.effects)
		}
		p.checked(guard.Passed, "")
		p.is(pipeline.Acquiring, "deploy", 1)
		p.now = p.now.Add(time.Hour)
		p.acquired()
		p.checked(guard.Passed, "") // with what it holds
		p.is(pipeline.Launching, "deploy", 1)
		p.must(p.of(pipeline.Launched))
		p.is(pipeline.Running, "deploy", 1)
	}
}

// A runner that takes a run over before its command has started checks again.
func TestStep_TakenOverChecksAgain(t *testing.T) {
	for _, at := range []pipeline.Status{pipeline.Acquiring, pipeline.Launching} {
		for _, kind := range []pipeline.EventKind{pipeline.TakenOver, pipeline.Lost} {
			p := newPlayer(t, deploy())
			p.start()
			p.checked(guard.Passed, "")
			if at == pipeline.Launching {
				p.acquired()
			}
			e := p.of(kind)
			if e.Token = p.held; e.Token == 0 && kind == pipeline.Lost {
				continue
			}
			p.must(e)
			p.is(pipeline.Blocked, "deploy", 1)
			if !slices.ContainsFunc(p.effects, func(f pipeline.Effect) bool { return f.Kind == pipeline.Check }) {
				t.Errorf("%s, %s: it does %+v", at, kind, p.effects)
			}
		}
	}
}

// While it is checked again, a lock that the phase has itself counts as free, also under a
// Not; that of another does not.
func TestStep_ChecksAgainWithItsOwnLock(t *testing.T) {
	in := guard.Inputs{
		{Source: guard.SourceLock, Name: "prod"}:  {Is: true, Text: "itself"},
		{Source: guard.SourceLock, Name: "other"}: {Is: true, Text: "ann"},
	}
	for _, c := range []struct {
		when guard.Condition
		want guard.Outcome
	}{
		{guard.LockFree("prod"), guard.Passed},
		{guard.Not(guard.LockHeldBy("prod", "itself")), guard.Passed},
		{guard.Not(guard.Any(guard.Not(guard.LockFree("prod")), guard.LockHeldBy("prod", "itself"))), guard.Passed},
		{guard.All(guard.LockFree("prod"), guard.LockFree("other")), guard.Failed},
	} {
		p := newPlayer(t, pipeline.NewPhase("deploy", "./deploy").WithPre(c.when).WithHolds(prod))
		p.start()
		p.checked(guard.Passed, "")
		p.now = p.now.Add(time.Minute)
		p.acquired()
		if got := p.checks().Evaluate(in); got.Outcome != c.want {
			t.Errorf("%+v is %s", c.when, got)
		}
	}
}

// A semaphore that nobody has used yet has the limit by which a phase of the pipeline holds it.
func TestStep_UnusedSemaphore(t *testing.T) {
	in := guard.Inputs{{Source: guard.SourceSemaphore, Name: "agents"}: {Unused: true}, {Source: guard.SourceSemaphore, Name: "others"}: {Unused: true}}
	for _, c := range []struct {
		when guard.Condition
		want guard.Outcome
	}{
		{guard.SemaphoreAvailable("agents", 5), guard.Passed},
		{guard.SemaphoreAvailable("agents", 6), guard.Failed},
		{guard.SemaphoreAvailable("others", 2), guard.Error},
		{guard.All(guard.SemaphoreAvailable("others", 1), guard.Not(guard.Not(guard.SemaphoreAvailable("agents", 2)))), guard.Passed},
	} {
		holding := pipeline.NewPhase("work", "./work").WithHolds(pipeline.Want{Kind: "semaphore", Name: "agents", Weight: 2, Limit: 5})
		p := newPlayer(t, pipeline.Phase{Name: "wait"}.WithPre(c.when).WithPost(c.when, 0), holding)
		p.start()
		if got := p.checks().Evaluate(in); got.Outcome != c.want {
			t.Errorf("before: %+v is %s", c.when, got)
		}
		p.checked(guard.Passed, "")
		if got := p.checks().Evaluate(in); got.Outcome != c.want {
			t.Errorf("after: %+v is %s", c.when, got)
		}
	}
}

// Of what others have as well only the phase's own part counts as free: its weight of a semaphore, what it took
// from a limiter, and of the holders of a lock that it reads itself alone.
func TestStep_ChecksAgainWithItsOwnPart(t *testing.T) {
	holds := []pipeline.Want{{Kind: "semaphore", Name: "agents", Weight: 2, Limit: 5}, {Kind: "read", Name: "db"}, prod}
	limits := []pipeline.Limit{{Limiter: "api", Key: "k", Cost: 2}}
	in := guard.Inputs{
		{Source: guard.SourceSemaphore, Name: "agents"}:      {Number: 1},
		{Source: guard.SourceLimit, Name: "api", Other: "k"}: {Number: 1},
		{Source: guard.SourceLimit, Name: "api"}:             {Number: 1},
		{Source: guard.SourceLock, Name: "db"}:               {Is: true, Text: "itself", Others: []string{"ann"}},
	}
	for _, c := range []struct {
		when           guard.Condition
		holds, reserve guard.Outcome // with its holds, and with what it took from limiters too
	}{
		{guard.SemaphoreAvailable("agents", 1), guard.Passed, guard.Passed},
		{guard.SemaphoreAvailable("agents", 3), guard.Passed, guard.Passed},
		{guard.SemaphoreAvailable("agents", 4), guard.Failed, guard.Failed},
		{guard.Not(guard.SemaphoreAvailable("agents", 4)), guard.Passed, guard.Passed},
		{guard.Not(guard.SemaphoreAvailable("agents", 2)), guard.Failed, guard.Failed},
		{guard.LimitAvailable("api", "k", 3), guard.Failed, guard.Passed},
		{guard.LimitAvailable("api", "k", 4), guard.Failed, guard.Failed},
		{guard.LimitAvailable("api", "", 3), guard.Failed, guard.Failed},
		{guard.LockFree("db"), guard.Passed, guard.Passed},
		{guard.Not(guard.LockHeldBy("db", "ann")), guard.Failed, guard.Failed},
	} {
		p := newPlayer(t, pipeline.NewPhase("deploy", "./deploy").WithPre(c.when).WithHolds(holds...).WithLimits(limits...))
		p.start()
		p.checked(guard.Passed, "")
		p.now = p.now.Add(time.Minute)
		p.acquired()
		if got := p.checks().Evaluate(in); got.Outcome != c.holds {
			t.Errorf("with its holds %+v is %s", c.when, got)
		}
		p.checked(guard.Passed, "")
		p.now = p.now.Add(time.Minute)
		p.must(p.of(pipeline.Launched))
		if got := p.checks().Evaluate(in); got.Outcome != c.reserve {
			t.Errorf("with what it reserved %+v is %s", c.when, got)
		}
	}
}

// What was taken from a limiter is given back if the condition has not passed, and does not count
// from then on, also in a phase that holds nothing; the condition is looked at anew for that once.
func TestStep_ReservedIsGivenBack(t *testing.T) {
	when := guard.All(guard.LimitAvailable("api", "", 3), guard.KeyAbsent("freeze"))
	p := newPlayer(t, pipeline.NewPhase("deploy", "./deploy").WithPre(when).WithLimits(pipeline.Limit{Limiter: "api", Cost: 2}))
	p.start()
	p.checked(guard.Passed, "")
	p.now = p.now.Add(time.Minute)
	p.must(p.of(pipeline.Launched))
	if got := p.checks(); got.Of[0].Amount != 1 {
		t.Errorf("with what it took: %+v", got)
	}
	p.checked(guard.Failed, "frozen")
	if got := p.checks(); !reflect.DeepEqual(*got, when) {
		t.Errorf("without it: %+v", got)
	}
	if p.checked(guard.Failed, "frozen"); len(p.effects) > 0 {
		t.Errorf("and then: %+v", p.effects)
	}
}

// A condition of all levels that are allowed is one without the phase's own lock, too.
func TestStep_ChecksAgainDeep(t *testing.T) {
	when := guard.LockFree("prod")
	for range guard.MaxDepth {
		when = guard.Not(when)
	}
	p := newPlayer(t, pipeline.NewPhase("deploy", "./deploy").WithPre(when).WithHolds(prod))
	p.start()
	p.checked(guard.Passed, "")
	p.now = p.now.Add(time.Minute)
	p.acquired()
	if err := p.checks().Check(); err != nil {
		t.Error(err)
	}
}
