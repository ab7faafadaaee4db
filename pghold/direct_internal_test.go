package pghold

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// TestFunctionOf: the numbers are those of the functions that the statements call.
func TestFunctionOf(t *testing.T) {
	c := quickClients(t, 1)[0]
	for sql, signature := range map[string]string{
		unlockSQLs[0]: "pg_catalog.pg_advisory_unlock(bigint)",
		unlockSQLs[1]: "pg_catalog.pg_advisory_unlock(integer,integer)",
	} {
		var oid uint32
		if err := c.pool.QueryRow(t.Context(), "select $1::regprocedure::oid", signature).Scan(&oid); err != nil {
			t.Fatal(err)
		}
		if functionOf(sql) != oid {
			t.Errorf("%s is %d, not %d", signature, oid, functionOf(sql))
		}
	}
}

// TestUnlockIsACall: a quick hold is given back by a call of the function, of one
// number and of two; through a pooler by a statement.
func TestUnlockIsACall(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	db := pg.CreateDatabase(t)
	pooler := services.PgBouncer(t, pg, services.SessionPooling)
	for url, calls := range map[string]bool{pg.URL(db): true, pooler.URL(db): false} {
		c := newTestClient(t, url, time.Minute)
		c.note = lateRow
		for pair, name := range map[bool]string{true: "short", false: "a long name"} {
			free(t, takeQuickly(t, c, name))
			cl := takeQuickly(t, c, name) // now its statement is known
			free(t, cl)
			if last := lastStatement(t, c, home(t, c)); calls == (last == unlockSQLs[index(pair)]) {
				t.Errorf("through %s %q was given back by %q", url, name, last)
			}
		}
	}
}

// lastStatement is what the server was last asked on a link; a call does not count.
func lastStatement(t *testing.T, c *client, l *link) (sql string) {
	t.Helper()
	if err := c.pool.QueryRow(t.Context(), "select query from pg_catalog.pg_stat_activity where pid = $1", l.pid).Scan(&sql); err != nil {
		t.Fatal(err)
	}
	return sql
}
