package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
	_ "modernc.org/sqlite"
)

// Check and write are one transaction: the stale writer changes nothing.
func ExampleExec() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:example?mode=memory&cache=shared")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if err := fence.CreateTable(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE report (text TEXT)`); err != nil {
		fmt.Println(err)
		return
	}
	write := func(token fence.Token, text string) error {
		return fence.Exec(ctx, db, "report", token, fence.Exclusive, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO report VALUES ($1)`, text)
			return err
		})
	}
	fmt.Println(write(101, "by B"))
	fmt.Println(errors.Is(write(100, "by A"), driver.ErrStale))
	var text string
	fmt.Println(db.QueryRowContext(ctx, `SELECT text FROM report`).Scan(&text), text)
	// Output:
	// <nil>
	// true
	// <nil> by B
}
