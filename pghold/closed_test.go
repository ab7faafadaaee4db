package pghold_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// TestClosedIsFree: what a Space held is free when Close returns, also if it waited for the same: a wait in the server may
// be granted in the moment in which the hold before it ends.
func TestClosedIsFree(t *testing.T) {
	url := database(t)
	other := open(t, url)
	check(t, released(other.Mutex("m").Acquire(t.Context())))
	for range 25 {
		s := openPool(t, url, &pghold.Options{Timeout: 3 * patience})
		must(s.Mutex("m").Acquire(t.Context()))(t)
		next := waiting(t, s, "m")
		check(t, s.Close())
		check(t, released(other.Mutex("m").TryAcquire(t.Context())))
		<-next
	}
}

// TestClose_OfASilentServer: the pool takes 15 s to give a connection up on which a caller did not wait for the answer;
// Close does not wait for that.
func TestClose_OfASilentServer(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	way := services.Proxy(t, pg.Addr())
	s := must(holdfast.Open(t.Context(), way.URL(pg.URL(pg.CreateDatabase(t)))))(t)
	must(s.KV().Put(t.Context(), "k", nil))(t)
	way.Cut()
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.KV().Put(soon, "k", nil)
	refused(t, err, context.DeadlineExceeded)
	began := time.Now()
	check(t, s.Close())
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Close took %v", took)
	}
	way.Heal()
}
