package pghold

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// stranger is a connection of its own to the client's database.
func stranger(t *testing.T, c *client) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), c.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// TestForcedWithinARelease: the word that a hold is to be given up, read in the
// middle of its release, does not have that release wait for itself.
func TestForcedWithinARelease(t *testing.T) {
	c := deserted(t)
	conn := stranger(t, c)
	free(t, take(t, c, mutexRequest("m")))
	free(t, takeQuickly(t, c, "m")) // both ways to give it back are known to the server now
	for _, rowless := range []bool{false, true} {
		c.living().setEasy(mustKey(t, "m"), rowless)
		var told atomic.Bool
		r := mutexRequest("m")
		r.Lost = func(error) { told.Store(true) }
		cl := take(t, c, r)
		if cl.rowless.Load() != rowless {
			t.Fatalf("a hold without a row: %t; want %t", !rowless, rowless)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		l, over, answered := cl.l, make(chan error, 1), make(chan struct{})
		l.start(time.Minute, func(context.Context) error { // so that nobody reads but the release
			_, err := conn.Exec(ctx, "select pg_notify('holdfast', $1)", fmt.Sprint("f ", cl.token))
			l.let()
			go func() { over <- firstOf(err, cl.Release(ctx)); close(answered) }()
			again := time.NewTicker(time.Millisecond)
			defer again.Stop()
			for l.leftOver() == nil { // a slow answer is left to the link, which this keeps busy
				select {
				case <-answered:
					return nil
				case <-ctx.Done():
					return nil
				case <-again.C:
				}
			}
			return nil
		})
		select {
		case err := <-over:
			if err != nil || !told.Load() {
				t.Errorf("the release ends with %v; its holder was told within: %t", err, told.Load())
			}
		case <-ctx.Done():
			t.Fatal("the release waits for itself")
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// deserted is a client that a test closes itself: one that hangs cannot be. Its
// quick holds get no row.
func deserted(t *testing.T) *client {
	t.Helper()
	pg := services.SharedPostgreSQL(t)
	c := openClient(t, pg.URL(pg.CreateDatabase(t)))
	c.recordHoldsAfter = time.Hour
	return c
}

// TestForcedBeforeItIsKnown: a hold that others see, and whose end they decide,
// before its own program has heard of the grant, ends all the same.
func TestForcedBeforeItIsKnown(t *testing.T) {
	c := quickClients(t, 2)
	full := tryRequest("s", driver.Semaphore)
	full.Wants[0].Weight = 2
	held := take(t, c[1], full)
	waits, told := make(chan struct{}), make(chan error, 1)
	r := tryRequest("s", driver.Semaphore)
	r.Try, r.Waiting, r.Lost = false, func(int) { close(waits) }, func(cause error) { told <- cause }
	got := make(chan driver.Grant, 1)
	go func() {
		g, err := c[0].Acquire(context.Background(), r)
		if err != nil {
			t.Error(err)
		}
		got <- g
	}()
	<-waits
	deaf := make(chan struct{})
	l := c[0].living()
	l.start(time.Minute, func(context.Context) error { <-deaf; return nil })
	free(t, held)
	var token driver.Token
	within(t, "the waiter is not granted", func() bool {
		i, err := c[1].Inspect(t.Context(), &driver.InspectRequest{Name: "s"})
		if err != nil {
			t.Fatal(err)
		}
		if len(i.Resources) > 0 && len(i.Resources[0].Holders) > 0 {
			token = i.Resources[0].Holders[0].Token
		}
		return token > 0
	})
	if _, err := c[1].Force(t.Context(), &driver.ForceRequest{Name: "s", Token: token}); err != nil {
		t.Fatal(err)
	}
	close(deaf)
	if g := <-got; g.Token != token {
		t.Fatalf("the waiter holds with %d; forced was %d", g.Token, token)
	}
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Fatal("the holder is not told that its hold was taken by force")
	}
	full.Try = false
	free(t, take(t, c[1], full))
}
