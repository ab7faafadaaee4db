package gather_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
)

// A condition that is none cannot be looked for, and its evaluation is an error.
func TestCheck_Shape(t *testing.T) {
	g, c := gather.New(gather.Config{}), guard.Condition{Kind: guard.KindNot}
	if err := g.Check(&c); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("it is checked with %v", err)
	}
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Error {
		t.Errorf("it is %s", r)
	}
}
