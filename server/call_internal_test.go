package server

import (
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// Only what certainly did not happen may be asked for once more under another
// number, so only that is told as not done.
func TestAnswersTellWhatIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		answer replica.Answer
		want   driver.Outcome
	}{
		"not done":         {replica.Answer{Outcome: replica.NotDone}, driver.NotDone},
		"refused":          {replica.Answer{Outcome: replica.NotDone, Code: core.CodeInvalid, Text: "why"}, driver.NotDone},
		"overload":         {replica.Answer{Outcome: replica.Overload}, driver.NotDone},
		"unknown":          {replica.Answer{Outcome: replica.Unknown}, driver.Unknown},
		"the node stopped": {replica.Answer{}, driver.Unknown},
	} {
		if e, ok := errors.AsType[*driver.Error](answerError(&c.answer)); !ok || e.Outcome != c.want {
			t.Errorf("%s: %v with outcome %d, want %d", name, e, e.Outcome, c.want)
		}
	}
	if err := answerError(&replica.Answer{Outcome: replica.Done}); err != nil {
		t.Error(err)
	}
}
