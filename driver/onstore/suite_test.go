package onstore_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
	"github.com/holdfast-io/holdfast/drivertest"
)

// TestConformance runs the suite over a store in memory, with a clock and
// without.
func TestConformance(t *testing.T) {
	for name, clock := range map[string]bool{"engine time": true, "observed": false} {
		t.Run(name, func(t *testing.T) {
			s := newStore(clock)
			open := func(context.Context) (driver.Driver, error) {
				return onstore.New(s, onstore.Options{Info: driver.Info{Scheme: "cas"}, Place: t.Name()}), nil
			}
			drivertest.Run(t, drivertest.Harness{
				Driver: open,
				Open: func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
					d, _ := open(ctx)
					return holdfast.New(d, opts...)
				},
			})
		})
	}
}
