package pghold

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
	"github.com/holdfast-io/holdfast/internal/policy"
)

// rowClaim is a request to hold one name, and then the hold. It is the driver.Handle
// of its grant.
type rowClaim struct {
	c     *client
	r     *driver.Request
	name  string
	key   Key
	kind  driver.ResourceKind
	mode  driver.Mode
	weigh int64
	limit int64

	// Set by the grant.
	l          *pgLink
	id         int64 // its row
	token      driver.Token
	session    *driver.Session
	afterCrash bool // the one before did not give it back

	waited  bool // its caller has been told that it waits
	written bool // of what gathers: it has a row, or nobody knows

	// rowless: it was taken quickly, and has no row yet. Changed by the goroutine that has the
	// link.
	rowless atomic.Bool
	easy    *cachedLockArgs // of a quick grant
	since   time.Time       // of a quick grant, and of one after a crash

	unheard   atomic.Bool       // a mutex with a row, of which programs that may take it quickly have not heard
	withdrawn gaveup.Withdrawal // of a request that is not granted

	giving   atomic.Bool // somebody gives it back; not a sync.Once: a call that tells of its loss may come from within
	released chan struct{}
	result   error // of the release
}

var _ driver.Handle = (*rowClaim)(nil)

// gathers reports that the name's state is a row, not a lock of the server.
func (cl *rowClaim) gathers() bool {
	return cl.kind == driver.Semaphore || cl.kind == driver.Latch || cl.kind == driver.Barrier
}

func (cl *rowClaim) told(cause error) {
	if cl.r.Lost != nil {
		cl.r.Lost(cause)
	}
}

// Acquire takes all of r.Wants or none.
func (c *client) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := c.fit(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	if len(r.Wants) != 1 {
		return c.acquireAll(ctx, r)
	}
	cl, err := c.acquire(ctx, r, &r.Wants[0])
	if err != nil {
		return driver.Grant{}, err
	}
	return cl.grant(), nil
}

// fit refuses a request whose session cannot have a hold.
func (c *client) fit(ctx context.Context, r *driver.Request) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if r.Session == nil {
		return policy.None(&r.Spec)
	}
	if r.Session.Err() != nil {
		return ended(r.Session)
	}
	return nil
}

func (cl *rowClaim) grant() driver.Grant {
	return driver.Grant{Token: cl.token, Session: cl.session, Handle: cl}
}

// ended says that a session is over.
func ended(l *driver.Session) error {
	return &driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: cmp.Or(l.Err(), errors.New("the session is not of this Space"))}
}

func (c *client) acquire(ctx context.Context, r *driver.Request, w *driver.Want) (*rowClaim, error) {
	key, err := c.key(w.Name)
	if err != nil {
		return nil, err
	}
	cl := &rowClaim{
		c: c, r: r, name: w.Name, key: key, kind: w.Kind, mode: w.Mode, weigh: max(w.Weight, 1), limit: w.Limit,
		released: make(chan struct{}),
	}
	if cl.gathers() {
		err = c.gather(ctx, cl)
	} else {
		err = c.lock(ctx, cl)
	}
	if err == nil && r.Session != nil && r.Session.Err() != nil {
		c.withdraw(cl, func() bool { return c.giveUp(cl) })
		err = ended(r.Session)
	}
	if err != nil && cl.kind != driver.Barrier {
		err = gaveup.Withdrawn(err, &cl.withdrawn)
	}
	if err != nil {
		return nil, err
	}
	return cl, nil
}

// sessionOn is the session that a claim of r on l hangs on.
func (c *client) sessionOn(l *pgLink, r *driver.Request) *driver.Session {
	if r.Session != nil {
		return r.Session
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	session := l.holdSessions[r.Spec]
	if session == nil {
		l.dropIdleSessions()
		session = driver.NewSession(newID(), r.Spec)
		l.holdSessions[r.Spec] = session
	}
	return session
}

// maxSessions is how many sessions a link keeps before it looks which are of use: a
// program may give each hold metadata of its own.
const maxSessions = 64

// dropIdleSessions forgets sessions that nothing hangs on; the client is locked. A
// claim that is on its way to one is told of the link's end by itself.
func (l *pgLink) dropIdleSessions() {
	if len(l.holdSessions) < maxSessions {
		return
	}
	used := map[*driver.Session]bool{}
	for cl := range l.claims {
		used[cl.session] = true
	}
	maps.DeleteFunc(l.holdSessions, func(_ driver.Spec, session *driver.Session) bool { return !used[session] })
}

// hold notes that cl is held by l. If l has died meanwhile the holder is told
// here: the one that told the others did not know of it. So is one that was forced before.
func (c *client) hold(l *pgLink, cl *rowClaim, id, token int64, session *driver.Session) {
	c.mu.Lock()
	cl.l, cl.id, cl.token, cl.session = l, id, driver.Token(token), session
	_, lives := c.links[l]
	if lives {
		l.claims[cl] = struct{}{}
		c.tokens[cl.token] = cl
	}
	forced := slices.Contains(c.early, cl.token)
	c.mu.Unlock()
	if forced {
		c.forced(cl.token)
	}
	if lives {
		return
	}
	why := lostBecause(errors.New("it broke off before the answer was taken"))
	if cl.r.Session == nil {
		session.End(why)
	}
	cl.told(why)
}

// drop forgets that cl is held, and its link if it has nothing else to do.
func (c *client) drop(cl *rowClaim) {
	c.mu.Lock()
	delete(cl.l.claims, cl)
	delete(c.tokens, cl.token)
	idle := cl.l.waits && len(cl.l.claims) == 0
	c.mu.Unlock()
	if idle {
		c.park(cl.l)
	}
}

// Release gives the hold back. If ctx ends before the answer, the release goes
// on, and a second call waits for the same answer.
func (cl *rowClaim) Release(ctx context.Context) error {
	if cl.giving.CompareAndSwap(false, true) {
		cl.giveBackNow()
	}
	select {
	case <-cl.released:
		return cl.result
	default: // ctx makes a timer when it is waited for
	}
	select {
	case <-cl.released:
		return cl.result
	case <-ctx.Done():
		return gaveup.Error(ctx, driver.Unknown)
	}
}

// giveBack starts the release, once.
func (c *client) giveBack(cl *rowClaim) {
	if cl.giving.CompareAndSwap(false, true) {
		cl.beside(cl.release)
	}
}

// beside runs the release, or what is left of it, in the background.
func (cl *rowClaim) beside(f func()) {
	if !cl.c.spawn(f) {
		cl.settle(&driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: driver.ErrClosed})
	}
}

// giveBackNow starts the release of a lock in the caller's goroutine, so that one
// that is answered at once costs no other.
func (cl *rowClaim) giveBackNow() {
	if cl.gathers() || cl.c.opts.Scope == TransactionScope || cl.c.life.Err() != nil || !cl.l.alive() || cl.stale() {
		cl.beside(cl.release)
		return
	}
	q := &unlocking{cl: cl}
	j := cl.l.ask(&q.job, q)
	if j.isOver() && j.err == nil {
		cl.freed(nil)
		return
	}
	cl.beside(func() {
		if !j.isOver() {
			<-j.done
		}
		cl.insist(failed(context.Background(), j.err))
	})
}

// isQuiet: others may take the name quickly when it is free, and would not look
// for the row of the claim that ended with it.
func (cl *rowClaim) isQuiet() bool { return cl.rowless.Load() || cl.unheard.Load() }

// heardOf: it has a row of which others know, or is over.
func (cl *rowClaim) heardOf() {
	cl.rowless.Store(false)
	cl.unheard.Store(false)
}

// stale: it is so old, and has no row, that others may not wait for one any more.
func (cl *rowClaim) stale() bool { return cl.rowless.Load() && time.Since(cl.since) > staleAfter }

func (cl *rowClaim) settle(err error) {
	cl.result = err
	close(cl.released)
}

// release frees the name in the server.
func (cl *rowClaim) release() {
	l := cl.l
	if !l.alive() {
		cl.settle(lostBecause(l.err))
		return
	}
	cl.insist(cl.releaseOnce(false))
}

// releaseOnce is one attempt; again: an earlier one may have done it, or a part of it.
func (cl *rowClaim) releaseOnce(again bool) error {
	switch {
	case cl.gathers():
		return cl.ungather(again)
	case cl.c.opts.Scope == TransactionScope:
		return cl.endTx()
	}
	return cl.unlock(again)
}

// insist repeats a release that failed until the server has answered: as long as the
// connection lives nobody else can give the name back.
func (cl *rowClaim) insist(err error) {
	for pause := faultPause; err != nil && !errors.Is(err, driver.ErrLost) && cl.l.alive(); pause = min(2*pause, maxPause) {
		select {
		case <-time.After(pause):
			err = cl.releaseOnce(true)
		case <-cl.l.down:
		}
	}
	cl.freed(err)
}

// unlock gives a lock of the server back, after its row was written if that is
// late.
func (cl *rowClaim) unlock(again bool) error {
	if l := cl.l; cl.stale() {
		<-l.start(cl.c.opts.Timeout, func(ctx context.Context) error { return l.writeRows(ctx, []*rowClaim{cl}) }).done
	}
	q := &unlocking{cl: cl, again: again}
	j := cl.l.startAsking(&q.job, q)
	<-j.done
	return failed(context.Background(), j.err)
}

// freed is the end of a release.
func (cl *rowClaim) freed(err error) {
	cl.c.drop(cl)
	if err != nil && err != errRemoved && !cl.l.alive() {
		err = lostBecause(err)
	}
	cl.settle(err)
}

// Change alters the hold: only leaders can.
func (cl *rowClaim) Change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	if cl.kind != driver.Election {
		return driver.Grant{}, errors.ErrUnsupported
	}
	switch {
	case ch.Proclaim != nil:
		return cl.grant(), cl.proclaim(ctx, *ch.Proclaim)
	case ch.HandOver != "":
		return cl.grant(), cl.handOver(ctx, ch.HandOver)
	}
	return driver.Grant{}, errors.ErrUnsupported
}

func (cl *rowClaim) proclaim(ctx context.Context, value []byte) error {
	return cl.c.ask(ctx, func(ctx context.Context, q querier) error {
		var leads bool
		err := q.QueryRow(ctx, "select holdfast_v10.proclaim($1, $2, $3, $4)", cl.c.args(cl.key.space(), cl.key.n, cl.id, value)...).Scan(&leads)
		if err == nil && !leads {
			return refuse(driver.ErrLost, "it had ended before")
		}
		return err
	})
}

const handOverSQL = `update holdfast.claim set chosen = true where (space, key, id) = (
  select space, key, id from holdfast.claim
  where space = $1 and key = $2 and token = 0 and owner = $3 and holdfast_v10.alive(nonce, 0) order by id limit 1)`

// handOver marks the candidate: any other waiter that the server wakes first gives way.
func (cl *rowClaim) handOver(ctx context.Context, owner string) error {
	err := cl.c.ask(ctx, func(ctx context.Context, q querier) error {
		tag, err := q.Exec(ctx, handOverSQL, cl.c.args(cl.key.space(), cl.key.n, owner)...)
		if err == nil && tag.RowsAffected() == 0 {
			return refuse(fs.ErrNotExist, "no candidate %q waits; the leadership goes on", owner)
		}
		return err
	})
	if err != nil {
		return err
	}
	return cl.Release(ctx)
}

// acquireAll takes one name after the other, everybody in the same order.
func (c *client) acquireAll(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	order, err := c.inOrder(r.Wants)
	if err != nil {
		return driver.Grant{}, err
	}
	all := &several{claims: make([]*rowClaim, len(order))}
	part := waitingOnce(r)
	for _, i := range order {
		cl, err := c.acquire(ctx, part, &r.Wants[i])
		if err != nil {
			return driver.Grant{}, gaveup.Withdrawn(err, c.giveBackAll(ctx, all.claims)...)
		}
		all.claims[i] = cl
	}
	g := driver.Grant{Session: all.claims[0].session, Handle: all}
	for _, cl := range all.claims {
		g.Tokens = append(g.Tokens, cl.token)
		g.Token = max(g.Token, cl.token)
	}
	return g, nil
}

// giveBackAll gives back what was taken of several names, and waits for it as long as ctx lasts.
func (c *client) giveBackAll(ctx context.Context, claims []*rowClaim) (giving []*gaveup.Withdrawal) {
	for _, taken := range claims {
		if taken == nil {
			continue
		}
		giving = append(giving, &taken.withdrawn)
		c.withdraw(taken, func() bool { return c.giveUp(taken) })
		select {
		case <-taken.released:
		case <-ctx.Done():
		}
	}
	return giving
}

// inOrder are the wants' places in order of key.
func (c *client) inOrder(wants []driver.Want) ([]int, error) {
	keys, order := make([]Key, len(wants)), make([]int, len(wants))
	for i := range wants {
		k, err := c.key(wants[i].Name)
		if err != nil {
			return nil, err
		}
		keys[i], order[i] = k, i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(keys[a].space(), keys[b].space()), cmp.Compare(keys[a].n, keys[b].n))
	})
	return order, nil
}

// waitingOnce is r for several claims: the caller is told of a wait once.
func waitingOnce(r *driver.Request) *driver.Request {
	part := *r
	if wait := r.Waiting; wait != nil {
		var once sync.Once
		part.Waiting = func(position int) { once.Do(func() { wait(position) }) }
	}
	return &part
}

// several is the handle of an AcquireAll. Its claims may be on several connections:
// when one of them ends, the caller is told and gives the others back.
type several struct{ claims []*rowClaim }

// Release gives all back.
func (s *several) Release(ctx context.Context) error {
	var errs []error
	for _, cl := range slices.Backward(s.claims) {
		cl.c.giveBack(cl)
	}
	for _, cl := range s.claims {
		errs = append(errs, cl.Release(ctx))
	}
	return errors.Join(errs...)
}

// Change is for holds of one name.
func (s *several) Change(context.Context, driver.Change) (driver.Grant, error) {
	return driver.Grant{}, errors.ErrUnsupported
}
