package convert

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// InUse turns the conflict that a delete met into ErrHeld where the kind is
// right, so that it must be use that stands in the way, and tells the holders.
func InUse(ctx context.Context, d driver.Driver, kind driver.ResourceKind, name string, conflict error) error {
	r, err := d.Inspect(ctx, &driver.InspectRequest{Name: name, Max: 16})
	if err != nil || len(r.Resources) == 0 || r.Resources[0].Kind != kind {
		return conflict
	}
	e := driver.Errorf("", name, driver.ErrHeld, "somebody holds or awaits it: delete it when it is idle")
	e.Holders, e.Waiting = r.Resources[0].Holders, r.Resources[0].Waiting
	return e
}
