package pghold

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// pgLink is a connection that holds or waits. One goroutine at a time has it. Its
// own runs the jobs in order, and between them it reads, so that the end of the
// connection is noticed when it comes and not when the connection is needed
// next. A caller that finds it free may have it for one question (see askNow).
type pgLink struct {
	c     *client
	conn  *pgx.Conn
	nonce int64 // an advisory lock of its own: while it is held, the link lives
	pid   uint32
	calls bool // the server itself answers, no pooler, which may not know calls of functions
	life  context.Context
	kill  context.CancelFunc
	down  chan struct{}
	bell  chan struct{}

	mu         sync.Mutex
	queue      []*job
	busy       bool                    // somebody has it
	uses       uint                    // how often callers had it
	left       *job                    // a caller's; its answer is still to be read
	interrupt  context.CancelFunc      // of the read under way, for a job
	halt       context.CancelFunc      // of the read under way, if the link dies
	err        error                   // why it has ended
	easy       map[Key]*cachedLockArgs // names that may be taken quickly
	unrecorded unrecorded

	// For the goroutine that has the link. held is what it holds: PostgreSQL would grant a lock
	// twice to one connection.
	held map[Key]tally
	// known are the statements that the server has prepared.
	known map[string]*pgconn.StatementDescription
	// waitersLocks are the names of the waiters' locks that it holds, and from when on each has to stay
	// for a while; zero: it is not needed longer than it is used.
	waitersLocks map[Key]time.Time
	// relaxing is when it looks next which waiters' locks it needs; nil: it has none.
	relaxing *time.Timer
	// slowGrants is how many grants are not to be followed by quick ones.
	slowGrants int
	// flagging: one of the questions that go out together takes the flag of quick
	// grants.
	flagging bool
	// watching: it keeps the fast path closed.
	watching bool
	// builder has the question that a caller asks itself; its memory is used again.
	builder pgx.ExtendedQueryBuilder
	small   []byte
	// until is the deadline for what is read; zero: none.
	until time.Time
	// For its own goroutine: heardOf is how much had been received when quiet was set; since then
	// nothing was.
	heardOf uint64
	quiet   time.Time

	received atomic.Uint64 // counts what the socket gave, in pieces

	// Guarded by the client's mutex.
	holdSessions map[driver.Spec]*driver.Session
	sessions     map[*driver.Session]struct{} // that programs opened themselves
	claims       map[*rowClaim]struct{}
	gatherings   map[Key]*gathering
	releases     map[Key]*releases
	waits        bool // made for a wait; counts against Options.Waits
}

// job is one use of a link.
type job struct {
	run   func(ctx context.Context) error
	ask   question // instead of run
	limit time.Duration
	state atomic.Int32
	done  chan struct{} // nil: it was over before anybody could wait for it
	err   error

	sd     *pgconn.StatementDescription // of a question
	shared bool                         // it was asked in one statement with others
	// Of a question that a caller asks itself.
	call     bool  // a function is called, no statement is run
	answered bool  // there was a row
	failed   error // what the server said instead, or what its row could not be read as
}

// The states of a job.
const (
	queued int32 = iota
	running
	dropped
)

// rest is how long a link waits for another job before it begins to read: a
// read has to be interrupted by the next one.
const rest = time.Millisecond

// start hands run to the link's goroutine; limit bounds it, and past it the link is lost.
func (l *pgLink) start(limit time.Duration, run func(ctx context.Context) error) *job {
	return l.put(&job{run: run, limit: limit})
}

// startAsking hands a question to the link.
func (l *pgLink) startAsking(j *job, q question) *job {
	j.ask, j.limit = q, l.c.opts.Timeout
	return l.put(j)
}

func (l *pgLink) put(j *job) *job {
	j.done = make(chan struct{})
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		j.finish(unreachable(l.err))
		return j
	}
	l.queue = append(l.queue, j)
	interrupt := l.interrupt
	l.mu.Unlock()
	select {
	case l.bell <- struct{}{}:
	default:
	}
	if interrupt != nil {
		interrupt()
	}
	return j
}

func (j *job) finish(err error) {
	j.err = err
	if j.done != nil {
		close(j.done)
	}
}

func (j *job) isOver() bool {
	if j.done == nil {
		return true
	}
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// wait waits for the job. It reports false if ctx ended first and the job goes
// on: the caller then has to see to what becomes of it.
func (j *job) wait(ctx context.Context) bool {
	if j.isOver() { // ctx may make a timer when it is waited for
		return true
	}
	select {
	case <-j.done:
		return true
	case <-ctx.Done():
	}
	if j.state.CompareAndSwap(queued, dropped) {
		j.err = gaveup.Error(ctx, driver.NotDone)
		return true
	}
	return j.isOver()
}

// loop is the link's goroutine.
func (l *pgLink) loop() {
	for l.alive() {
		if j := l.leftOver(); j != nil {
			l.finishLeft(j)
		} else if jobs := l.next(); len(jobs) > 0 {
			l.run(jobs)
			l.let()
		} else {
			l.idle()
		}
	}
	l.claimForGood()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = l.conn.Close(ctx)
}

func (l *pgLink) alive() bool {
	select {
	case <-l.down:
		return false
	default:
		return true
	}
}

// next are the jobs to do now: one, or questions that go out together. If there
// are any the link's goroutine has the link.
func (l *pgLink) next() []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 || l.busy {
		return nil
	}
	l.busy = true
	n := together(l.queue)
	jobs := l.queue[:n:n]
	l.queue = l.queue[n:]
	return jobs
}

func (l *pgLink) run(jobs []*job) {
	l.unlimit()
	jobs = slices.DeleteFunc(jobs, func(j *job) bool { return !j.state.CompareAndSwap(queued, running) })
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(l.life, jobs[0].limit)
	defer cancel()
	if jobs[0].ask != nil {
		l.askAll(ctx, jobs)
		return
	}
	err := jobs[0].run(ctx)
	if l.conn.IsClosed() {
		l.fail(orError(err, errors.New("the connection is closed")))
	}
	jobs[0].finish(err)
}

func orError(err, otherwise error) error {
	if err == nil {
		return otherwise
	}
	return err
}

// idle waits for a job, and reads meanwhile.
func (l *pgLink) idle() {
	before := l.used()
	pause := time.NewTimer(rest)
	defer pause.Stop()
	select {
	case <-l.bell:
	case <-l.down:
	case <-pause.C:
		if l.used() == before {
			l.read()
		}
	}
}

// read takes notifications until there is a job, and asks for a sign of life
// when nothing has come for a while.
func (l *pgLink) read() {
	ctx, cancel := context.WithDeadline(l.life, l.signDue())
	defer cancel()
	if !l.mayRead(cancel) {
		return
	}
	defer l.let()
	l.unlimit()
	var err error
	for err == nil { // as long as they come: a rest before each would leave a watch behind
		err = l.conn.PgConn().WaitForNotification(ctx)
	}
	l.mu.Lock()
	l.interrupt = nil
	l.mu.Unlock()
	switch {
	case l.conn.IsClosed():
		l.fail(orError(err, errors.New("the server closed it")))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		l.probe()
	}
}

// signDue is when a sign of life is due. Jobs that need no answer move it no further.
func (l *pgLink) signDue() time.Time {
	if n := l.received.Load(); n != l.heardOf || l.quiet.IsZero() {
		l.heardOf, l.quiet = n, time.Now()
	}
	return l.quiet.Add(l.c.opts.Keepalive)
}

// mayRead announces a read that cancel interrupts, unless there is a job.
func (l *pgLink) mayRead(cancel context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 || l.busy || l.err != nil {
		return false
	}
	l.interrupt, l.busy = cancel, true
	return true
}

// probe asks for a sign of life, or ends a link that was made for a wait and is not
// needed.
func (l *pgLink) probe() {
	if l.c.isSurplus(l) {
		l.fail(errUnused)
		return
	}
	ctx, cancel := context.WithTimeout(l.life, l.c.opts.Timeout)
	defer cancel()
	_, err := l.conn.Exec(ctx, "select 1")
	if l.conn.IsClosed() {
		l.fail(orError(err, errors.New("no sign of life")))
	}
}

// fail is the end of the link, told to everybody before its socket is closed.
func (l *pgLink) fail(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	rest := l.queue
	l.queue = nil
	stop := l.interrupt
	if stop == nil {
		stop = l.halt
	}
	l.mu.Unlock()
	l.c.lost(l, err)
	close(l.down)
	l.kill()
	if stop != nil {
		stop()
	}
	for _, j := range rest {
		if j.state.CompareAndSwap(queued, dropped) {
			j.finish(unreachable(err))
		}
	}
}

// cancelQuery makes the server give up what the link runs, without harm to the
// connection and what it holds.
func (l *pgLink) cancelQuery() {
	ctx, cancel := context.WithTimeout(l.life, l.c.opts.Timeout)
	defer cancel()
	_ = l.conn.PgConn().CancelRequest(ctx) // the caller asks again if it had no effect
}
