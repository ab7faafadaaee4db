package guardtest_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
)

// An input that is broken without a reason is broken.
func TestBreak_NoReason(t *testing.T) {
	facts := guardtest.New()
	g := gather.New(gather.Config{Sources: facts.Sources()})
	c := guard.BranchExists("b")
	facts.Break(c.Input(), "")
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Error {
		t.Errorf("the guard is %s", r.Outcome)
	}
}
