package cli

import (
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/internal/child"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// A run is told what has become of its command: ended by itself, stopped, lost, or never started.
func TestExitOf(t *testing.T) {
	lost := errors.New("it is lost")
	for _, c := range []struct {
		status child.Status
		err    error
		want   run.Exit
	}{
		{child.Status{Code: 3}, nil, run.Exit{Code: 3, Itself: true, Tail: "x"}},
		{child.Status{Code: 143, Stopped: true}, nil, run.Exit{Code: 143, Tail: "x"}},
		{child.Status{Code: 137, Lost: lost}, nil, run.Exit{Code: 137, Lost: true, Itself: true, Tail: "x"}},
		{child.Status{Lost: lost, NotStarted: true}, nil, run.Exit{Lost: true, NotStarted: true, Itself: true, Tail: "x"}},
		{child.Status{}, lost, run.Exit{Tail: "x"}},
	} {
		if got := exitOf(c.status, c.err, "x"); got != c.want {
			t.Errorf("%+v, %v is %+v", c.status, c.err, got)
		}
	}
}
