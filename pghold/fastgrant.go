package pghold

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// A mutex that is free is taken quickly: by one statement that touches no table
// but the sequence of tokens. The row of its holder follows if it is
// still held a moment later. A caller that wants rows to be complete closes the fast path, which
// ends quick grants everywhere, and waits until no program has one without a row
// (noted in sql/fastgrant.sql). A program that waits for a name has its waiters' lock, which does the same for
// that name.

// Advisory locks of ours, bigint form.
const (
	fastPathLock   = 5209599041173340544 // the first of those that are the fast path; a quick grant needs one of them alone, for its transaction
	fastPathLocks  = 32                  // how many there are; to share all of them closes the fast path
	unrecordedFlag = 5209599041173340522 // had by programs that may have holds without a row
	closeFastPath  = "select pg_catalog.pg_advisory_xact_lock_shared(5209599041173340544 + i) from pg_catalog.generate_series(0, 31) i"
)

// recordHoldsAfter is the age at which a quick hold gets its row: most are over by then,
// also of many callers that share a connection, and a caller that asks for rows waits for
// twice as long at most.
const recordHoldsAfter = 5 * time.Millisecond

// staleAfter is the age at which a hold without a row is one that others may have
// given up to wait for: it gets its row before it ends, so that its end is told.
const staleAfter = 400 * time.Millisecond

// unrecorded are the holds of a link that may need a row, or have a row of which others have
// to hear. Guarded by the link's mutex.
type unrecorded struct {
	young, old []*rowClaim // by when they were granted: since the last tick, before
	flag       bool        // the link has unrecordedFlag
	ticking    bool
}

// fastGrantSQL takes its fast-path lock and the waiters' lock for its transaction, then the lock, and
// then draws the token. The first quick grant takes the flag, which cannot fail:
// only a caller that has closed the fast path has it alone.
func fastGrantSQL(pair, flagged bool) string {
	lock, unlock := "pg_catalog.pg_try_advisory_lock($3)", "pg_catalog.pg_advisory_unlock($3)"
	if pair {
		lock, unlock = "pg_catalog.pg_try_advisory_lock($3, $4)", "pg_catalog.pg_advisory_unlock($3, $4)"
	}
	token := "pg_catalog.nextval('holdfast.token')"
	if !flagged {
		token = fmt.Sprintf("case when pg_catalog.pg_try_advisory_lock_shared(%d) then %s when %s then null end", int64(unrecordedFlag), token, unlock)
	}
	return fmt.Sprintf(`select coalesce(case when pg_catalog.pg_try_advisory_xact_lock($1) then case when pg_catalog.pg_try_advisory_xact_lock($2) then
case when %s then %s end end end, 0), pg_catalog.pg_backend_pid()`, lock, token)
}

// unlockSQLs give a quick hold back that has no row; by pair.
var unlockSQLs = [2]string{"select pg_catalog.pg_advisory_unlock($1)", "select pg_catalog.pg_advisory_unlock($1, $2)"}

// fastGrantSQLs are the four forms, by pair and flagged.
var fastGrantSQLs = [2][2]string{{fastGrantSQL(false, false), fastGrantSQL(false, true)}, {fastGrantSQL(true, false), fastGrantSQL(true, true)}}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lockQuickly takes a mutex if it is free, nobody waits for it and nobody
// watches; false: ask as everybody does.
func (c *client) lockQuickly(ctx context.Context, cl *rowClaim) (bool, error) {
	if c.opts.Scope != SessionScope || cl.kind != driver.Mutex {
		return false, nil
	}
	l := c.living()
	if l == nil {
		return false, nil
	}
	if cl.easy = l.isEasy(cl.key); cl.easy == nil {
		return false, nil
	}
	q := &fastGrant{l: l, cl: cl, session: c.sessionOn(l, cl.r)}
	j := l.ask(&q.job, q)
	if !j.wait(ctx) {
		c.withdraw(cl, func() bool { return c.undo(j, cl) })
		return true, gaveup.Error(ctx, driver.NotDone)
	}
	cl.doubt(j)
	if j.err == errPassed || j.err != nil && !l.alive() {
		return false, nil
	}
	return cl.token > 0, failed(ctx, j.err)
}

// fastGrant asks for a lock quickly.
type fastGrant struct {
	job
	l       *pgLink
	cl      *rowClaim
	session *driver.Session
	token   int64 // 0: not granted
	pid     uint32
	row     [2]any
}

func (q *fastGrant) about() Key { return q.cl.key }

// form passes if this link has the lock, or its waiters' lock, or watches: a connection is
// never in its own way.
func (q *fastGrant) form() (string, []any) {
	l, key := q.l, q.cl.key
	if _, guarded := l.waitersLocks[key]; guarded || l.watching || l.held[key] != (tally{}) || l.flagging {
		return "", nil
	}
	flagged := l.flagged()
	l.flagging = !flagged // taken twice, it would have to be given back twice
	return fastGrantSQLs[index(q.cl.easy.pair)][index(flagged)], q.cl.easy.lock
}

func (q *fastGrant) into() []any {
	q.row = [2]any{&q.token, &q.pid}
	return q.row[:]
}

func (q *fastGrant) answer() error { return q.l.tookQuickly(q.cl, q.session, q.token, q.pid) }

func (q *fastGrant) mishap(ctx context.Context, err error) error {
	if err == errPassed {
		return err
	}
	q.l.tidyFlag(ctx)
	err = q.l.tidy(ctx, q.cl, err)
	if q.shared && code(err) != "" && q.l.alive() { // it may be another one that could not be had
		return errPassed
	}
	return err
}

func (l *pgLink) tookQuickly(cl *rowClaim, session *driver.Session, token int64, pid uint32) error {
	if err := l.sameServer(pid); err != nil {
		return err
	}
	if token == 0 {
		l.setEasy(cl.key, false)
		l.slowGrants = slowGrantsAfterMiss
		return nil
	}
	cl.since = time.Now()
	cl.rowless.Store(true)
	l.took(cl, token, token, session)
	l.mu.Lock()
	l.unrecorded.flag = true
	l.mu.Unlock()
	l.recordLater(cl)
	return nil
}

// tidyFlag makes sure that a failed step left no flag that the link does not know
// of.
func (l *pgLink) tidyFlag(ctx context.Context) {
	if !l.conn.IsClosed() && !l.flagged() {
		l.unshare(ctx, unrecordedFlag)
	}
}

func (l *pgLink) flagged() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unrecorded.flag
}

// slowGrantsAfterMiss is how many grants a link takes as everybody does after a quick one
// failed: if the fast path is closed for long, trying each time would be a trip more.
const slowGrantsAfterMiss = 8

// maxEasy bounds the names that a link remembers.
const maxEasy = 4096

// cachedLockArgs is what is sent to take a name quickly and to give it back. It is kept
// since making it takes longer than sending it.
type cachedLockArgs struct {
	pair         bool
	lock, unlock []any
}

func (l *pgLink) newEasy(k Key) *cachedLockArgs {
	own, waitersLock := any(fastPathLock+int64(uint64(l.nonce)%fastPathLocks)), any(waitersLockOf(k))
	if a, b, ok := k.Pair(); ok {
		return &cachedLockArgs{pair: true, lock: []any{own, waitersLock, a, b}, unlock: []any{a, b}}
	}
	return &cachedLockArgs{lock: []any{own, waitersLock, k.n}, unlock: []any{k.n}}
}

// isEasy: the name was last taken at once, and nobody has made it anything but a
// lock since.
func (l *pgLink) isEasy(k Key) *cachedLockArgs {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.easy[k]
}

func (l *pgLink) setEasy(k Key, easy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if easy && l.slowGrants > 0 {
		l.slowGrants--
		easy = false
	}
	if !easy {
		delete(l.easy, k)
		return
	}
	if len(l.easy) >= maxEasy {
		clear(l.easy)
	}
	if l.easy[k] == nil {
		l.easy[k] = l.newEasy(k)
	}
}
