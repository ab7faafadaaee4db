package pghold

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// grace is how long a caller reads the answer to its question itself, up to twice
// as long. Until then it heeds neither its context nor the end of the Space.
const grace = 5 * time.Millisecond

// ask puts a question to the server: if the link is free the caller itself does,
// which spares it two changes of goroutine, and else the link's goroutine. An
// answer that takes longer than grace is left to the latter in any case.
func (l *pgLink) ask(j *job, q question) *job {
	j.ask, j.limit = q, l.c.opts.Timeout
	if !l.have() {
		return l.put(j)
	}
	l.flagging = false
	sql, args := q.form()
	sd := l.known[sql]
	if sql != "" && sd == nil { // it takes a trip of its own to make it known
		l.let()
		return l.put(j)
	}
	j.state.Store(running)
	if sql == "" {
		j.finish(errPassed)
		l.let()
		return j
	}
	l.askNow(j, sd, args)
	return j
}

// askNow sends a question and reads its answer; the caller has the link.
func (l *pgLink) askNow(j *job, sd *pgconn.StatementDescription, args []any) {
	j.sd = sd
	if err := l.fill(sd, args); err != nil {
		j.failed = err
		l.conclude(j)
		return
	}
	if err := l.send(j); err != nil {
		l.breakOff(j, err)
		return
	}
	err := l.limit(grace, 2*grace)
	if err == nil {
		err = l.receive(j)
	}
	switch {
	case err == nil:
		l.conclude(j)
	case l.conn.IsClosed() || !timedOut(err):
		l.breakOff(j, err)
	default:
		j.done = make(chan struct{})
		l.mu.Lock()
		l.left = j
		l.mu.Unlock()
		ring(l.bell)
	}
}

// fill makes the question ready to be sent.
func (l *pgLink) fill(sd *pgconn.StatementDescription, args []any) (err error) {
	var done bool
	if l.small, done = writeSmall(&l.builder, l.small, sd, args); done {
		return nil
	}
	return l.builder.Build(l.conn.TypeMap(), sd, args)
}

// leftOver is the question with an answer that is still to be read. The link is had for
// it, by its goroutine from now on.
func (l *pgLink) leftOver() *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

// finishLeft reads an answer that a caller did not wait for.
func (l *pgLink) finishLeft(j *job) {
	err := l.limit(j.limit, j.limit) // before it can be halted
	l.mu.Lock()
	l.halt = func() { _ = l.conn.PgConn().Conn().SetReadDeadline(time.Unix(1, 0)) }
	dead := l.err != nil
	l.mu.Unlock()
	if !dead && err == nil {
		err = l.receive(j)
	}
	l.mu.Lock()
	l.left, l.halt = nil, nil
	l.mu.Unlock()
	if err = orError(err, l.why()); err != nil {
		l.breakOff(j, err)
		return
	}
	l.conclude(j)
}

// why the link has ended; nil: it lives.
func (l *pgLink) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// have takes the link for the caller, if nobody has it or waits for it.
func (l *pgLink) have() bool {
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
func (l *pgLink) let() {
	l.mu.Lock()
	l.busy = false
	wanted := len(l.queue) > 0 || l.err != nil
	l.mu.Unlock()
	if wanted {
		ring(l.bell)
	}
}

func (l *pgLink) used() uint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uses
}

// claimForGood takes an ended link from its user; what is still to be read
// never will be.
func (l *pgLink) claimForGood() {
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

// send writes a question, a transaction of its own.
func (l *pgLink) send(j *job) error {
	b, front := &l.builder, l.conn.PgConn().Frontend()
	if f := functionOf(j.sd.SQL); f != 0 && l.calls {
		j.call = true
		front.Send(&pgproto3.FunctionCall{Function: f, ArgFormatCodes: allBinary, Arguments: b.ParamValues, ResultFormatCode: pgtype.BinaryFormatCode})
		return front.Flush()
	}
	front.SendBind(&pgproto3.Bind{
		PreparedStatement: j.sd.Name, ParameterFormatCodes: b.ParamFormats, Parameters: b.ParamValues, ResultFormatCodes: b.ResultFormats,
	})
	front.SendExecute(&pgproto3.Execute{})
	front.SendSync(&pgproto3.Sync{})
	return front.Flush()
}

// allBinary is the format of every argument.
var allBinary = []uint16{pgtype.BinaryFormatCode}

// functionOf is the object id of the function, one of PostgreSQL's own, that a
// statement does nothing but call; 0: it does more. Called directly, by the
// protocol's message for it, it takes the server 3 µs less than a statement.
func functionOf(sql string) uint32 {
	switch sql {
	case unlockSQLs[0]:
		return 2884
	case unlockSQLs[1]:
		return 2890
	}
	return 0
}

// receive reads up to the end of the transaction. A time-out leaves the link as
// it is: reading can go on later.
func (l *pgLink) receive(j *job) error {
	c := l.conn.PgConn()
	for {
		msg, err := c.ReceiveMessage(context.Background())
		if err != nil {
			return orError(errors.Unwrap(err), err)
		}
		switch msg := msg.(type) {
		case *pgproto3.DataRow:
			j.answered = true
			j.failed = l.scanRow(j, msg.Values)
		case *pgproto3.FunctionCallResponse:
			j.answered = true
			j.failed = l.scanRow(j, [][]byte{msg.Result})
		case *pgproto3.ErrorResponse:
			j.failed = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.ReadyForQuery:
			if !j.answered && j.failed == nil {
				j.failed = pgx.ErrNoRows
			}
			return nil
		}
	}
}

func (l *pgLink) scanRow(j *job, values [][]byte) error {
	into := j.ask.into()
	if len(values) != len(into) {
		return fmt.Errorf("the server answered with %d columns where %d were asked for", len(values), len(into))
	}
	for i, v := range values {
		if l.builder.ResultFormats[i] == pgtype.BinaryFormatCode && readSmall(j.sd.Fields[i].DataTypeOID, v, into[i]) {
			continue
		}
		if err := l.conn.TypeMap().Scan(j.sd.Fields[i].DataTypeOID, l.builder.ResultFormats[i], v, into[i]); err != nil {
			return err
		}
	}
	return nil
}

// conclude is what follows an answer; then the link is free.
func (l *pgLink) conclude(j *job) {
	defer l.let()
	err := j.failed
	if err == nil {
		err = j.ask.answer()
	}
	if err != nil {
		l.unlimit()
		ctx, cancel := context.WithTimeout(l.life, j.limit)
		defer cancel()
		err = j.ask.mishap(ctx, err)
	}
	if l.conn.IsClosed() {
		l.fail(orError(err, errors.New("the connection is closed")))
	}
	j.finish(err)
}

// breakOff is the end of the link in the middle of a question.
func (l *pgLink) breakOff(j *job, err error) {
	l.fail(err)
	j.finish(unreachable(err))
	l.let()
}

// limit has reading fail after some time between least and most. One that is set
// already is left if it fits: setting it costs a system call at times.
func (l *pgLink) limit(least, most time.Duration) error {
	now := time.Now()
	if left := l.until.Sub(now); left >= least && left <= most {
		return nil
	}
	l.until = now.Add(most)
	return l.conn.PgConn().Conn().SetReadDeadline(l.until)
}

// unlimit lets reading take as long as it takes.
func (l *pgLink) unlimit() {
	if !l.until.IsZero() {
		l.until = time.Time{}
		_ = l.conn.PgConn().Conn().SetReadDeadline(time.Time{}) // a connection that cannot fails at the next read
	}
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
