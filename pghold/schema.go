package pghold

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/driver"
)

// Schema is the SQL that makes the schema "holdfast", with the tables, and one with the
// functions of this version, "holdfast_v10": what pghold runs on first use. Where
// programs have no right to do so, have an administrator run it once, in one transaction
// (psql -1), and then the statements of [Grants]. It can be repeated, also under programs
// that use it, and under programs of other versions, which call functions of their own.
// When no program of a version is left, its schema of functions may be dropped.
var Schema = tablesSQL + fastGrantSchemaSQL + locksSQL + gatheringSQL + dataSQL + limitSQL

var (
	//go:embed sql/tables.sql
	tablesSQL string
	//go:embed sql/fastgrant.sql
	fastGrantSchemaSQL string
	//go:embed sql/locks.sql
	locksSQL string
	//go:embed sql/gather.sql
	gatheringSQL string
	//go:embed sql/data.sql
	dataSQL string
	//go:embed sql/limit.sql
	limitSQL string
)

// Versions that the last statements of Schema note. A change of a function is another
// version of all, and another schema for them; programs of several run side by side. A
// change of the tables that programs of the version before cannot live with is another
// version of these too, which they refuse.
const (
	tablesVersion   = 5
	functionsSchema = "holdfast_v10"
)

// schemaLock is the first statement of Schema: it keeps programs that make the
// schema at the same time apart.
const schemaLock = "select pg_catalog.pg_advisory_xact_lock(5209599041173340518)"

const grantAdvice = "the role needs USAGE on the schemas holdfast and " + functionsSchema + ", all on the tables and sequences of the one and EXECUTE on the functions of the other; " +
	"let its owner run the statements of pghold.Grants"

// Grants is the SQL that lets a role use the schema. A role that is to make the
// schema itself needs CREATE on the database instead.
func Grants(role string) string {
	r := pgx.Identifier{role}.Sanitize()
	return fmt.Sprintf(`grant usage on schema holdfast, %[2]s to %[1]s;
grant select, insert, update, delete on all tables in schema holdfast to %[1]s;
grant usage, select on all sequences in schema holdfast to %[1]s;
grant execute on all functions in schema %[2]s to %[1]s;
`, r, functionsSchema)
}

// ready makes sure, once, that the schema is there.
func (c *client) ready(ctx context.Context) error {
	if c.made.Load() {
		return nil
	}
	_, err := c.making.do(ctx, c, func(ctx context.Context) (none struct{}, err error) { return none, c.makeReady(ctx) })
	return err
}

// makeReady makes the schema unless it is there. Only for a connection of the pool it waits as long as that takes: it has
// no caller's time, and must not hang on a server that does not answer.
func (c *client) makeReady(ctx context.Context) error {
	if c.made.Load() {
		return nil
	}
	conn, err := c.pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = c.makeSchema(ctx, conn)
	}
	if err != nil {
		return failed(ctx, err)
	}
	c.made.Store(true)
	return nil
}

func (c *client) makeSchema(ctx context.Context, conn *pgxpool.Conn) error {
	soon, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	if made, err := isMade(soon, conn); made || err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, createFor)
	defer stop()
	err := c.create(ctx, conn)
	for n := 0; n < maxCreates && code(err) == "55P03"; n++ {
		select {
		case <-time.After(createPause): // others that wait for the tables have their turn
			err = c.create(ctx, conn)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// createFor bounds the making of the schema, with the wait for other programs that make it: large tables may get an index.
const createFor = 10 * time.Minute

// How often, and after which pause, a change of tables that others use is tried again.
const (
	maxCreates  = 20
	createPause = 250 * time.Millisecond
)

// fitEncoding refuses a database that cannot keep every name, owner and key as it is.
func fitEncoding(encoding string) error {
	if encoding == "UTF8" {
		return nil
	}
	return refuse(errors.ErrUnsupported, "the database's server_encoding is %q, which cannot keep every name as it is; "+
		"use a database with UTF8 (create database ... encoding 'UTF8' template template0)", encoding)
}

// isMade tells whether the tables have this program's version, and its functions are
// there. It refuses later tables, and databases and connections with an encoding or isolation that does not fit.
func isMade(ctx context.Context, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) (bool, error) {
	var comment, functions *string
	var isolation, encoding string
	// to_regnamespace would answer within a transaction what it was at its beginning.
	err := q.QueryRow(ctx, `select (select pg_catalog.obj_description(n.oid, 'pg_namespace') from pg_catalog.pg_namespace n where n.nspname = 'holdfast'),
(select pg_catalog.obj_description(n.oid, 'pg_namespace') from pg_catalog.pg_namespace n where n.nspname = '`+functionsSchema+`'),
pg_catalog.current_setting('default_transaction_isolation'), pg_catalog.current_setting('server_encoding')`, pgx.QueryExecModeExec).
		Scan(&comment, &functions, &isolation, &encoding)
	if err == nil {
		err = fitEncoding(encoding)
	}
	if err != nil {
		return false, err
	}
	if isolation != "read committed" {
		return false, refuse(errors.ErrUnsupported, "the connections' default isolation is %q, in which a waiter does not see what happens meanwhile; "+
			"set default_transaction_isolation to read committed (default_transaction_isolation=read%%20committed in the URL)", isolation)
	}
	version := 0
	if comment != nil {
		_, _ = fmt.Sscanf(*comment, "holdfast %d", &version) // of anything else it is 0
	}
	if version > tablesVersion {
		return false, refuse(errors.ErrUnsupported, "the schema holdfast has version %d, this program knows %d: update the program", version, tablesVersion)
	}
	return version == tablesVersion && functions != nil, nil
}

// create runs Schema in one transaction, one program after the other. One that comes
// second leaves alone what the first one uses already.
func (c *client) create(ctx context.Context, conn *pgxpool.Conn) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, schemaLock, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		if made, err := isMade(ctx, tx); made || err != nil {
			return err
		}
		_, err := tx.Exec(ctx, Schema, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if code(err) != "42501" {
		return err
	}
	return &driver.Error{Kind: fs.ErrPermission, Outcome: driver.NotDone, Err: fmt.Errorf(
		"%w: the schema holdfast cannot be made; run GRANT CREATE ON DATABASE %s TO %s, or have an administrator run the SQL in pghold.Schema and pghold.Grants",
		err, pgx.Identifier{c.config.Database}.Sanitize(), pgx.Identifier{c.config.User}.Sanitize())}
}
