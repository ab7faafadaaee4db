package pipeline_test

import (
	"encoding/json"
	"reflect"
	"slices"
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

// checks is the condition that the last event has looked at; nil: none.
func (p *player) checks() *guard.Condition {
	p.t.Helper()
	i := slices.IndexFunc(p.effects, func(f pipeline.Effect) bool { return f.Kind == pipeline.Check })
	if i < 0 {
		p.t.Fatalf("nothing is checked, but %+v", p.effects)
	}
	return p.effects[i].Condition
}
