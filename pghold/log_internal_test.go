package pghold

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/internal/services"
)

// TestHealthyWaitLeavesNoError: waits of many slices, for the lock and for the waiter
// before, leave nothing in the server's log.
func TestHealthyWaitLeavesNoError(t *testing.T) {
	pg := services.PostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	holder := newTestClient(t, url, time.Minute)
	g, err := holder.Acquire(t.Context(), mutexRequest("m"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiters := []*client{newTestClient(t, url, 20*time.Millisecond), newTestClient(t, url, 20*time.Millisecond), inTransactions(t, url, 20*time.Millisecond)}
	ended := make(chan error)
	for _, c := range waiters {
		waits := make(chan struct{})
		go func() {
			r := mutexRequest("m")
			r.Waiting = func(int) { close(waits) }
			g, err := c.Acquire(ctx, r)
			if err == nil {
				err = g.Handle.Release(t.Context())
			}
			ended <- err
		}()
		<-waits
	}
	time.Sleep(500 * time.Millisecond) // 25 slices
	if log := serverLog(t, holder); strings.Contains(log, "ERROR") {
		t.Errorf("the server's log:\n%s", log)
	}
	if err := g.Handle.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		if err := <-ended; err != nil {
			t.Errorf("a waiter: %v", err)
		}
	}
	cancel()
	_, _ = holder.pool.Exec(t.Context(), "select 1/0")
	if log := serverLog(t, holder); !strings.Contains(log, "ERROR") {
		t.Errorf("this is not the log, a failure is not in it:\n%s", log)
	}
}

// inTransactions is a client in transaction scope.
func inTransactions(t *testing.T, url string, slice time.Duration) *client {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	c := clientOf(t, cfg)
	c.opts.Scope, c.slice = TransactionScope, slice
	c.mode = c.opts.execMode()
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func serverLog(t *testing.T, c *client) (log string) {
	t.Helper()
	err := c.pool.QueryRow(t.Context(), "select pg_read_file(current_setting('data_directory') || '/../log')").Scan(&log)
	if err != nil {
		t.Fatal(err)
	}
	return log
}
