package run

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
)

// run.go: "every transaction fits into a request of 64 KiB", also of a phase that a long list of
// events wakes.
func TestTellings_Bounded(t *testing.T) {
	ph := pipeline.NewPhase("a", "make").WithWakeOn("kv:a:set", "kv:"+strings.Repeat("k", 500)+":set", "kv:"+strings.Repeat("k", 20<<10)+":set")
	v := &view{Ref: Ref{"p", "1"}, plan: plan{Definition: &pipeline.Definition{Name: "p", Phases: []pipeline.Phase{ph}}}}
	s := memhold.Open()
	defer s.Close()
	ops := (*Pipelines)(nil).tellings(v, &pipeline.Event{}, &record{}, []pipeline.Effect{{Kind: pipeline.Tell, Verb: "failed", Phase: "a"}})
	if _, err := s.KV().Txn(t.Context(), holdfast.Txn{Then: ops}); err != nil {
		t.Fatal(err)
	}
	e, err := s.KV().Get(t.Context(), gather.EventPrefix+"pipeline/failed/p/1")
	var told telling
	if err := errors.Join(err, json.Unmarshal(e.Value, &told)); err != nil || len(e.Value) > 2*MaxReason || len(told.WakeOn) != 2 {
		t.Errorf("%d bytes tell %d events, %v", len(e.Value), len(told.WakeOn), err)
	}
}

type none struct{}

func (none) Run(*Command) (Exit, error) { return Exit{}, nil }

// doc.go: "an earlier runner that comes late is refused".
func TestTakeOver_Late(t *testing.T) {
	s, ctx := memhold.Open(), t.Context()
	defer s.Close()
	p, err := New(Config{Space: s, Runner: none{}})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := p.Submit(ctx, Submission{Definition: &pipeline.Definition{Name: "p", Phases: []pipeline.Phase{pipeline.NewPhase("a", "make")}}})
	if err != nil {
		t.Fatal(err)
	}
	var runners [2]*holdfast.Leadership
	for i := range runners {
		if runners[i], err = s.Election(ref.election()).Campaign(ctx, nil); err != nil {
			t.Fatal(err)
		}
		runners[i].Resign()
	}
	before, err1 := p.load(ctx, ref)
	v, err2 := p.load(ctx, ref)
	if err := errors.Join(err1, err2, p.takeOver(ctx, v, runners[1])); err != nil {
		t.Fatal(err)
	}
	if err := p.takeOver(ctx, before, runners[0]); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the earlier runner took it back: %v", err)
	}
	if now, err := p.load(ctx, ref); err != nil || now.Token != uint64(runners[1].Token()) {
		t.Errorf("the run has the token %d, not %d; %v", now.Token, runners[1].Token(), err)
	}
}

// A condition of which no leaf is left, because the phase has itself all that it is about, has a reason, too.
func TestReasonOf_NoLeaf(t *testing.T) {
	c := guard.Not(guard.All())
	if r := c.Evaluate(nil); r.Outcome != guard.Failed || reasonOf(r) == "" {
		t.Errorf("%+v has the reason %q", r, reasonOf(r))
	}
}

// A command that is to end before it has begun is not started: the run was cancelled meanwhile.
func TestEnd_Halted(t *testing.T) {
	a := &active{p: &Pipelines{runner: none{}}, ctx: t.Context()}
	c := &command{phase: "a", attempt: 1, halt: make(chan struct{})}
	over := &both{over: t.Context()}
	if e, started := a.end(c, &Command{Hold: over, Stop: c.halt}); !started || e.Kind != pipeline.Exited {
		t.Errorf("before it is to end: %+v", e)
	}
	close(c.halt)
	if e, started := a.end(c, &Command{Hold: over, Stop: c.halt}); started || e.Kind != pipeline.NotStarted {
		t.Errorf("once it is to end: %+v", e)
	}
}
