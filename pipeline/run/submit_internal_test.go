package run

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
)

// slow has a transaction that writes done only before the nth call after it, and its caller
// has no answer.
type slow struct {
	driver.Driver
	held  *driver.TxnRequest
	after int
	wrote bool
}

func (s *slow) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if writes := len(r.If) > 0; writes && !s.wrote {
		s.wrote, s.held = true, r
		return nil, driver.Errorf("", "", driver.ErrUnavailable, "no answer came")
	}
	if s.after--; s.held != nil && s.wrote && s.after <= 0 {
		if _, err := s.Driver.Txn(ctx, s.held); err != nil {
			return nil, err
		}
		s.held = nil
	}
	return s.Driver.Txn(ctx, r)
}

// One Submit makes one run, whenever what had no answer is done.
func TestSubmit_LateAnswer(t *testing.T) {
	for after := 1; after <= 8; after++ {
		for _, id := range []string{"", "mine"} {
			t.Run(fmt.Sprintf("%d %s", after, id), func(t *testing.T) {
				d := &slow{Driver: memhold.New(), after: after}
				s, err := holdfast.New(d)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				p, err := New(Config{Space: s, Runner: none{}})
				if err != nil {
					t.Fatal(err)
				}
				ref, err := p.Submit(t.Context(), Submission{ID: id, Definition: &pipeline.Definition{Name: "p", Places: 1, Phases: []pipeline.Phase{pipeline.NewPhase("a", "make")}}})
				if err != nil {
					t.Fatal(err)
				}
				q, err := p.loadQueue(t.Context(), "p")
				if err != nil || len(q.Runs) != 1 || slices.IndexFunc(q.Runs, func(r queued) bool { return r.ID == ref.ID }) != 0 {
					t.Errorf("the queue has %+v beside %s, %v", q.Runs, ref, err)
				}
			})
		}
	}
}
