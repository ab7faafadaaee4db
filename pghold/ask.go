package pghold

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// question is a statement that goes out together with others, in one write,
// each a transaction of its own, or a row of one statement for many (see parcel): one
// failure does not affect the others. A link that many share would else be idle while
// each answer is on its way.
type question interface {
	about() Key // of two about the same key the second waits for the first's answer
	// form is what to ask, for one row, told when it goes out, by the goroutine that has the
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
func (l *pgLink) askAll(ctx context.Context, jobs []*job) {
	errs, last := l.exchange(ctx, jobs)
	if l.conn.IsClosed() {
		l.fail(orError(last, errors.New("the connection is closed")))
	}
	for _, j := range jobs {
		if err := errs[j]; err != nil {
			j.finish(j.ask.mishap(ctx, err))
		}
	}
}

// exchange sends all questions and takes the answers. last is the last error.
func (l *pgLink) exchange(ctx context.Context, jobs []*job) (errs map[*job]error, last error) {
	l.flagging = false
	errs = map[*job]error{}
	parcels := l.pack(ctx, jobs, errs)
	p := l.conn.PgConn().StartPipeline(ctx)
	for i := range parcels {
		b := &parcels[i].builder
		p.SendQueryStatement(parcels[i].sd, b.ParamValues, b.ParamFormats, b.ResultFormats)
		p.SendPipelineSync()
	}
	last = p.Flush()
	for i := range parcels {
		l.takeAll(p, &parcels[i], errs)
	}
	for _, j := range jobs {
		last = orError(errs[j], last)
	}
	return errs, orError(p.Close(), last)
}

// errPassed: when it was to go out there was nothing to ask any more.
var errPassed = errors.New("passed over")

// statement is one that the server knows, made on first use.
func (l *pgLink) statement(ctx context.Context, sql string) (*pgconn.StatementDescription, error) {
	if sd := l.known[sql]; sd != nil {
		return sd, nil
	}
	sd, err := l.conn.Prepare(ctx, sql, sql)
	if err == nil {
		l.known[sql] = sd
	}
	return sd, err
}
