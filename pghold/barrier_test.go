package pghold_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// arrive has a party wait at the barrier "b" for two, and returns when it does.
func arrive(t *testing.T, s, looker *holdfast.Space) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Barrier("b", 2).Wait(t.Context()) }()
	eventually(t, "nobody waits", func() bool {
		r, err := looker.Inspect(t.Context(), "b")
		return err == nil && r.Waiting == 1
	})
	return ended
}

// TestPartyCountsOnce: a party that takes its connection for broken while the server does not is not
// counted a second time: nobody passes alone.
func TestPartyCountsOnce(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	way := services.Proxy(t, pg.Addr())
	cfg := must(pgxpool.ParseConfig(url))(t)
	var around atomic.Bool
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !around.Load() {
			addr = way.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	s := openOn(t, pool, &pghold.Options{Keepalive: 50 * time.Millisecond, Timeout: 3 * time.Second}) // no answer is late on a busy machine
	ended := arrive(t, s, open(t, url))
	around.Store(true)
	way.Cut()
	defer way.Heal()
	if err := <-ended; err == nil || holdfast.NotDone(err) {
		t.Errorf("a party that was alone, and may still be counted: %v", err)
	}
}

// TestBarrierThatCannotBeLookedAt: if the server refuses the wait of a party, nobody knows whether
// others have counted it.
func TestBarrierThatCannotBeLookedAt(t *testing.T) {
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	ended := arrive(t, s, s)
	_, err := conn.Exec(t.Context(), "alter function holdfast_v10.look rename to looked")
	check(t, err)
	if err := <-ended; err == nil || holdfast.NotDone(err) {
		t.Errorf("a wait that the server refuses: %v", err)
	}
}
