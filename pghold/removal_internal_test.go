package pghold

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-io/holdfast/driver"
)

// lateAnswer is a connection that answers when the caller has given the statement up.
type lateAnswer struct{ querier }

func (lateAnswer) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, nil
}

func (lateAnswer) QueryRow(context.Context, string, ...any) pgx.Row { return lateAnswer{} }

func (lateAnswer) Scan(dest ...any) error {
	*dest[0].(*int) = keyPage
	return nil
}

// TestRemovalGivenUp: the answer to a statement that the removal of a session has given up touches nothing that the
// removal reads. The race detector looks on.
func TestRemovalGivenUp(t *testing.T) {
	over, asked := make(chan error), 0
	err := new(client).removeSession(new(driver.Session), func(run func(ctx context.Context, q querier) error) error {
		if asked++; asked < 3 { // the row, and a page
			return run(t.Context(), lateAnswer{})
		}
		go func() { over <- run(t.Context(), lateAnswer{}) }()
		return errClosed
	})
	if !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestCleanUpAfterDrop: a row that has gone with its table is not removed again and again, with a fault each time.
func TestCleanUpAfterDrop(t *testing.T) {
	c := quickClients(t, 1)[0]
	free(t, take(t, c, mutexRequest("m"))) // it makes the schema
	drop := func(ctx context.Context, q querier, _ int64) error {
		_, err := q.Exec(ctx, "select holdfast_v10.drop_claim(1::smallint, 1, 1, null)", pgx.QueryExecModeSimpleProtocol)
		return err
	}
	exec(t, stranger(t, c), "drop schema holdfast cascade")
	if err := c.cleanUpOnce(drop); err != nil {
		t.Error(err)
	}
}

// TestCleanUpWithoutFunctions: while the functions alone are gone the row is there, and is removed when they have been made anew.
func TestCleanUpWithoutFunctions(t *testing.T) {
	c, look, faults := functionsDropped(t, func(*client) {})
	exec(t, look, `insert into holdfast.claim (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, modified)
values (1, 1, 7, 0, 'm', 1, 0, 1, $1, gen_random_uuid(), '', '', 7)`, c.living().nonce)
	c.forget(&rowClaim{name: "m", key: Single(1), id: 7})
	awaitRemoved(t, c, look, faults)
}

// TestReleaseWithoutFunctions: so is the row of a hold of a semaphore, which is not given back before; a lock is, and its row goes at once.
func TestReleaseWithoutFunctions(t *testing.T) {
	var place, reads *rowClaim
	c, look, _ := functionsDropped(t, func(c *client) {
		place = take(t, c, tryRequest("s", driver.Semaphore))
		reads = take(t, c, &driver.Request{Wants: []driver.Want{{Name: "rw", Kind: driver.RWMutex, Mode: driver.Shared}}, Lost: func(error) {}})
	})
	free(t, reads)
	if n := rowsLeft(t, look); n != 1 {
		t.Errorf("%d rows are left of a lock and a semaphore", n)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*faultPause)
	defer cancel()
	if err := place.Release(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given back without the functions: %v", err)
	}
	made(t, c)
	free(t, place)
	if n := rowsLeft(t, look); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// functionsDropped is a client with a home link, after what first does, without the schema of its functions, and what it is told of failures.
func functionsDropped(t *testing.T, first func(*client)) (c *client, look *pgx.Conn, faults chan error) {
	t.Helper()
	c, faults = quickClients(t, 1)[0], make(chan error, 100)
	c.OnFault(func(_, _ string, err error) {
		select {
		case faults <- err:
		default:
		}
	})
	free(t, take(t, c, mutexRequest("made")))
	first(c)
	look = stranger(t, c)
	exec(t, look, "drop schema holdfast_v10 cascade")
	return c, look, faults
}

// awaitRemoved makes the functions anew when the client has failed without them, and waits until no row is left.
func awaitRemoved(t *testing.T, c *client, look *pgx.Conn, faults chan error) {
	t.Helper()
	select {
	case err := <-faults:
		if !isRemoved(err) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the row is given up")
	}
	made(t, c)
	within(t, "the row stays", func() bool { return rowsLeft(t, look) == 0 })
}

// made makes what is missing of the schema, as the next Space does.
func made(t *testing.T, c *client) {
	t.Helper()
	next := newTestClient(t, c.config.ConnString(), c.slice)
	if err := next.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func rowsLeft(t *testing.T, look *pgx.Conn) (n int) {
	t.Helper()
	if err := look.QueryRow(t.Context(), "select count(*) from holdfast.claim").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
