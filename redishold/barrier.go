package redishold

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/barrier"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// arrive waits for the others at a barrier. To have passed is all that counts, so that the validity
// of what is granted does not matter.
func (c *client) arrive(ctx context.Context, k *keyClaim, sent time.Time, waiting func(int)) (*keyClaim, driver.Token, error) {
	k.party = true
	arriving, cancel := barrier.Arriving(ctx)
	defer cancel()
	reply, err := c.rc.run(arriving, acquireScript, c.keys, k.args[:7])
	for err == nil && reply[0] == "more" { // as in call
		reply, err = c.rc.run(arriving, acquireScript, c.keys, k.args[:7])
	}
	if err != nil {
		k.failed(err)
		if ctx.Err() != nil {
			return nil, 0, gaveup.Error(ctx, driver.Unknown)
		}
		return nil, 0, failure(arriving, err)
	}
	t, err := k.settle(ctx, reply, sent, waiting)
	return k, t, err
}

// maybeCounted is err of a claim that has waited: of a party others may have counted it.
func (k *keyClaim) maybeCounted(err error) error {
	if !k.party {
		return err
	}
	return barrier.MaybeCounted(err)
}

// leave takes a party back, unless all had come before.
func (k *keyClaim) leave(ctx context.Context) (driver.Token, error) {
	leaving, cancel := barrier.Leaving(ctx)
	defer cancel()
	reply, err := k.c.call(leaving, releaseScript, k.id, k.u.sid, "1", k.name)
	switch {
	case err != nil:
		k.withdraw()
		return 0, gaveup.Error(ctx, driver.Unknown)
	case reply[0] != "ok": // its session is over
		k.forget()
		return 0, gaveup.Error(ctx, driver.Unknown)
	}
	k.forget()
	if reply[1] == "1" {
		return k.passed(), nil
	}
	return 0, gaveup.Error(ctx, driver.NotDone)
}

// passed is the token of a party that has passed, as far as it was told.
func (k *keyClaim) passed() driver.Token {
	select {
	case token := <-k.granted:
		return token
	default:
		return 0
	}
}
