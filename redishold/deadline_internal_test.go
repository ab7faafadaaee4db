package redishold

import (
	"context"
	"errors"
	"testing"
	"time"
)

// lateContext is past its deadline, but its timer has not noticed yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }

// A dial that the caller's deadline ended is the caller's deadline, not an
// unreachable server.
func TestDeadlineOfADial(t *testing.T) {
	err := failure(lateContext{t.Context()}, errors.New("dial tcp: i/o timeout"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
