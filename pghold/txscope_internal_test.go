package pghold

import (
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

// TestTryInTxLearnsTheKind: a caller that tries a name that becomes a semaphore in that
// moment is told so, and not that somebody holds it.
func TestTryInTxLearnsTheKind(t *testing.T) {
	c := quickClients(t, 1)[0]
	c.opts.Scope = TransactionScope
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := stranger(t, c)
	exec(t, conn, `create function become() returns trigger language plpgsql as $$ begin
  insert into holdfast.resource (space, key, name, kind, lim, made) values (new.space, new.key, new.name, 3, 1, 1);
  return null; end $$`)
	exec(t, conn, "create trigger become after insert on holdfast.claim for each row execute function become()")
	if _, err := c.Acquire(t.Context(), tryRequest("m", driver.Mutex)); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("TryAcquire of a name that becomes a semaphore: %v; want ErrConflict", err)
	}
	within(t, "the claim's row is left", func() bool {
		var rows int
		if err := conn.QueryRow(t.Context(), "select count(*) from holdfast.claim").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows == 0
	})
}
