package pghold_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
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
	_ = drivertest.Check(t.Context(), h, func(c drivertest.Case, err error, _ time.Duration) {
		switch {
		case c.Name == "List/ManyNames": // 250 holds take 250 connections
		case c.Name == "Features/Matrix":
			if err == nil || !strings.Contains(err.Error(), "does not declare") {
				t.Errorf("watches and force are declared: %v", err)
			}
		case err != nil:
			t.Error(err)
		}
	})
}
