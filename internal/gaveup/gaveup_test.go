package gaveup_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

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

// Promise: "NotDone where the backend confirms within 100 ms that all of it is taken back, and else unknown".
func TestWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		steps []step
		want  driver.Outcome
		after time.Duration
	}{
		"nothing to take back":       {nil, driver.Unknown, 0},
		"confirmed":                  {[]step{{time.Millisecond, true}, {gaveup.Patience - 1, true}}, driver.NotDone, gaveup.Patience - 1},
		"confirmed late":             {[]step{{0, true}, {time.Hour, true}}, driver.Unknown, gaveup.Patience},
		"never confirmed":            {[]step{{time.Millisecond, false}}, driver.Unknown, time.Millisecond},
		"one of two not confirmed":   {[]step{{time.Millisecond, true}, {0, false}}, driver.Unknown, time.Millisecond},
		"the first is not confirmed": {[]step{{0, false}, {time.Hour, true}}, driver.Unknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late, begun := &driver.Error{Kind: context.DeadlineExceeded, Outcome: driver.Unknown}, time.Now()
				e, ok := errors.AsType[*driver.Error](gaveup.Withdrawn(late, withdrawals(c.steps)...))
				if !ok || e.Kind != late.Kind || e.Outcome != c.want || time.Since(begun) != c.after {
					t.Errorf("%+v after %s; want %v after %s", e, time.Since(begun), c.want, c.after)
				}
				if late.Outcome != driver.Unknown {
					t.Error("the error of the call is changed")
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// step is one of a withdrawal, by itself.
type step struct {
	takes time.Duration
	heard bool
}

func withdrawals(steps []step) []*gaveup.Withdrawal {
	all := []*gaveup.Withdrawal{new(gaveup.Withdrawal)}
	for _, s := range steps {
		w := new(gaveup.Withdrawal)
		w.Begin()
		time.AfterFunc(s.takes, func() { w.End(s.heard) })
		all = append(all, w)
	}
	synctest.Wait()
	return all
}

// Steps of one withdrawal may begin within others, and one that is not confirmed counts whatever follows.
func TestWithdrawn_Steps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &driver.Error{Kind: driver.ErrHeld, Outcome: driver.NotDone}
		cut := &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown}
		var w, doubted gaveup.Withdrawal
		w.Begin()
		go func() {
			time.Sleep(time.Millisecond)
			w.Begin()
			w.End(true)
			time.Sleep(time.Millisecond)
			w.End(true)
		}()
		doubted.Doubt()
		doubted.Begin()
		doubted.End(true)
		for _, c := range []struct {
			err  error
			by   *gaveup.Withdrawal
			want error
		}{
			{refused, &w, refused}, {cut, &w, cut},
			{refused, &doubted, &driver.Error{Kind: driver.ErrHeld, Outcome: driver.Unknown}},
			{errors.ErrUnsupported, &doubted, errors.ErrUnsupported}, {nil, &doubted, nil},
		} {
			if got := gaveup.Withdrawn(c.err, c.by); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v is told as %+v; want %+v", c.err, got, c.want)
			}
		}
	})
}
