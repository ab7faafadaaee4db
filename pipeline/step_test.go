package pipeline_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/pipeline"
)

var begin = time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)

// player plays events to a run, and keeps what a runner would: what it holds, whether its
// command runs, and how often each attempt was started.
type player struct {
	t       *testing.T
	d       *pipeline.Definition
	s       pipeline.State
	now     time.Time
	tokens  uint64
	held    uint64
	running bool
	starts  map[string]int
	log     []pipeline.Event
	effects []pipeline.Effect // of the last event that was taken
	told    []string
}

func newPlayer(t *testing.T, phases ...pipeline.Phase) *player {
	p := &player{t: t, d: &pipeline.Definition{Name: "test", Phases: phases}, now: begin, starts: map[string]int{}}
	if err := p.d.Check(); err != nil {
		t.Fatal(err)
	}
	return p
}

// play gives the run an event, and does what follows from it; false: it was refused.
func (p *player) play(e pipeline.Event) bool {
	p.t.Helper()
	e.At = p.now
	before := p.s
	s, effects, err := p.d.Step(p.s, e)
	if err != nil {
		if !reflect.DeepEqual(s, before) || effects != nil {
			p.t.Fatalf("%s was refused, and changed something", e.Kind)
		}
		return false
	}
	p.s, p.effects = s, effects
	p.log = append(p.log, e)
	switch e.Kind {
	case pipeline.Exited:
		p.running = false
	case pipeline.NotStarted:
		p.running = false
		p.starts[e.Phase]--
	case pipeline.TakenOver:
		p.running, p.held = false, 0
	case pipeline.Lost:
		p.held = 0
	case pipeline.Acquired:
		p.held = e.Token
	}
	for i := range effects {
		p.do(&effects[i])
	}
	p.check()
	return true
}

func (p *player) do(f *pipeline.Effect) {
	p.t.Helper()
	switch f.Kind {
	case pipeline.Tell:
		p.told = append(p.told, f.Verb)
	case pipeline.Start:
		if p.running {
			p.t.Fatalf("%s is started while a command runs", f.Phase)
		}
		if holds := p.d.Phases[p.index(f.Phase)].Holds; len(holds) > 0 && p.held == 0 {
			p.t.Fatalf("%s is started without its holds", f.Phase)
		}
		p.running = true
		p.starts[f.Phase]++
	case pipeline.Release:
		if f.Token != p.held || p.held == 0 {
			p.t.Fatalf("%d is released, and %d held", f.Token, p.held)
		}
		if p.running {
			p.t.Fatal("a release while the command runs")
		}
		p.held = 0
	}
}

func (p *player) index(name string) int {
	return slices.IndexFunc(p.d.Phases, func(x pipeline.Phase) bool { return x.Name == name })
}

// check is what is true after every event.
func (p *player) check() {
	p.t.Helper()
	if p.s.Status.Ended() && (p.running || p.held != 0) {
		p.t.Fatalf("the run is %s: running %v, holding %d", p.s.Status, p.running, p.held)
	}
	if p.held != 0 && p.s.Status == pipeline.Blocked && p.s.Reason != "" {
		p.t.Fatalf("the run is blocked by %q, and holds %d", p.s.Reason, p.held)
	}
	if free := []pipeline.Status{pipeline.Queued, pipeline.Acquiring, pipeline.Pausing, pipeline.Unknown}; p.held != 0 && slices.Contains(free, p.s.Status) {
		p.t.Fatalf("the run is %s, and holds %d", p.s.Status, p.held)
	}
	if p.held != p.s.Token {
		p.t.Fatalf("%d is held, the state says %d", p.held, p.s.Token)
	}
	data, err := json.Marshal(p.s)
	var again pipeline.State
	if err == nil {
		err = json.Unmarshal(data, &again)
	}
	if err != nil || !reflect.DeepEqual(again, p.s) {
		p.t.Fatalf("as JSON %+v becomes %+v, %v", p.s, again, err)
	}
}

// of is an event of the attempt that the run is in.
func (p *player) of(kind pipeline.EventKind) pipeline.Event {
	return pipeline.Event{Kind: kind, Phase: p.s.Phase, Attempt: p.s.Attempt}
}

func (p *player) must(events ...pipeline.Event) {
	p.t.Helper()
	for _, e := range events {
		if !p.play(e) {
			p.t.Fatalf("%s is refused in %+v", e.Kind, p.s)
		}
	}
}

func (p *player) exit(code int) {
	p.t.Helper()
	e := p.of(pipeline.Exited)
	e.Code = code
	p.must(e)
}

func (p *player) checked(o guard.Outcome, reason string) {
	p.t.Helper()
	e := p.of(pipeline.Checked)
	e.Outcome, e.Reason = o, reason
	p.must(e)
}

func (p *player) acquired() {
	p.t.Helper()
	p.tokens++
	e := p.of(pipeline.Acquired)
	e.Token = p.tokens
	p.must(e)
}

func (p *player) is(status pipeline.Status, phase string, attempt int) {
	p.t.Helper()
	if p.s.Status != status || p.s.Phase != phase || p.s.Attempt != attempt {
		p.t.Fatalf("the run is %s in %q, attempt %d; want %s in %q, attempt %d", p.s.Status, p.s.Phase, p.s.Attempt, status, phase, attempt)
	}
}

func (p *player) start() {
	p.t.Helper()
	p.must(pipeline.Event{Kind: pipeline.Submitted}, pipeline.Event{Kind: pipeline.Admitted})
}

var prod = pipeline.Want{Kind: "lock", Name: "prod"}

func deploy() pipeline.Phase {
	return pipeline.NewPhase("deploy", "./deploy").WithPre(guard.FileNotExists("freeze")).WithHolds(prod).
		WithPost(guard.FileExists("healthy"), time.Minute)
}

// Seed 002: "Pipeline blocks on failed pre-guard", "Pipeline resumes when guard passes".
func TestStep_BlocksAndResumes(t *testing.T) {
	p := newPlayer(t, pipeline.NewPhase("build", "make"), deploy())
	p.start()
	p.is(pipeline.Launching, "build", 1)
	p.must(p.of(pipeline.Launched))
	p.exit(0)
	p.is(pipeline.Blocked, "deploy", 1)
	p.checked(guard.Failed, "freeze exists")
	p.checked(guard.Failed, "freeze exists")
	p.checked(guard.NeedsInput, "nobody looked")
	if p.s.Reason != "nobody looked" {
		t.Errorf("it waits for %q", p.s.Reason)
	}
	p.checked(guard.Passed, "")
	p.acquired()
	p.must(p.of(pipeline.Launched))
	p.exit(0)
	p.is(pipeline.Verifying, "deploy", 1)
	if p.held == 0 {
		t.Error("the holds are given back before the phase has ended")
	}
	p.checked(guard.Passed, "")
	p.is(pipeline.Done, "deploy", 1)
	want := "queued launching running waiting waiting resumed acquiring launching running done"
	if got := strings.Join(p.told, " "); got != want {
		t.Errorf("told %s; want %s", got, want)
	}
}

// A phase without retries is started once, whatever happens: an end that nobody saw is
// asked for.
func TestStep_UnknownEndIsAsked(t *testing.T) {
	for answer, want := range map[pipeline.Answer]pipeline.Status{
		pipeline.Succeeded: pipeline.Acquiring, pipeline.DidFail: pipeline.Failed, pipeline.Again: pipeline.Blocked,
	} {
		p := newPlayer(t, deploy())
		p.start()
		p.checked(guard.Passed, "")
		p.acquired()
		p.must(p.of(pipeline.Launched), pipeline.Event{Kind: pipeline.TakenOver})
		p.is(pipeline.Unknown, "deploy", 1)
		e := p.of(pipeline.Answered)
		if e.Answer = "perhaps"; p.play(e) {
			t.Error("any answer will do")
		}
		e.Answer = answer
		p.must(e)
		if p.s.Status != want || p.starts["deploy"] != 1 {
			t.Errorf("%s: the run is %s after %d starts; want %s", answer, p.s.Status, p.starts["deploy"], want)
		}
	}
}

// A phase with retries is started again after a lost runner and after a failure, that often
// and no more.
func TestStep_Retries(t *testing.T) {
	ph := pipeline.NewPhase("test", "make", "test").WithHolds(prod)
	ph.Retries, ph.Pause = 2, time.Minute
	p := newPlayer(t, ph)
	p.start()
	p.acquired()
	p.must(p.of(pipeline.Launched), pipeline.Event{Kind: pipeline.TakenOver})
	p.is(pipeline.Acquiring, "test", 2)
	p.acquired()
	p.must(p.of(pipeline.Launched))
	if p.play(pipeline.Event{Kind: pipeline.Exited, Phase: "test", Attempt: 1}) {
		t.Error("the end of the first attempt ends the second")
	}
	p.exit(1)
	p.is(pipeline.Pausing, "test", 2)
	p.now = p.now.Add(time.Minute - 1)
	p.must(p.of(pipeline.Ticked))
	p.is(pipeline.Pausing, "test", 2)
	p.now = p.now.Add(1)
	p.must(p.of(pipeline.Ticked))
	p.is(pipeline.Acquiring, "test", 3)
	p.acquired()
	p.must(p.of(pipeline.Launched))
	p.exit(1)
	p.is(pipeline.Failed, "test", 3)
	if p.s.Reason != "test: its command ended with exit code 1" {
		t.Errorf("it says %q", p.s.Reason)
	}
}

// A command whose holds are lost is stopped, and its success counts for nothing.
func TestStep_LostHolds(t *testing.T) {
	p := newPlayer(t, deploy())
	p.start()
	p.checked(guard.Passed, "")
	p.acquired()
	p.must(p.of(pipeline.Launched))
	e := p.of(pipeline.Lost)
	if e.Token = 99; p.play(e) {
		t.Error("another's loss is taken")
	}
	e.Token, e.Reason = p.tokens, "an operator decided so"
	p.must(e)
	if !slices.ContainsFunc(p.effects, func(f pipeline.Effect) bool {
		return f.Kind == pipeline.Tell && f.Verb == "lost" && f.Reason == e.Reason
	}) || p.s.Reason != e.Reason {
		t.Errorf("the loss is not told: %+v, %+v", p.s, p.effects)
	}
	if !slices.ContainsFunc(p.effects, func(f pipeline.Effect) bool { return f.Kind == pipeline.Stop }) {
		t.Fatal("the command goes on without its holds")
	}
	p.exit(0)
	p.is(pipeline.Failed, "deploy", 1)
	if want := "deploy: what it held was lost while its command ran, which ended with exit code 0: an operator decided so"; p.s.Reason != want {
		t.Errorf("it says %q, want %q", p.s.Reason, want)
	}
}

// While it is verified, the holds are taken again; the command is not, and the time for
// Until does not begin anew.
func TestStep_VerifyingIsTakenOver(t *testing.T) {
	p := newPlayer(t, deploy())
	p.start()
	p.checked(guard.Passed, "")
	p.acquired()
	p.must(p.of(pipeline.Launched))
	p.exit(0)
	p.now = p.now.Add(59 * time.Second)
	p.must(pipeline.Event{Kind: pipeline.TakenOver})
	p.is(pipeline.Acquiring, "deploy", 1)
	p.acquired()
	p.is(pipeline.Verifying, "deploy", 1)
	p.checked(guard.Failed, "not healthy")
	p.now = p.now.Add(time.Second)
	p.must(p.of(pipeline.Ticked))
	p.is(pipeline.Failed, "deploy", 1)
	if p.s.Reason != "deploy: not so within 1m0s: not healthy" || p.starts["deploy"] != 1 {
		t.Errorf("%q after %d starts", p.s.Reason, p.starts["deploy"])
	}
}

// The time for Until also passes while the run waits for holds that it has lost.
func TestStep_VerifyingWithoutHoldsEnds(t *testing.T) {
	p := newPlayer(t, deploy())
	p.start()
	p.checked(guard.Passed, "")
	p.acquired()
	p.must(p.of(pipeline.Launched))
	p.exit(0)
	p.must(pipeline.Event{Kind: pipeline.TakenOver})
	p.is(pipeline.Acquiring, "deploy", 1)
	if !slices.ContainsFunc(p.effects, func(f pipeline.Effect) bool { return f.Kind == pipeline.WakeAt }) {
		t.Fatal("nothing wakes it")
	}
	p.now = p.now.Add(time.Minute)
	p.must(p.of(pipeline.Ticked))
	p.is(pipeline.Failed, "deploy", 1)
}

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

// checks is the condition that the last event has looked at; nil: none.
func (p *player) checks() *guard.Condition {
	p.t.Helper()
	i := slices.IndexFunc(p.effects, func(f pipeline.Effect) bool { return f.Kind == pipeline.Check })
	if i < 0 {
		p.t.Fatalf("nothing is checked, but %+v", p.effects)
	}
	return p.effects[i].Condition
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

// The path of a run are the phases that it has entered: failures leave out those between.
func TestPath(t *testing.T) {
	phase := func(name, next string) pipeline.Phase {
		p := pipeline.NewPhase(name, "x")
		p.OnFailure = next
		return p
	}
	clean := phase("clean", "")
	clean.Recovery = true
	p := newPlayer(t, phase("build", "ship"), phase("test", ""), phase("ship", "clean"), phase("tell", ""), clean)
	if got := p.d.Path(&p.s); len(got) > 0 {
		t.Errorf("before the first phase: %q", got)
	}
	p.start()
	for _, code := range []int{1, 1, 0} {
		p.must(p.of(pipeline.Launched))
		p.exit(code)
	}
	p.is(pipeline.Failed, "clean", 1)
	if got := p.d.Path(&p.s); !slices.Equal(got, []string{"build", "ship", "clean"}) || !slices.Equal(p.s.Failed, []string{"build", "ship"}) {
		t.Errorf("the path is %q, and failed have %q", got, p.s.Failed)
	}
}

// A phase for recovery runs only after a failure; then the run has failed, and says by what.
func TestStep_Recovery(t *testing.T) {
	risky := pipeline.NewPhase("deploy", "./deploy")
	risky.OnFailure = "roll back"
	back := pipeline.NewPhase("roll back", "./rollback")
	back.Recovery = true
	for code, want := range map[int]string{0: "done: ", 7: "failed: deploy: its command ended with exit code 7"} {
		p := newPlayer(t, risky, back)
		p.start()
		p.must(p.of(pipeline.Launched))
		p.exit(code)
		if code != 0 {
			p.is(pipeline.Launching, "roll back", 1)
			p.must(p.of(pipeline.Launched))
			p.exit(0)
		}
		if got := string(p.s.Status) + ": " + p.s.Reason; got != want {
			t.Errorf("exit code %d: %s", code, got)
		}
	}
}

// A cancelled run ends when its command has, or at once; then nothing is taken any more.
func TestStep_Cancel(t *testing.T) {
	p := newPlayer(t, deploy())
	p.start()
	p.checked(guard.Passed, "")
	p.acquired()
	p.must(p.of(pipeline.Launched), pipeline.Event{Kind: pipeline.Cancel, Reason: "a newer one"}, pipeline.Event{Kind: pipeline.Cancel})
	p.is(pipeline.Stopping, "deploy", 1)
	p.exit(-1)
	p.is(pipeline.Cancelled, "deploy", 1)
	if p.s.Reason != "a newer one" {
		t.Errorf("it says %q", p.s.Reason)
	}
	for _, kind := range kinds {
		if p.play(p.of(kind)) {
			t.Errorf("%s is taken after the end", kind)
		}
	}
}

// A clock that is set back neither takes the run back nor ends it early.
func TestStep_ClockSetBack(t *testing.T) {
	ph := pipeline.NewPhase("test", "make")
	ph.Retries, ph.Pause = 1, time.Minute
	p := newPlayer(t, ph)
	p.start()
	p.now = begin.Add(time.Hour)
	p.must(p.of(pipeline.Launched))
	p.now = begin
	p.exit(1)
	if want := begin.Add(time.Hour + time.Minute); !p.s.Until.Equal(want) || p.s.Since.Before(begin.Add(time.Hour)) {
		t.Errorf("it rests until %s, since %s", p.s.Until, p.s.Since)
	}
}

// A command that was launched and never began has not failed: its attempt waits again, as long
// as at its beginning, with what it still holds.
func TestStep_NotStarted(t *testing.T) {
	ph := pipeline.NewPhase("test", "make").WithHolds(pipeline.Want{Kind: "lock", Name: "l"})
	ph.Wait = time.Minute
	for _, lost := range []bool{false, true} {
		p := newPlayer(t, ph)
		p.start()
		p.acquired()
		p.must(p.of(pipeline.Launched))
		want := pipeline.Launching
		if lost {
			e := p.of(pipeline.Lost)
			e.Token = p.s.Token
			p.must(e)
			want = pipeline.Acquiring
		}
		p.now = p.now.Add(time.Hour)
		p.must(p.of(pipeline.NotStarted))
		if p.s.Status != want || p.s.Attempt != 1 || p.s.Lost || !p.s.Until.Equal(p.now.Add(time.Minute)) {
			t.Errorf("lost %v: %+v", lost, p.s)
		}
		if lost {
			p.acquired()
		}
		p.must(p.of(pipeline.Launched))
		if p.exit(0); p.s.Status != pipeline.Done || p.starts["test"] != 1 {
			t.Errorf("lost %v: %+v, started %d times", lost, p.s, p.starts["test"])
		}
	}
	p := newPlayer(t, ph)
	p.start()
	p.acquired()
	p.must(p.of(pipeline.Launched), pipeline.Event{Kind: pipeline.Cancel, Reason: "not wanted"}, p.of(pipeline.NotStarted))
	if p.s.Status != pipeline.Cancelled || p.s.Reason != "not wanted" {
		t.Errorf("cancelled before it began: %+v", p.s)
	}
}

// A phase that wants what can never be had has failed, whatever retries it has; so has one with a program that is
// not there.
func TestStep_Refused(t *testing.T) {
	ph := pipeline.NewPhase("test", "make").WithHolds(pipeline.Want{Kind: "lock", Name: "l"})
	ph.Retries, ph.Pause, ph.OnFailure = 2, time.Minute, "tell"
	for _, final := range []bool{false, true} {
		p := newPlayer(t, ph, pipeline.Phase{Name: "tell", Recovery: true, Run: []string{"mail"}})
		p.start()
		e := p.of(pipeline.Refused)
		if final {
			p.acquired()
			p.must(p.of(pipeline.Launched))
			e = p.of(pipeline.Exited)
			e.Code, e.Final = 127, true
		}
		e.Reason = "no such name"
		if p.must(e); p.s.Status != pipeline.Launching || p.s.Phase != "tell" || p.s.Failure != "test: no such name" || p.held != 0 {
			t.Errorf("final %v: %+v", final, p.s)
		}
	}
}

// Of an output its end is kept, from the beginning of a character on.
func TestStep_LongOutput(t *testing.T) {
	for _, out := range []string{strings.Repeat("é", 64<<10) + "x", strings.Repeat("\x80", 64<<10)} {
		p := newPlayer(t, pipeline.NewPhase("test", "make"))
		p.start()
		p.must(p.of(pipeline.Launched))
		e := p.of(pipeline.Exited)
		e.Tail, e.At = out, p.now
		s, _, err := p.d.Step(p.s, e)
		if err != nil || len(s.Tail) > pipeline.MaxTail || len(s.Tail) < pipeline.MaxTail-3 || !strings.HasSuffix(out, s.Tail) {
			t.Errorf("%d bytes are kept, %v", len(s.Tail), err)
		}
	}
}

func TestStep_OtherDefinition(t *testing.T) {
	p := newPlayer(t, pipeline.NewPhase("test", "make"))
	p.start()
	p.d.Phases[0].Name = "check"
	if p.play(p.of(pipeline.Launched)) || p.play(pipeline.Event{Kind: pipeline.TakenOver}) {
		t.Error("a run goes on under a definition without its phase")
	}
}

var kinds = []pipeline.EventKind{
	pipeline.Submitted, pipeline.Admitted, pipeline.Checked, pipeline.Acquired, pipeline.Launched, pipeline.Exited,
	pipeline.NotStarted, pipeline.Refused, pipeline.Lost, pipeline.Ticked, pipeline.TakenOver, pipeline.Answered, pipeline.Cancel, "no such event",
}

// Whatever happens in whatever order, a command starts only with its holds and while no
// other runs, each phase no more often than it may, and nothing is held after the end; the
// same events give the same state.
func TestStep_AnyOrder(t *testing.T) {
	ended := map[pipeline.Status]int{}
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := newPlayer(t, anyPhases(rng)...)
		again := map[string]int{}
		for range 60 {
			e := p.anyEvent(rng)
			if p.play(e) && e.Answer == pipeline.Again {
				again[e.Phase]++
			}
		}
		for name, n := range p.starts {
			if most := 1 + p.d.Phases[p.index(name)].Retries + again[name]; n > most {
				t.Fatalf("seed %d: %s was started %d times of %d", seed, name, n, most)
			}
		}
		var s pipeline.State
		for _, e := range p.log {
			s, _, _ = p.d.Step(s, e)
		}
		if !reflect.DeepEqual(s, p.s) {
			t.Fatalf("seed %d: the same events give %+v and %+v", seed, p.s, s)
		}
		ended[p.s.Status]++
	}
	for _, s := range []pipeline.Status{pipeline.Done, pipeline.Failed, pipeline.Cancelled, pipeline.Unknown, pipeline.Pausing, pipeline.Stopping} {
		if ended[s] == 0 {
			t.Errorf("no run of 5000 is %s at last: %v", s, ended)
		}
	}
}

func anyPhases(rng *rand.Rand) (out []pipeline.Phase) {
	n := 1 + rng.IntN(4)
	for i := range n {
		ph := pipeline.NewPhase(string(rune('a' + i)))
		if rng.IntN(5) > 0 {
			ph.Run = []string{"run"}
		}
		if rng.IntN(3) == 0 {
			ph = ph.WithPre(guard.LockFree("x"))
		}
		if rng.IntN(2) == 0 {
			ph = ph.WithHolds(prod)
		}
		if rng.IntN(3) == 0 {
			ph = ph.WithPost(guard.LockFree("x"), time.Duration(rng.IntN(2))*time.Minute)
		}
		ph.Wait = time.Duration(rng.IntN(2)) * time.Minute
		ph.Retries, ph.Pause = rng.IntN(3), time.Duration(rng.IntN(2))*time.Minute
		if ph.Retries == 0 {
			ph.Pause = 0
		}
		ph.Recovery = i > 0 && rng.IntN(4) == 0
		if i+1 < n && rng.IntN(3) == 0 {
			ph.OnFailure = string(rune('a' + i + 1))
		}
		out = append(out, ph)
	}
	return out
}

// anyEvent is mostly one that fits somewhere, sometimes of another attempt.
func (p *player) anyEvent(rng *rand.Rand) pipeline.Event {
	p.now = p.now.Add(time.Duration(rng.IntN(50)-5) * time.Second)
	e := p.of(kinds[rng.IntN(len(kinds))])
	if e.Kind == pipeline.Cancel && rng.IntN(4) > 0 {
		e.Kind = pipeline.Checked
	}
	if rng.IntN(10) == 0 {
		e.Attempt--
	}
	e.Outcome = guard.Outcome(rng.IntN(4))
	e.Code = rng.IntN(2)
	e.Answer = []pipeline.Answer{pipeline.Succeeded, pipeline.DidFail, pipeline.Again, "x"}[rng.IntN(4)]
	if e.Kind != pipeline.Answered {
		e.Answer = ""
	}
	switch e.Kind {
	case pipeline.Acquired:
		p.tokens++
		e.Token = p.tokens
	case pipeline.Lost:
		e.Token = p.held
	}
	return e
}

// A phase that may wait for a minute has failed after it, whatever it waits for; the time
// of its command does not count, and another attempt has a minute of its own.
func TestStep_Wait(t *testing.T) {
	late := func(p *player) {
		p.now = p.now.Add(time.Minute)
		p.must(p.of(pipeline.Ticked))
	}
	for _, upTo := range []pipeline.Status{pipeline.Blocked, pipeline.Acquiring, pipeline.Launching} {
		ph := deploy().WithLimits(pipeline.Limit{Limiter: "api", Cost: 2})
		ph.Wait, ph.Retries = time.Minute, 1
		p := newPlayer(t, ph)
		p.start()
		for i := 0; p.s.Status != upTo; i++ {
			[]func(){func() { p.checked(guard.Passed, "") }, p.acquired}[i]()
		}
		p.now = p.now.Add(59 * time.Second)
		p.checked(guard.Failed, "not yet")
		p.must(p.of(pipeline.Ticked))
		p.is(upTo, "deploy", 1)
		if want := []pipeline.Effect{{Kind: pipeline.WakeAt, Phase: "deploy", Attempt: 1, At: p.s.Until}}; !reflect.DeepEqual(p.effects, want) {
			t.Errorf("%s: a tick that comes early leads to %+v; want %+v", upTo, p.effects, want)
		}
		p.now = p.now.Add(time.Second)
		p.must(p.of(pipeline.Ticked))
		p.is(pipeline.Blocked, "deploy", 2)
		late(p)
		p.is(pipeline.Failed, "deploy", 2)
		if want := "deploy: not so within 1m0s: nothing was found out"; p.s.Reason != want {
			t.Errorf("%s: failed with %q; want %q", upTo, p.s.Reason, want)
		}
	}
	ph := deploy()
	ph.Wait, ph.Within = time.Minute, time.Hour
	p := newPlayer(t, ph)
	p.start()
	p.checked(guard.Passed, "")
	p.acquired()
	p.must(p.of(pipeline.Launched))
	p.now = p.now.Add(10 * time.Minute)
	p.exit(0)
	late(p)
	p.is(pipeline.Verifying, "deploy", 1)
}

// Each wrong definition is refused with what is wrong, as an fs.ErrInvalid.
func TestCheck(t *testing.T) {
	bad := map[string]func(d *pipeline.Definition){
		"has no name":                 func(d *pipeline.Definition) { d.Name = "" },
		"0 phases":                    func(d *pipeline.Definition) { d.Phases = nil },
		"257 phases":                  func(d *pipeline.Definition) { d.Phases = make([]pipeline.Phase, 257) },
		"every phase is for recovery": func(d *pipeline.Definition) { d.Phases[0].Recovery, d.Phases[1].Recovery = true, true },
		"phase 1 has no name":         func(d *pipeline.Definition) { d.Phases[0].Name = "" },
		`two phases are called "a"`:   func(d *pipeline.Definition) { d.Phases[1].Name = "a" },
		"-1 retries":                  func(d *pipeline.Definition) { d.Phases[0].Retries = -1 },
		"1001 retries":                func(d *pipeline.Definition) { d.Phases[0].Retries = 1001 },
		"a pause of 1s before what":   func(d *pipeline.Definition) { d.Phases[0].Pause = time.Second },
		"a time is negative":          func(d *pipeline.Definition) { d.Phases[0].Pause = -1 },
		"within 1s of what":           func(d *pipeline.Definition) { d.Phases[0].Within = time.Second },
		"command is empty":            func(d *pipeline.Definition) { d.Phases[0].Run = []string{""} },
		`goes to "a"`:                 func(d *pipeline.Definition) { d.Phases[0].OnFailure = "a" },
		`goes to "c"`:                 func(d *pipeline.Definition) { d.Phases[0].OnFailure = "c" },
		"it holds 65":                 func(d *pipeline.Definition) { d.Phases[0].Holds = make([]pipeline.Want, 65) },
		"a lock has no name":          func(d *pipeline.Definition) { d.Phases[0].Holds = []pipeline.Want{{Kind: "lock"}} },
		`"mutex" is none of`:          func(d *pipeline.Definition) { d.Phases[0].Holds = []pipeline.Want{{Kind: "mutex", Name: "x"}} },
		`"x" is no semaphore`:         func(d *pipeline.Definition) { d.Phases[0].Holds = []pipeline.Want{{Kind: "lock", Name: "x", Limit: 2}} },
		"weight 3 of 2": func(d *pipeline.Definition) {
			d.Phases[0].Holds = []pipeline.Want{{Kind: "semaphore", Name: "x", Weight: 3, Limit: 2}}
		},
		"would wait for itself": func(d *pipeline.Definition) { d.Phases[0] = d.Phases[0].WithHolds(prod, prod) },
		"there are 17; at most": func(d *pipeline.Definition) { d.Phases[0].Limits = make([]pipeline.Limit, 17) },
		"a limiter has no name": func(d *pipeline.Definition) { d.Phases[0].Limits = []pipeline.Limit{{Cost: 1}} },
		"a cost of 0":           func(d *pipeline.Definition) { d.Phases[0].Limits = []pipeline.Limit{{Limiter: "api"}} },
		"add the costs up": func(d *pipeline.Definition) {
			d.Phases[0].Limits = []pipeline.Limit{{Limiter: "api", Cost: 1}, {Limiter: "api", Cost: 2}}
		},
		"nothing is run": func(d *pipeline.Definition) {
			d.Phases[0].Run, d.Phases[0].Limits = nil, []pipeline.Limit{{Limiter: "api", Cost: 1}}
		},
		"it has -1 places":    func(d *pipeline.Definition) { d.Places = -1 },
		"say how many places": func(d *pipeline.Definition) { d.Policy = pipeline.Newest },
		`the policy "lifo"`:   func(d *pipeline.Definition) { d.Places, d.Policy = 1, "lifo" },
		"when":                func(d *pipeline.Definition) { d.Phases[0] = d.Phases[0].WithPre(guard.LockFree("")) },
		"until":               func(d *pipeline.Definition) { d.Phases[0] = d.Phases[0].WithPost(guard.LockFree(""), 0) },
	}
	for want, spoil := range bad {
		d := &pipeline.Definition{Name: "x", Phases: []pipeline.Phase{pipeline.NewPhase("a", "run"), pipeline.NewPhase("b", "run")}}
		if err := d.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(d)
		if err := d.Check(); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
