package pghold_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestConformance runs the suite that every backend passes, against a server
// with room for the connections of all its clients. Every client has a way of
// its own to the server, which can be cut.
func TestConformance(t *testing.T) {
	pg := services.PostgreSQL(t, services.Setting("max_connections", "400"))
	url := pg.URL(pg.CreateDatabase(t))
	h := drivertest.URL(url)
	var links sync.Map
	h.Open = func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
		way := services.Proxy(t, pg.Addr())
		s, err := holdfast.Open(ctx, way.URL(url), opts...)
		if err == nil {
			links.Store(s, way)
		}
		return s, err
	}
	h.Cut = func(s *holdfast.Space) func() {
		way, _ := links.Load(s)
		way.(*services.Link).Cut()
		return way.(*services.Link).Heal
	}
	drivertest.Run(t, h)
}

// TestConformanceInTransactions runs the suite in transaction scope, which lacks
// what the table of backends asks of PostgreSQL only in what its documentation
// says.
func TestConformanceInTransactions(t *testing.T) {
	pg := services.PostgreSQL(t, services.Setting("max_connections", "400"))
	h := drivertest.URL(pg.URL(pg.CreateDatabase(t)) + "&holdfast_scope=transaction&holdfast_waits=120")
	h.Parallel = 4
	h.Select = func(c drivertest.Case) bool { return c.Name != "List/ManyNames" } // 250 holds would take 250 connections
	_ = drivertest.Check(t.Context(), h, func(c drivertest.Case, err error, _ time.Duration) {
		switch {
		case c.Name == "Features/Matrix":
			if err == nil || !strings.Contains(err.Error(), "does not declare") {
				t.Errorf("watches and force are declared: %v", err)
			}
		case err != nil:
			t.Error(err)
		}
	})
}

// warm takes every free mutex once before it is asked for, so that the driver
// takes it quickly then.
type warm struct{ driver.Driver }

func (w warm) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	first := *r
	first.Try, first.Waiting, first.Lost = true, nil, func(error) {}
	if len(r.Wants) == 1 && r.Wants[0].Kind == driver.Mutex {
		if g, err := w.Driver.Acquire(ctx, &first); err == nil {
			_ = g.Handle.Release(ctx)
		}
	}
	return w.Driver.Acquire(ctx, r)
}

// TestConformanceQuickly runs the cases on locks with every free mutex taken
// quickly, which in TestConformance only a second grant of a name is.
func TestConformanceQuickly(t *testing.T) {
	pg := services.PostgreSQL(t, services.Setting("max_connections", "400"))
	url := pg.URL(pg.CreateDatabase(t))
	h := drivertest.Harness{Open: func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
		d, err := driver.Open(ctx, url)
		if err != nil {
			return nil, err
		}
		return holdfast.New(warm{d}, opts...)
	}}
	h.Select = func(c drivertest.Case) bool {
		group, _, _ := strings.Cut(c.Name, "/")
		return slices.Contains([]string{"Mutex", "Token", "Queue", "Names", "Hold", "Do", "End", "All", "Force", "Session", "Inspect", "List", "Space"}, group)
	}
	drivertest.Run(t, h)
}
