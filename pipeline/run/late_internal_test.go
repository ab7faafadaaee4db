package run

import (
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
)

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
