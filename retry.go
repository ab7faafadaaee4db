package holdfast

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// again reports that a call has no answer of the backend: it could not be asked, or nobody
// knows whether it heard the call. What is closed never answers, as a directory that was deleted.
func again(err error) bool {
	if errors.Is(err, ErrClosed) {
		return false
	}
	return errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// insist tells the backend until it answers, the session is over or the Space
// is closed. Without it a lost answer would leave the name held as long as the
// session lives.
func (c *holdState) insist() {
	ctx, cancel := context.WithCancel(c.r.life)
	defer cancel()
	if c.grant.Session != nil && len(c.wants) == 1 {
		var tie driver.Tie
		tie.To(c.grant.Session, func(error) { cancel() })
		defer tie.Untie()
	}
	err := retry(ctx, c.tell)
	if err != nil && !errors.Is(err, ErrLost) && !c.sessionOver() {
		c.r.fault("release", c.name, c.r.wrap(ctx, "release", c.name, "", err))
	}
}

// The pause between two tries, doubled from the first to the last.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it is answered or ctx ends.
func retry(ctx context.Context, f func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f(ctx)
		if !again(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
	}
}

// spawn runs f beside the callers; false: the Space is closed. Close waits for
// it, so f has to end with spaceState.life.
func (r *spaceState) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase.Load() == closed {
		return false
	}
	r.work.Go(f)
	return true
}
