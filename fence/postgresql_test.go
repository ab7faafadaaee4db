//go:build unix

package fence_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
)

func postgresql(t *testing.T) *sql.DB {
	t.Helper()
	server := services.SharedPostgreSQL(t)
	db, err := sql.Open("pgx", server.URL(server.CreateDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(33)
	t.Cleanup(func() { db.Close() })
	return db
}

func preparedPostgreSQL(t *testing.T) *sql.DB {
	db := postgresql(t)
	prepare(t, db)
	return db
}

func TestPostgreSQLRules(t *testing.T)           { testSQLRules(t, preparedPostgreSQL(t)) }
func TestPostgreSQLRefusesBadInput(t *testing.T) { testSQLRefusesBadInput(t, preparedPostgreSQL(t)) }
func TestPostgreSQLStaleChangesNothing(t *testing.T) {
	testSQLStaleChangesNothing(t, preparedPostgreSQL(t))
}
func TestPostgreSQLExecRollsBack(t *testing.T)  { testSQLExecRollsBack(t, preparedPostgreSQL(t)) }
func TestPostgreSQLWithoutTable(t *testing.T)   { testSQLWithoutTable(t, postgresql(t)) }
func TestPostgreSQLCreateTogether(t *testing.T) { testSQLCreateTogether(t, postgresql(t)) }
func TestPostgreSQLCrowd(t *testing.T)          { testSQLCrowd(t, preparedPostgreSQL(t), 10) }

func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	// The snapshot of a stricter level is taken here.
	if _, err := tx.ExecContext(t.Context(), `SELECT token FROM document`); err != nil {
		t.Fatal(err)
	}
	return tx
}

// A transaction that began first, with a token that is stale by now, does not
// slip through.
func TestPostgreSQLAnEarlierTransactionIsStillStale(t *testing.T) {
	db := preparedPostgreSQL(t)
	ctx := t.Context()
	early := begin(t, db, sql.LevelReadCommitted)
	if err := fence.Exec(ctx, db, "doc", 30, fence.Exclusive, writeDocument(ctx, 30)); err != nil {
		t.Fatal(err)
	}
	wantError(t, fence.Tx(ctx, early, "doc", 20, fence.Exclusive), driver.ErrStale, "20", "30")
	early.Rollback()
	wantState(t, db, 30, 30)
}

// waiting waits until somebody waits for a lock, or done yields.
func waiting(t *testing.T, db *sql.DB, done <-chan error) bool {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			t.Errorf("it did not wait: %v", err)
			return false
		case <-tick.C:
			if number(t, db, `SELECT COUNT(*) FROM pg_locks WHERE NOT granted`) > 0 {
				return true
			}
		}
	}
}

// "Row lock held until commit": the second caller waits for the first, and
// then sees what the first has committed.
func TestPostgreSQLTransactionsOfOneResourceTakeTurns(t *testing.T) {
	tests := []struct {
		name          string
		first, second fence.Pass
		commit        bool
		want          error
		last          int64
	}{
		{"a newer writer writes after it", fence.Pass{Token: 20}, fence.Pass{Token: 30}, true, nil, 30},
		{"an older writer is stale after it", fence.Pass{Token: 30}, fence.Pass{Token: 20}, true, driver.ErrStale, 30},
		{"an older writer is stale after a reader", fence.Pass{Token: 25, Mode: fence.Shared}, fence.Pass{Token: 20}, true, driver.ErrStale, 0},
		{"what is rolled back was never seen", fence.Pass{Token: 30}, fence.Pass{Token: 20}, false, nil, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			db := preparedPostgreSQL(t)
			ctx := t.Context()
			first := begin(t, db, sql.LevelReadCommitted)
			if err := fence.Tx(ctx, first, "doc", tt.first.Token, tt.first.Mode); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				done <- fence.Exec(ctx, db, "doc", tt.second.Token, tt.second.Mode, writeDocument(ctx, tt.second.Token))
			}()
			if !waiting(t, db, done) {
				return
			}
			end := first.Rollback
			if tt.commit {
				end = first.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, tt.want) {
				t.Errorf("the second: %v, want %v", err, tt.want)
			}
			if n := number(t, db, `SELECT last_exclusive FROM holdfast_fence`); n != tt.last {
				t.Errorf("the fence has %d, want %d", n, tt.last)
			}
		})
	}
}

// With a stricter level the database refuses what it cannot order; it never lets
// a stale token pass.
func TestPostgreSQLStricterLevels(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			db := preparedPostgreSQL(t)
			ctx := t.Context()
			if err := fence.Exec(ctx, db, "doc", 10, fence.Exclusive, writeDocument(ctx, 10)); err != nil {
				t.Fatal(err)
			}
			early := begin(t, db, level)
			if err := fence.Exec(ctx, db, "doc", 30, fence.Exclusive, writeDocument(ctx, 30)); err != nil {
				t.Fatal(err)
			}
			err := fence.Tx(ctx, early, "doc", 20, fence.Exclusive)
			if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "40001" {
				t.Errorf("got %v, want a serialization failure", err)
			}
			early.Rollback()
			wantState(t, db, 30, 30)
		})
	}
}
