package pghold

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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
		c.recordHoldsAfter = time.Hour // no row comes meanwhile
		for pair, name := range map[bool]string{true: "short", false: "a long name"} {
			free(t, takeQuickly(t, c, name))
			cl := takeQuickly(t, c, name)
			if last := unlockDirectly(t, cl); calls == (last == unlockSQLs[index(pair)]) {
				t.Errorf("through %s %q was given back by %q", url, name, last)
			}
		}
	}
}

// unlockDirectly gives a hold back as a caller does that finds the link free, and
// tells what statement the server was asked last. A call is none.
func unlockDirectly(t *testing.T, cl *rowClaim) (last string) {
	t.Helper()
	l := cl.l
	j := l.start(time.Minute, func(ctx context.Context) error {
		q := &unlocking{cl: cl}
		q.ask = q
		sql, args := q.form()
		sd, err := l.statement(ctx, sql)
		if err != nil {
			return err
		}
		q.sd = sd
		if err := errors.Join(l.fill(sd, args), l.send(&q.job), l.receive(&q.job)); err != nil {
			return err
		}
		return errors.Join(q.failed, q.answer(), cl.c.pool.QueryRow(ctx, "select query from pg_catalog.pg_stat_activity where pid = $1", l.pid).Scan(&last))
	})
	<-j.done
	if j.err != nil {
		t.Fatal(j.err)
	}
	cl.freed(nil)
	return last
}

// TestCallIsRefused: where something on the way does not let calls of functions
// through, statements are used.
func TestCallIsRefused(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	cfg, err := pgxpool.ParseConfig(pg.URL(pg.CreateDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return callSpoiler{conn}, err
	}
	c := clientOf(t, cfg)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	c.recordHoldsAfter = time.Hour // no row comes meanwhile
	free(t, takeQuickly(t, c, "m"))
	l := home(t, c)
	for l.calls { // until a caller finds the link free
		free(t, takeQuickly(t, c, "m"))
	}
	free(t, takeQuickly(t, c, "m"))
	if held := l.held[mustKey(t, "m")]; held != (tally{}) {
		t.Errorf("the link counts %v", held)
	}
}

// callSpoiler has the server not find the function that is called.
type callSpoiler struct{ net.Conn }

func (s callSpoiler) Write(b []byte) (int, error) {
	if b[0] == 'F' {
		b = slices.Concat(b[:5], []byte{0, 0, 0, 1}, b[9:])
	}
	return s.Conn.Write(b)
}
