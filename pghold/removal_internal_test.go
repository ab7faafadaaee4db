package pghold

import (
	"context"
	"errors"
	"testing"

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
