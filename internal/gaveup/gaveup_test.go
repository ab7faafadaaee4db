package gaveup_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

func TestError(t *testing.T) {
	why := errors.New("the deploy was stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	err := gaveup.Error(ctx, driver.Unknown)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || err.Outcome != driver.Unknown {
		t.Errorf("%v, %v", err, err.Outcome)
	}
	plain, cancelled := context.WithCancel(t.Context())
	cancelled()
	if err := gaveup.Error(plain, driver.NotDone); err.Err != nil || err.Kind != context.Canceled {
		t.Errorf("%+v", err)
	}
}

func TestWithdrawn(t *testing.T) {
	late := &driver.Error{Kind: context.DeadlineExceeded, Outcome: driver.Unknown}
	cut := &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown}
	for _, c := range []struct {
		err  error
		want driver.Outcome
	}{{late, driver.NotDone}, {cut, driver.Unknown}} {
		if e, ok := errors.AsType[*driver.Error](gaveup.Withdrawn(c.err)); !ok || e.Outcome != c.want {
			t.Errorf("%v is told as %+v", c.err, e)
		}
	}
	if late.Outcome != driver.Unknown {
		t.Error("the error of the call is changed")
	}
	if gaveup.Withdrawn(nil) != nil {
		t.Error("no error is one")
	}
}
