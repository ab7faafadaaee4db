package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// What both databases must do; sqlite_test.go and postgresql_test.go run it.

// prepare makes the fence's table, a document and the order of its writes.
func prepare(t *testing.T, db *sql.DB) {
	t.Helper()
	if err := fence.CreateTable(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		`CREATE TABLE document (id BIGINT PRIMARY KEY, token BIGINT NOT NULL)`,
		`INSERT INTO document VALUES (1, 0)`,
		`CREATE TABLE history (position BIGINT PRIMARY KEY, token BIGINT NOT NULL)`,
	} {
		mustExec(t, db, q)
	}
}

func mustExec(t *testing.T, db *sql.DB, q string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), q); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

func number(t *testing.T, db *sql.DB, q string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), q, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return n
}

// write sets the document and appends to the history.
func writeDocument(ctx context.Context, token fence.Token) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		n, err := fence.Int64(token)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE document SET token = $1 WHERE id = 1`, n); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO history SELECT COALESCE(MAX(position), 0) + 1, CAST($1 AS BIGINT) FROM history`, n)
		return err
	}
}

// inDatabase is a Table as the rules see it, with a row name for each script.
func inDatabase(t *testing.T, db *sql.DB, prefix string, strict bool) check {
	return func(resource string, token fence.Token, mode fence.Mode) error {
		return fence.Table{Strict: strict}.Exec(t.Context(), db, prefix+resource, token, mode, func(*sql.Tx) error { return nil })
	}
}

func testSQLRules(t *testing.T, db *sql.DB) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { script(t, inDatabase(t, db, r.name, false), r.words) })
	}
	t.Run("strict", func(t *testing.T) {
		script(t, inDatabase(t, db, "strict", true), "x100 x100! x101 x101! x100!")
		err := inDatabase(t, db, "strict", true)("r", 200, fence.Shared)
		wantError(t, err, errors.ErrUnsupported, "exclusive tokens only")
		script(t, inDatabase(t, db, "strict", false), "s150 s140 s100!")
		script(t, inDatabase(t, db, "strict", true), "x150! x151 x151!")
		err = inDatabase(t, db, "strict", true)("r", 151, fence.Exclusive)
		if r, ok := errors.AsType[*fence.Refusal](err); !ok || !r.Repeated || r.LastExclusive != 151 || r.LastShared != 150 {
			t.Errorf("%+v", r)
		}
	})
	for seed := range uint64(4) {
		agree(t, seed, 100, inDatabase(t, db, string(rune('a'+seed)), false), false, true)
		agree(t, seed, 100, inDatabase(t, db, string(rune('A'+seed)), true), true, false)
	}
}

func testSQLRefusesBadInput(t *testing.T, db *sql.DB) {
	for _, bad := range badPasses {
		err := fence.Exec(t.Context(), db, bad.pass.Resource, bad.pass.Token, bad.pass.Mode, nil)
		wantError(t, err, fs.ErrInvalid, bad.word)
	}
	if n := number(t, db, `SELECT COUNT(*) FROM holdfast_fence`); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// "A transaction with a stale token changes nothing."
func testSQLStaleChangesNothing(t *testing.T, db *sql.DB) {
	ctx := t.Context()
	if err := fence.Exec(ctx, db, "doc", 101, fence.Exclusive, writeDocument(ctx, 101)); err != nil {
		t.Fatal(err)
	}
	ran := false
	err := fence.Exec(ctx, db, "doc", 100, fence.Exclusive, func(*sql.Tx) error { ran = true; return nil })
	wantError(t, err, driver.ErrStale, `fence exec "doc"`, "100", "101", "acquire again")
	if ran {
		t.Error("a stale writer's function ran")
	}
	// Also when the writes come first, in the caller's own transaction.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeDocument(ctx, 100)(tx); err != nil {
		t.Fatal(err)
	}
	wantError(t, fence.Tx(ctx, tx, "doc", 100, fence.Exclusive), driver.ErrStale, `fence tx "doc"`)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantState(t, db, 101, 101)
}

// wantState looks at the document, the history's length and the fence.
func wantState(t *testing.T, db *sql.DB, document, last int64) {
	t.Helper()
	got := number(t, db, `SELECT token FROM document`)
	mark := number(t, db, `SELECT last_exclusive FROM holdfast_fence WHERE resource = 'doc'`)
	if got != document || mark != last {
		t.Errorf("the document has %d, want %d; the fence has %d, want %d", got, document, mark, last)
	}
}

func testSQLExecRollsBack(t *testing.T, db *sql.DB) {
	ctx, boom := t.Context(), errors.New("boom")
	if err := fence.Exec(ctx, db, "doc", 5, fence.Exclusive, writeDocument(ctx, 5)); err != nil {
		t.Fatal(err)
	}
	err := fence.Exec(ctx, db, "doc", 6, fence.Exclusive, func(tx *sql.Tx) error {
		return errors.Join(writeDocument(ctx, 6)(tx), boom)
	})
	if !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	wantState(t, db, 5, 5)
	func() {
		defer func() { recover() }()
		fence.Exec(ctx, db, "doc", 6, fence.Exclusive, func(tx *sql.Tx) error {
			writeDocument(ctx, 6)(tx)
			panic(boom)
		})
	}()
	wantState(t, db, 5, 5)
	dead, cancel := context.WithCancel(ctx)
	cancel()
	wantError(t, fence.Exec(dead, db, "doc", 6, fence.Exclusive, writeDocument(ctx, 6)), context.Canceled)
	err = fence.Exec(ctx, db, "doc", 6, fence.Exclusive, func(tx *sql.Tx) error { return tx.Rollback() })
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Outcome != driver.Unknown || !strings.Contains(err.Error(), "read them back") {
		t.Errorf("a commit that failed: %v", err)
	}
	wantState(t, db, 5, 5)
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are still in use", n)
	}
}

func testSQLWithoutTable(t *testing.T, db *sql.DB) {
	err := fence.Exec(t.Context(), db, "doc", 5, fence.Exclusive, nil)
	wantError(t, err, nil, "holdfast_fence", "fence.CreateTable")
}

func testSQLCreateTogether(t *testing.T, db *sql.DB) {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := fence.CreateTable(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := fence.CreateTable(t.Context(), db); err != nil {
		t.Error(err)
	}
}

// 32 writers with random tokens: "the final state was written by the greatest
// token and no write of an older token happened after a newer one committed".
func testSQLCrowd(t *testing.T, db *sql.DB, rounds int) {
	ctx := t.Context()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var greatest uint64
	for i := range 32 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 4))
			for round := range rounds {
				token := uint64(1 + round*8 + rnd.IntN(64))
				mu.Lock()
				greatest = max(greatest, token)
				mu.Unlock()
				err := fence.Exec(ctx, db, "doc", fence.Token(token), fence.Exclusive, writeDocument(ctx, fence.Token(token)))
				if err != nil && !errors.Is(err, driver.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantState(t, db, int64(greatest), int64(greatest))
	if tokens := history(t, db); len(tokens) == 0 || !slices.IsSorted(tokens) {
		t.Errorf("an older writer wrote after a newer one: %v", tokens)
	}
}

func history(t *testing.T, db *sql.DB) (tokens []int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT token FROM history ORDER BY position`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var token int64
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return tokens
}
