package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
)

var (
	errHandedOver = errors.New("it was to be handed over, and whether it was is not known")
	errDowngraded = errors.New("it was to be downgraded, and whether it was is not known")
)

// change asks the backend to alter the hold. After a hand-over or a downgrade others may
// hold what c holds: if nobody knows whether that was done, c has ended, since its holder
// would go on beside them. Other changes need no such end: a hold that was upgraded, extended
// or proclaimed unheard is at least what its holder believes.
func (c *holdState) change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	g, err := c.grant.Handle.Change(ctx, ch)
	switch {
	case err == nil || NotDone(err) || errors.Is(err, errors.ErrUnsupported):
	case ch.HandOver != "":
		c.doubt(errHandedOver)
	case ch.Downgrade:
		c.doubt(errDowngraded)
	}
	return g, err
}

// doubt ends a claim that may be another's, and has what is left of it given back beside
// the caller. One that has ended or moved on before is left alone: its handle may be the
// next hold's.
func (c *holdState) doubt(cause error) {
	if !c.lose(cause) {
		return
	}
	c.mu.Lock()
	c.moved = true
	c.mu.Unlock()
	c.tie.Untie()
	if !c.sessionOver() {
		c.r.spawn(c.insist)
	}
}
