package pipeline_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/pipeline"
)

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
	if want := "deploy: what it held was lost while its command ran: an operator decided so"; p.s.Reason != want {
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
