package pghold

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// question is a statement that goes out together with others, in one write,
// each a transaction of its own: what one of them meets is nothing to the rest.
// A link that many share would else be idle while each answer is on its way.
type question interface {
	about() Key // of two about the same key the second waits for the first's answer
	// form is what to ask, for one row, told when it goes out, by who has the
	// link; "": nothing, and the job fails with errPassed.
	form() (sql string, args []any)
	into() []any   // takes the row
	answer() error // what to do with it
	mishap(ctx context.Context, err error) error
}

// maxTogether bounds what goes out before the first answer is read.
const maxTogether = 64

// together is how many of the jobs at the head of the queue can go out at once.
func together(queue []*job) int {
	seen := map[Key]bool{}
	for n, j := range queue[:min(len(queue), maxTogether)] {
		if j.ask == nil || seen[j.ask.about()] {
			return max(n, 1)
		}
		seen[j.ask.about()] = true
	}
	return min(len(queue), maxTogether)
}

// askAll asks, and finishes each job when its answer comes; those that met a
// mishap at the end, when the connection can be used for what mends it.
func (l *link) askAll(ctx context.Context, jobs []*job) {
	errs, last := l.exchange(ctx, jobs)
	if l.conn.IsClosed() {
		l.die(orError(last, errors.New("the connection is closed")))
	}
	for i, j := range jobs {
		if errs[i] != nil {
			j.finish(j.ask.mishap(ctx, errs[i]))
		}
	}
}

// exchange sends all questions and takes the answers. last is the last error.
func (l *link) exchange(ctx context.Context, jobs []*job) (errs []error, last error) {
	l.flagging = false
	errs = make([]error, len(jobs))
	builders := make([]pgx.ExtendedQueryBuilder, len(jobs))
	for i, j := range jobs {
		j.sd, errs[i] = l.build(ctx, j.ask, &builders[i])
	}
	p := l.conn.PgConn().StartPipeline(ctx)
	for i, j := range jobs {
		if b := &builders[i]; errs[i] == nil {
			p.SendQueryStatement(j.sd, b.ParamValues, b.ParamFormats, b.ResultFormats)
			p.SendPipelineSync()
		}
	}
	last = p.Flush()
	for i, j := range jobs {
		if errs[i] == nil {
			errs[i] = l.take(p, j.ask)
		}
		if errs[i] == nil {
			j.finish(nil)
		} else {
			last = errs[i]
		}
	}
	if err := p.Close(); err != nil {
		last = err
	}
	return errs, last
}

// errPassed: when it was to go out there was nothing to ask any more.
var errPassed = errors.New("passed over")

// build makes a question ready to be sent.
func (l *link) build(ctx context.Context, q question, b *pgx.ExtendedQueryBuilder) (*pgconn.StatementDescription, error) {
	sql, args := q.form()
	if sql == "" {
		return nil, errPassed
	}
	sd, err := l.statement(ctx, sql)
	if err == nil {
		err = b.Build(l.conn.TypeMap(), sd, args)
	}
	return sd, err
}

// statement is one that the server knows, made on first use.
func (l *link) statement(ctx context.Context, sql string) (*pgconn.StatementDescription, error) {
	if sd := l.known[sql]; sd != nil {
		return sd, nil
	}
	sd, err := l.conn.Prepare(ctx, sql, sql)
	if err == nil {
		l.known[sql] = sd
	}
	return sd, err
}

// take reads one answer, to the end of its transaction.
func (l *link) take(p *pgconn.Pipeline, q question) error {
	results, err := p.GetResults()
	if err == nil {
		err = l.scan(results, q)
	}
	if _, e := p.GetResults(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return q.answer()
}

func (l *link) scan(results any, q question) error {
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return fmt.Errorf("the server answered a query with %T", results)
	}
	rows := pgx.RowsFromResultReader(l.conn.TypeMap(), reader)
	defer rows.Close()
	if !rows.Next() {
		return orError(rows.Err(), pgx.ErrNoRows)
	}
	if err := rows.Scan(q.into()...); err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}
