package fence_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"
)

func sqlite(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+
		"?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := db.Ping(); err != nil { // SQLite does not wait for another connection that also makes the file's log
		t.Fatal(err)
	}
	return db
}

func preparedSQLite(t *testing.T) *sql.DB {
	db := sqlite(t)
	prepare(t, db)
	return db
}

func TestSQLiteRules(t *testing.T)               { testSQLRules(t, preparedSQLite(t)) }
func TestSQLiteRefusesBadInput(t *testing.T)     { testSQLRefusesBadInput(t, preparedSQLite(t)) }
func TestSQLiteStaleChangesNothing(t *testing.T) { testSQLStaleChangesNothing(t, preparedSQLite(t)) }
func TestSQLiteExecRollsBack(t *testing.T)       { testSQLExecRollsBack(t, preparedSQLite(t)) }
func TestSQLiteWithoutTable(t *testing.T)        { testSQLWithoutTable(t, sqlite(t)) }
func TestSQLiteCreateTogether(t *testing.T)      { testSQLCreateTogether(t, sqlite(t)) }
func TestSQLiteCrowd(t *testing.T)               { testSQLCrowd(t, preparedSQLite(t), 10) }
