package convert

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// InUse turns the conflict that a delete met into ErrHeld, and tells the holders, unless the name
// is of another kind. One that is gone since, or cannot be looked at just then, was in use when the delete met it.
func InUse(ctx context.Context, d driver.Driver, kind driver.ResourceKind, name string, conflict error) error {
	r, err := d.Inspect(ctx, &driver.InspectRequest{Name: name, Max: 16})
	seen := err == nil && len(r.Resources) > 0
	if seen && r.Resources[0].Kind != kind {
		return conflict
	}
	e := driver.Errorf("", name, driver.ErrHeld, "somebody holds or awaits it: delete it when it is idle")
	if !seen {
		return e
	}
	e.Holders, e.Waiting = r.Resources[0].Holders, r.Resources[0].Waiting
	return e
}
