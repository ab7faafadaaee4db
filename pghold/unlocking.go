package pghold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// unlocking asks the server to take a lock back.
type unlocking struct {
	job
	cl    *rowClaim
	again bool // an earlier attempt may have given the lock back
	had   bool
	row   [1]any
}

func (q *unlocking) about() Key { return q.cl.key }

func (q *unlocking) form() (string, []any) {
	cl := q.cl
	if surplus := cl.l.surplusWith(cl); surplus > 0 {
		return releaseLastSQL, []any{cl.key.space(), cl.key.n, int16(cl.mode), cl.id, surplus}
	}
	if !cl.rowless.Load() {
		return "select holdfast_v10.release($1, $2, $3, $4)", []any{cl.key.space(), cl.key.n, int16(cl.mode), cl.id}
	}
	return unlockSQLs[index(cl.easy.pair)], cl.easy.unlock
}

func (q *unlocking) into() []any {
	q.row[0] = &q.had
	return q.row[:]
}

func (q *unlocking) answer() error {
	q.cl.l.gave(q.cl)
	q.cl.heardOf()
	if !q.had && !q.again {
		return refuse(driver.ErrLost, "the server did not have it any more: somebody unlocked it on our connection")
	}
	return nil
}

// mishap: a call of a function that something between us and the server does not let
// through is made a statement, from now on.
func (q *unlocking) mishap(ctx context.Context, err error) error {
	if l := q.cl.l; q.call && code(err) != "" {
		l.calls, q.call = false, false
		sql, args := q.form()
		if err = l.conn.QueryRow(ctx, sql, args...).Scan(&q.had); err == nil {
			err = q.answer()
		}
	}
	if isRemoved(err) {
		return q.withoutRow(ctx)
	}
	return err
}

// withoutRow gives the lock back when the functions are gone, or the tables, and its row with them: the lock is none of theirs. A row that
// is left would tell of a holder as long as the link lives, or until somebody has the lock alone.
func (q *unlocking) withoutRow(ctx context.Context) error {
	cl := q.cl
	_, err := cl.l.conn.Exec(ctx, "delete from holdfast.claim where space = $1 and key = $2 and id = $3", cl.key.space(), cl.key.n, cl.id)
	if err != nil && !isRemoved(err) {
		return err
	}
	sql, args := cl.lockSQL("pg_advisory_unlock")
	for range 1 + cl.l.surplusWith(cl) {
		var had bool
		if err := cl.l.conn.QueryRow(ctx, sql, args...).Scan(&had); err != nil {
			return err
		}
		q.had = q.had || had
	}
	return q.answer()
}
