package pghold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// tally counts the holds of a key.
type tally struct {
	writers, readers int
	surplus          int32 // shares that the server may have beyond those of the readers
}

// took notes a lock that the link has.
func (l *pgLink) took(cl *rowClaim, id, token int64, session *driver.Session) {
	t := l.held[cl.key]
	if cl.mode == driver.Exclusive {
		t.writers++
	} else {
		t.readers++
	}
	l.held[cl.key] = t
	l.c.hold(l, cl, id, token, session)
}

// gave notes a lock that the link has no more.
func (l *pgLink) gave(cl *rowClaim) {
	t := l.held[cl.key]
	if cl.mode == driver.Exclusive {
		t.writers--
	} else {
		t.readers--
	}
	if t.writers == 0 && t.readers == 0 {
		delete(l.held, cl.key)
		return
	}
	l.held[cl.key] = t
}

// tidy makes sure that a failed step left no lock, and returns err. What it may have left beside
// other shares of the link goes with the last of them: the server does not tell how many there are.
func (l *pgLink) tidy(ctx context.Context, cl *rowClaim, err error) error {
	t := l.held[cl.key]
	switch {
	case l.conn.IsClosed():
	case t.readers > 0 && cl.mode == driver.Shared:
		t.surplus++
		l.held[cl.key] = t
	case t == (tally{}):
		sql, args := cl.lockSQL("pg_advisory_unlock")
		l.mustDo(ctx, sql, args...)
	}
	return err
}

// mayTry: the server can be asked for a lock. What the link has it would give once more, in
// spite of any waiter: a share is had beside others only if nobody waits in the server.
func (l *pgLink) mayTry(ctx context.Context, cl *rowClaim) (ok bool, err error) {
	switch t := l.held[cl.key]; {
	case t == (tally{}):
		return true, nil
	case t.writers > 0 || cl.mode == driver.Exclusive:
		return false, nil
	}
	err = l.conn.QueryRow(ctx, "select not exists (select from holdfast_v10.locks($1, $2) l where not l.granted)", cl.key.space(), cl.key.n).Scan(&ok)
	return ok, err
}

// surplusWith is how many shares go with that of cl, which is the last.
func (l *pgLink) surplusWith(cl *rowClaim) int32 {
	if t := l.held[cl.key]; cl.mode == driver.Shared && t.readers == 1 {
		return t.surplus
	}
	return 0
}

// releaseLastSQL gives a share back, and as many more as there may be.
const releaseLastSQL = `select pg_catalog.bool_or(case n when 0 then holdfast_v10.release($1, $2, $3, $4) else holdfast_v10.unlock($1, $2, $3) end)
from pg_catalog.generate_series(0, $5::int) n`
