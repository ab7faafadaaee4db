package pghold

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// parcel is one statement for one question, or for several of the same form: a
// statement costs the server ten times what a lock costs it.
type parcel struct {
	jobs    []*job
	sql     string
	rows    [][]any // the arguments of each
	sd      *pgconn.StatementDescription
	builder pgx.ExtendedQueryBuilder
}

// plural is a statement for many: its first arguments are those of each one, which all
// have in common, and the others are lists.
type plural struct {
	sql    string
	common int
}

// plurals are the statements for many, by those for one. All of them try, and none waits:
// in one transaction two programs that wait for each other's locks would be a deadlock.
// The locks stay when a statement fails, as they do of the statements for one.
var plurals = map[string]plural{
	fastGrantSQLs[0][1]: {fastGrantManySQL("$2::bigint[], $3::bigint[]", "guard, a", "x.a"), 1},
	fastGrantSQLs[1][1]: {fastGrantManySQL("$2::bigint[], $3::int[], $4::int[]", "guard, a, b", "x.a, x.b"), 1},
	unlockSQLs[0]:       {"select pg_catalog.pg_advisory_unlock(x.a) from unnest($1::bigint[]) x (a)", 0},
	unlockSQLs[1]:       {"select pg_catalog.pg_advisory_unlock(x.a, x.b) from unnest($1::int[], $2::int[]) x (a, b)", 0},
}

// fastGrantManySQL is fastGrantSQL for a list of names; the fast-path lock is taken once.
func fastGrantManySQL(lists, columns, key string) string {
	return fmt.Sprintf(`select coalesce(case when (select pg_catalog.pg_try_advisory_xact_lock($1)) then case when pg_catalog.pg_try_advisory_xact_lock(x.guard) then
case when pg_catalog.pg_try_advisory_lock(%s) then pg_catalog.nextval('holdfast.token') end end end, 0), pg_catalog.pg_backend_pid() from unnest(%s) x (%s)`, key, lists, columns)
}

// pack makes the questions ready to be sent; errs has those that are not.
func (l *pgLink) pack(ctx context.Context, jobs []*job, errs map[*job]error) (parcels []parcel) {
	open := map[string]int{} // where more of the form go
	for _, j := range jobs {
		sql, args := j.ask.form()
		if sql == "" {
			errs[j] = errPassed
			continue
		}
		at, found := open[sql]
		if _, many := plurals[sql]; !found || !many {
			at = len(parcels)
			open[sql] = at
			parcels = append(parcels, parcel{sql: sql})
		}
		parcels[at].jobs = append(parcels[at].jobs, j)
		parcels[at].rows = append(parcels[at].rows, args)
	}
	ready := parcels[:0]
	for _, p := range parcels {
		if err := l.build(ctx, &p); err != nil {
			p.fail(err, errs)
			continue
		}
		ready = append(ready, p)
	}
	return ready
}

// build fills the parcel.
func (l *pgLink) build(ctx context.Context, p *parcel) (err error) {
	sql, args := p.sql, p.rows[0]
	if len(p.jobs) > 1 {
		many := plurals[sql]
		sql, args = many.sql, lists(p.rows, many.common)
		for _, j := range p.jobs {
			j.shared = true
		}
	}
	if p.sd, err = l.statement(ctx, sql); err != nil {
		return err
	}
	return p.builder.Build(l.conn.TypeMap(), p.sd, args)
}

// lists are the arguments of many rows, all but the first ones as lists.
func lists(rows [][]any, common int) []any {
	args := rows[0][:common:common]
	for i := common; i < len(rows[0]); i++ {
		switch rows[0][i].(type) {
		case int64:
			args = append(args, column[int64](rows, i))
		default:
			args = append(args, column[int32](rows, i))
		}
	}
	return args
}

func column[T any](rows [][]any, i int) []T {
	list := make([]T, len(rows))
	for n, row := range rows {
		list[n] = row[i].(T)
	}
	return list
}

func (p *parcel) fail(err error, errs map[*job]error) {
	for _, j := range p.jobs {
		errs[j] = err
	}
}

// takeAll reads the answers to a parcel, to the end of its transaction, and finishes the
// jobs that met no mishap.
func (l *pgLink) takeAll(p *pgconn.Pipeline, of *parcel, errs map[*job]error) {
	results, err := p.GetResults()
	if err == nil {
		err = l.scanAll(results, of)
	}
	if _, e := p.GetResults(); err == nil {
		err = e
	}
	if err != nil {
		of.fail(err, errs)
		return
	}
	for _, j := range of.jobs {
		if err := j.ask.answer(); err != nil {
			errs[j] = err
			continue
		}
		j.finish(nil)
	}
}

// scanAll reads a row for each question.
func (l *pgLink) scanAll(results any, of *parcel) error {
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return fmt.Errorf("the server answered a query with %T", results)
	}
	rows := pgx.RowsFromResultReader(l.conn.TypeMap(), reader)
	defer rows.Close()
	for _, j := range of.jobs {
		if !rows.Next() {
			return orError(rows.Err(), pgx.ErrNoRows)
		}
		if err := l.scanInto(rows, j); err != nil {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}

// scanInto reads the row of a question: numbers and truth values, which are most, as
// fast as they can be.
func (l *pgLink) scanInto(rows pgx.Rows, j *job) error {
	into, fields := j.ask.into(), rows.FieldDescriptions()
	if j.shared && len(into) == len(fields) {
		for i, v := range rows.RawValues() {
			if fields[i].Format != pgtype.BinaryFormatCode || !readSmall(fields[i].DataTypeOID, v, into[i]) {
				return rows.Scan(into...)
			}
		}
		return nil
	}
	return rows.Scan(into...)
}
