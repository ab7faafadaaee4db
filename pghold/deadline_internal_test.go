package pghold

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// lateContext is past its deadline, but its timer has not noticed yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }

// A dial that the caller's deadline ended is the caller's deadline, not an
// unreachable server.
func TestDeadlineOfADial(t *testing.T) {
	err := failed(lateContext{t.Context()}, errors.New("dial tcp: i/o timeout"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
