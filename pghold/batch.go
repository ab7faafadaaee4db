package pghold

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-io/holdfast/driver"
)

// Locks that are free are tried, and given back, on the home link. What is asked for
// while an answer is on its way goes out together: one statement for all that is given
// back and one for all that is tried, in one transaction. They touch no row that anybody
// locks, so that nobody waits for anybody.

// tryOf takes a lock if it is free, and says its token, 0 if it is not free, and -1 if the
// name is no lock; or, if a row is left of a holder before, -1 less the token. CASE fixes
// the order: the lock, then the token. It looks at rows by subqueries with a limit, which
// the server never makes a scan of the whole table.
func tryOf(s, k, m string) string {
	return strings.NewReplacer("S$", s, "K$", k, "M$", m).Replace(`select case
  when (select true from holdfast.resource r where r.space = S$ and r.key = K$ limit 1) then -1
  when holdfast.try_lock(S$, K$, M$) then
    case when (select true from holdfast.claim c where c.space = S$ and c.key = K$ and c.token > 0 and (c.mode = 0 or M$ = 0) limit 1)
      then -1 - pg_catalog.nextval('holdfast.token') else pg_catalog.nextval('holdfast.token') end
  else 0 end, pg_catalog.pg_backend_pid()`)
}

const arrays = " from unnest($1::smallint[], $2::bigint[], $3::smallint[]) as x (s, k, m)"

// The statements, for one and for several. unlocks say whether each lock was had.
var (
	tryOne     = tryOf("$1::smallint", "$2::bigint", "$3::smallint")
	tryMany    = tryOf("x.s", "x.k", "x.m") + arrays
	unlockOne  = "select holdfast.unlock($1::smallint, $2::bigint, $3::smallint)"
	unlockMany = "select holdfast.unlock(x.s, x.k, x.m)" + arrays
	statements = []string{tryOne, tryMany, unlockOne, unlockMany}
)

// request asks a link for a lock, or gives one back.
type request struct {
	job
	cl     *claim
	lease  *driver.Lease
	unlock bool
	again  bool // a reader where the link has readers; of an unlock: an earlier attempt may have done it

	token int64 // of a try; see tryOf
	pid   uint32
	mine  bool // the link has the lock already, so the server was not asked
	dead  bool // a row is left of the holder before
	had   bool // of an unlock
}

// batch are requests that go out together.
type batch struct {
	unlocks, tries []*request
	stage, row     int // of the answer
	failed         error
}

// maxTogether bounds what goes out together.
const maxTogether = 256

// together is how many of the jobs at the head of the queue can go out at once: requests
// about different keys.
func together(queue []*job) int {
	if queue[0].ask == nil {
		return 1
	}
	seen := map[Key]bool{}
	for n, j := range queue[:min(len(queue), maxTogether)] {
		if j.ask == nil || seen[j.ask.cl.key] {
			return n
		}
		seen[j.ask.cl.key] = true
	}
	return min(len(queue), maxTogether)
}

// grace is how long a caller reads the answer to its request itself, up to twice as long.
// Until then it heeds neither its context nor the end of the Space.
const grace = 5 * time.Millisecond

// ask puts a request to the server: if the link is free the caller itself does, which
// spares it two changes of goroutine, and else the link's goroutine. An answer that takes
// longer than grace is left to the latter in any case.
func (l *link) ask(q *request) *job {
	j := &q.job
	j.ask, j.limit = q, l.c.opts.Timeout
	if !l.have() {
		return l.put(j)
	}
	if !l.ready { // it takes trips of their own to make them known
		l.let()
		return l.put(j)
	}
	j.state.Store(running)
	b := l.sort([]*request{q})
	if b == nil {
		j.finish(nil)
		l.let()
		return j
	}
	l.askNow(j, b)
	return j
}

// sort makes a batch, without what the server need not be asked: the link has the lock.
// It would be granted to it once more. nil: nothing is left.
func (l *link) sort(reqs []*request) *batch {
	b := &batch{}
	for _, q := range reqs {
		t := l.held[q.cl.key]
		switch {
		case q.unlock:
			b.unlocks = append(b.unlocks, q)
		case t.writers > 0 || t.readers > 0 && !(q.again && q.cl.mode == driver.Shared):
			q.mine = true
		default:
			b.tries = append(b.tries, q)
		}
	}
	if len(b.unlocks)+len(b.tries) == 0 {
		return nil
	}
	return b
}

// askNow sends a batch of one and reads its answer, for who has the link.
func (l *link) askNow(j *job, b *batch) {
	if err := l.send(b); err != nil {
		l.breakOff(j, err)
		return
	}
	err := l.limit(grace, 2*grace)
	if err == nil {
		err = l.receive(b)
	}
	switch {
	case err == nil:
		l.conclude(b)
		j.finish(j.failed)
		l.let()
	case l.conn.IsClosed() || !timedOut(err):
		l.breakOff(j, err)
	default:
		j.done = make(chan struct{})
		l.mu.Lock()
		l.left, l.leftBatch = j, b
		l.mu.Unlock()
		ring(l.bell)
	}
}

// finishLeft reads an answer that a caller did not wait for.
func (l *link) finishLeft(j *job) {
	if err := l.receiveAll(l.leftBatch, j.limit); err != nil {
		l.setLeft(nil)
		l.breakOff(j, err)
		return
	}
	l.setLeft(nil)
	l.conclude(l.leftBatch)
	j.finish(j.failed)
	l.let()
}

func (l *link) setLeft(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = j
}

// receiveAll reads an answer, for up to limit, unless the link dies.
func (l *link) receiveAll(b *batch, limit time.Duration) error {
	return l.reading(limit, func() error { return l.receive(b) })
}

// reading reads for up to limit, unless the link dies.
func (l *link) reading(limit time.Duration, read func() error) error {
	err := l.limit(limit, limit) // before it can be halted
	l.mu.Lock()
	l.halt = func() { _ = l.conn.PgConn().Conn().SetReadDeadline(time.Unix(1, 0)) }
	dead := l.err != nil
	l.mu.Unlock()
	if !dead && err == nil {
		err = read()
	}
	l.mu.Lock()
	l.halt = nil
	l.mu.Unlock()
	return orError(err, l.why())
}

// askAll is for the link's goroutine.
func (l *link) askAll(ctx context.Context, jobs []*job) {
	reqs := make([]*request, len(jobs))
	for i, j := range jobs {
		reqs[i] = j.ask
	}
	err := l.makeKnown(ctx)
	b := l.sort(reqs)
	if err == nil && b != nil {
		if err = l.send(b); err == nil {
			err = l.receiveAll(b, l.c.opts.Timeout)
		}
		l.unlimit()
		if err != nil {
			l.die(err)
		}
	}
	if err == nil && b != nil {
		l.conclude(b)
	}
	for _, j := range jobs {
		if err != nil && !j.ask.mine {
			j.failed = unreachable(err)
		}
		j.finish(j.failed)
	}
}

// makeKnown has the server prepare the statements, on first use.
func (l *link) makeKnown(ctx context.Context) error {
	for _, sql := range statements {
		if _, err := l.statement(ctx, sql); err != nil {
			if l.conn.IsClosed() {
				l.die(err)
			}
			return err
		}
	}
	l.ready = true
	return nil
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

// send writes a batch, one transaction.
func (l *link) send(b *batch) error {
	front := l.conn.PgConn().Frontend()
	for i, part := range [][]*request{b.unlocks, b.tries} {
		if len(part) == 0 {
			continue
		}
		sql, args := [...]string{unlockMany, tryMany}[i], encodeMany
		if len(part) == 1 {
			sql, args = [...]string{unlockOne, tryOne}[i], encodeOne
		}
		front.SendBind(&pgproto3.Bind{
			PreparedStatement: l.known[sql].Name, ParameterFormatCodes: allBinary, Parameters: args(part), ResultFormatCodes: allBinary,
		})
		front.SendExecute(&pgproto3.Execute{})
	}
	front.SendSync(&pgproto3.Sync{})
	return front.Flush()
}

// allBinary is the format of every argument and result.
var allBinary = []int16{pgtype.BinaryFormatCode}

// encodeOne writes the arguments of a statement for one, as PostgreSQL reads them.
func encodeOne(part []*request) [][]byte { return part[0].cl.args() }

// args are space, key and mode.
func (cl *claim) args() [][]byte {
	b := make([]byte, 0, 12)
	b = binary.BigEndian.AppendUint16(b, uint16(cl.key.space()))
	b = binary.BigEndian.AppendUint64(b, uint64(cl.key.n))
	b = binary.BigEndian.AppendUint16(b, uint16(cl.mode))
	return [][]byte{b[:2], b[2:10], b[10:]}
}

// encodeMany writes the three arrays of a statement for several.
func encodeMany(part []*request) [][]byte {
	n := len(part)
	spaces, keys, modes := arrayOf(pgtype.Int2OID, n, 6), arrayOf(pgtype.Int8OID, n, 12), arrayOf(pgtype.Int2OID, n, 6)
	for _, q := range part {
		spaces = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(spaces, 2), uint16(q.cl.key.space()))
		keys = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(keys, 8), uint64(q.cl.key.n))
		modes = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(modes, 2), uint16(q.cl.mode))
	}
	return [][]byte{spaces, keys, modes}
}

// arrayOf begins an array of n items, each of size bytes with its length.
func arrayOf(oid uint32, n, size int) []byte {
	b := make([]byte, 0, 20+n*size)
	for _, v := range []uint32{1, 0, oid, uint32(n), 1} { // dimensions, nulls, type, length, first index
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// receive reads up to the end of the transaction. A time-out leaves the link as
// it is: reading can go on later.
func (l *link) receive(b *batch) error {
	c := l.conn.PgConn()
	for {
		msg, err := c.ReceiveMessage(context.Background())
		if err != nil {
			return orError(errors.Unwrap(err), err)
		}
		switch msg := msg.(type) {
		case *pgproto3.BindComplete:
			b.stage, b.row = b.stage+1, 0
		case *pgproto3.DataRow:
			if err := b.take(msg.Values); err != nil {
				b.failed = err
			}
		case *pgproto3.ErrorResponse:
			b.failed = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.ReadyForQuery:
			return nil
		}
	}
}

// take reads one row of an answer.
func (b *batch) take(values [][]byte) error {
	part := b.tries
	if b.stage == 1 && len(b.unlocks) > 0 {
		part = b.unlocks
	}
	if b.row >= len(part) {
		return fmt.Errorf("the server answered %d requests with more rows", len(part))
	}
	q := part[b.row]
	b.row++
	switch {
	case q.unlock && len(values) == 1 && len(values[0]) == 1:
		q.had = values[0][0] != 0
	case !q.unlock && len(values) == 2 && len(values[0]) == 8 && len(values[1]) == 4:
		q.token, q.pid = int64(binary.BigEndian.Uint64(values[0])), binary.BigEndian.Uint32(values[1])
	default:
		return errAnswer
	}
	return nil
}

// conclude is what follows an answer, for who has the link. The whole batch failed if one
// of it did: what it may have taken is given back, and each is asked again by itself.
func (l *link) conclude(b *batch) {
	if b.failed == nil {
		for _, q := range b.unlocks {
			q.failed = l.unlocked(q)
		}
		for _, q := range b.tries {
			q.failed = l.tried(q)
		}
		return
	}
	l.unlimit()
	ctx, cancel := context.WithTimeout(l.life, l.c.opts.Timeout)
	defer cancel()
	alone := len(b.unlocks)+len(b.tries) > 1
	for _, q := range append(b.unlocks, b.tries...) {
		q.failed = b.failed
		if !q.unlock {
			l.tidy(ctx, q.cl)
		}
		if alone && !l.conn.IsClosed() {
			q.failed = l.askAlone(ctx, q)
		}
	}
	if l.conn.IsClosed() {
		l.die(orError(b.failed, errors.New("the connection is closed")))
	}
}

// askAlone asks for one of a batch that failed.
func (l *link) askAlone(ctx context.Context, q *request) error {
	if q.unlock {
		q.again = true
		err := l.conn.QueryRow(ctx, unlockOne, q.cl.key.space(), q.cl.key.n, int16(q.cl.mode)).Scan(&q.had)
		if err != nil {
			return err
		}
		return l.unlocked(q)
	}
	err := l.conn.QueryRow(ctx, tryOne, q.cl.key.space(), q.cl.key.n, int16(q.cl.mode)).Scan(&q.token, &q.pid)
	if err != nil {
		l.tidy(ctx, q.cl)
		return err
	}
	return l.tried(q)
}

// tried takes the answer to a try.
func (l *link) tried(q *request) error {
	if err := l.sameServer(q.pid); err != nil {
		return err
	}
	if q.token < -1 {
		q.token, q.dead = -1-q.token, true
	}
	if q.token > 0 {
		l.took(q.cl, q.token, q.lease)
	}
	return nil
}

// unlocked takes the answer to an unlock.
func (l *link) unlocked(q *request) error {
	l.gave(q.cl)
	if !q.had && !q.again {
		return errNotHad
	}
	return nil
}

var errNotHad = refuse(driver.ErrLost, "the server did not have it any more: somebody unlocked it on our connection")

// have takes the link for the caller, if nobody has it or waits for it.
func (l *link) have() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy || len(l.queue) > 0 || l.err != nil {
		return false
	}
	l.busy = true
	l.uses++
	return true
}

// let gives the link up.
func (l *link) let() {
	l.mu.Lock()
	l.busy = false
	wanted := len(l.queue) > 0 || l.err != nil
	l.mu.Unlock()
	if wanted {
		ring(l.bell)
	}
}

func (l *link) used() uint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uses
}

// leftOver is the request whose answer is still to be read. The link is had for it, by
// its goroutine from now on.
func (l *link) leftOver() *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

// why the link is dead; nil: it lives.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// claimForGood takes a dead link from whoever has it; what is still to be read
// never will be.
func (l *link) claimForGood() {
	for {
		l.mu.Lock()
		left, taken := l.left, l.busy
		if left != nil || !taken {
			l.busy, l.left = true, nil
			l.mu.Unlock()
			if left != nil {
				left.finish(unreachable(l.err))
			}
			return
		}
		l.mu.Unlock()
		<-l.bell
	}
}

// breakOff is the end of the link in the middle of a request.
func (l *link) breakOff(j *job, err error) {
	l.die(err)
	j.finish(unreachable(err))
	l.let()
}

// limit has reading fail after some time between least and most. One that is set
// already is left if it fits: setting it costs a system call at times.
func (l *link) limit(least, most time.Duration) error {
	now := time.Now()
	if left := l.until.Sub(now); left >= least && left <= most {
		return nil
	}
	l.until = now.Add(most)
	return l.conn.PgConn().Conn().SetReadDeadline(l.until)
}

// unlimit lets reading take as long as it takes.
func (l *link) unlimit() {
	if !l.until.IsZero() {
		l.until = time.Time{}
		_ = l.conn.PgConn().Conn().SetReadDeadline(time.Time{}) // a connection that cannot fails at the next read
	}
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// step is a statement of a packet: several that go out in one write, each a transaction
// of its own, so that one that fails does not keep the next from running.
type step struct {
	sql  string
	args [][]byte                    // binary
	take func(values [][]byte) error // the one row
	then func(err error)             // told when its answer is there, before the next one is waited for
}

// packet sends steps and takes their answers, for the link's goroutine. limit bounds it,
// and past it the link is lost.
func (l *link) packet(ctx context.Context, limit time.Duration, steps ...step) {
	done, err := 0, l.prepareSteps(ctx, steps)
	if err == nil {
		if err = l.sendSteps(steps); err == nil {
			err = l.reading(limit, func() error { return l.receiveSteps(steps, &done) })
		}
		l.unlimit()
		if err != nil {
			l.die(err)
		}
	}
	for ; done < len(steps); done++ {
		steps[done].then(err)
	}
	if l.conn.IsClosed() {
		l.die(orError(err, errors.New("the connection is closed")))
	}
}

func (l *link) prepareSteps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if _, err := l.statement(ctx, s.sql); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) sendSteps(steps []step) error {
	front := l.conn.PgConn().Frontend()
	for _, s := range steps {
		front.SendBind(&pgproto3.Bind{PreparedStatement: l.known[s.sql].Name, ParameterFormatCodes: allBinary, Parameters: s.args, ResultFormatCodes: allBinary})
		front.SendExecute(&pgproto3.Execute{})
		front.SendSync(&pgproto3.Sync{})
	}
	return front.Flush()
}

// receiveSteps reads the answers; done is how many it has.
func (l *link) receiveSteps(steps []step, done *int) error {
	var failed error
	for *done < len(steps) {
		msg, err := l.conn.PgConn().ReceiveMessage(context.Background())
		if err != nil {
			return orError(errors.Unwrap(err), err)
		}
		switch msg := msg.(type) {
		case *pgproto3.DataRow:
			failed = orError(failed, steps[*done].take(msg.Values))
		case *pgproto3.ErrorResponse:
			failed = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.ReadyForQuery:
			*done++
			steps[*done-1].then(failed)
			failed = nil
		}
	}
	return nil
}

// takeBool reads a row with a truth value.
func takeBool(to *bool) func([][]byte) error {
	return func(values [][]byte) error {
		if len(values) != 1 || len(values[0]) != 1 {
			return errAnswer
		}
		*to = values[0][0] != 0
		return nil
	}
}

var errAnswer = errors.New("the server answered with columns that are not what was asked for")
