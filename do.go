package holdfast

import (
	"context"
	"errors"
)

// during runs f while h lasts and gives h back however f ends: by return, panic
// or Goexit.
func during(ctx context.Context, h *Hold, f func(context.Context) error) (err error) {
	bound := h.Bind(ctx)
	defer func() {
		over := h.Err()
		released := h.Release()
		err = verdict(bound, err, over, released)
	}()
	return f(bound)
}

// verdict is what Do returns. A loss is told as such, and never hidden behind
// the cancellation that it caused: code that ignores cancellations at shutdown
// must not ignore it. A parent's own end stays the caller's own error.
func verdict(bound context.Context, err, over, released error) error {
	lost := errors.Is(over, ErrLost)
	switch {
	case !lost && err == nil:
		return released
	case !lost, errors.Is(err, ErrLost):
		return err
	case err == nil:
		return over
	case !cancellation(err):
		return errors.Join(err, over)
	case errors.Is(context.Cause(bound), ErrLost):
		return over
	default:
		return err
	}
}

func cancellation(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// do is the body of Do and TryDo of every type.
func do(ctx context.Context, h *Hold, err error, f func(context.Context, *Hold) error) error {
	if err != nil {
		return err
	}
	return during(ctx, h, func(ctx context.Context) error { return f(ctx, h) })
}
