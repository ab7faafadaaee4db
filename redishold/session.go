package redishold

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
	"github.com/holdfast-io/holdfast/internal/policy"
)

// user is a session: one entry on the server that everything held hangs on, so
// that one command renews any number of holds.
type user struct {
	session *driver.Session
	sid     string
	ready   chan struct{} // closed when the server has answered
	err     error         // if it did not open
	next    time.Time     // when to renew it; of the keeper
	tries   int           // renewals without an answer; of the keeper
	until   time.Time     // its deadline when it was found due; of the keeper
	clock   clock

	// Of the client's lock.
	list   nameList
	claims map[*keyClaim]struct{} // that wait or hold
	gone   bool                   // it is over: nothing more is listed

	mutex [2]string // details of a request for a mutex: one that waits, one that tries
}

// clock is the server's, as it was told last by an answer that came soon.
type clock struct{ last atomic.Pointer[reading] }

const (
	// soon bounds how far a clock may be behind.
	soon = 50 * time.Millisecond
	// unread is a clock that is not known so well: the server looks itself.
	unread = "?"
)

type reading struct {
	when   time.Time
	millis int64
}

// set takes what the answer to a request says. One that came late says that the
// clock is not known: what an earlier one said may have drifted far.
func (c *clock) set(sent time.Time, millis string) {
	now := driver.Now()
	n, err := strconv.ParseInt(millis, 10, 64)
	if err != nil || now.Sub(sent) >= soon {
		c.last.Store(nil)
		return
	}
	c.last.Store(&reading{now, n})
}

// at is what the server's clock shows at about t.
func (c *clock) at(t time.Time) string {
	r := c.last.Load()
	if r == nil {
		return unread
	}
	return strconv.FormatInt(r.millis+t.Sub(r.when).Milliseconds(), 10)
}

func (c *client) newUser(spec driver.Spec) *user {
	sid := newName()
	var id driver.SessionID
	_, _ = hex.Decode(id[:], []byte(sid)) // it was encoded just now
	u := &user{session: driver.NewSession(id, spec), sid: sid, ready: make(chan struct{}), list: nameList{}, claims: map[*keyClaim]struct{}{}}
	for i, try := range []bool{false, true} {
		u.mutex[i] = details(spec.TTL, &driver.Want{Kind: driver.Mutex}, try)
	}
	return u
}

// details are the numbers of a want that the server needs if it cannot be quick.
func (u *user) details(w *driver.Want, try bool) string {
	switch {
	case w.Kind != driver.Mutex || w.Mode != 0 || w.Weight > 1 || w.Limit != 0:
		return details(u.session.Spec.TTL, w, try)
	case try:
		return u.mutex[1]
	}
	return u.mutex[0]
}

func details(ttl time.Duration, w *driver.Want, try bool) string {
	b := make([]byte, 0, 64)
	b = append(append(b, millis(ttl)...), ' ')
	b = append(append(b, bit(try)...), ' ')
	for _, n := range []int64{int64(w.Kind), int64(w.Mode), max(w.Weight, 1)} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	return string(strconv.AppendInt(b, w.Limit, 10))
}

func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// sharedUser is the living session of a spec; it is opened if need be.
func (c *client) sharedUser(ctx context.Context, spec driver.Spec) (*user, error) {
	if err := policy.None(&spec); err != nil {
		return nil, err
	}
	c.mu.Lock()
	u := c.shared[spec]
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	if u == nil || over(u.session) {
		u = c.newUser(spec)
		c.shared[spec] = u
		c.work.Go(func() { c.open(u) })
	}
	c.mu.Unlock()
	return u, c.opened(ctx, u)
}

// opened waits until the session is open.
func (c *client) opened(ctx context.Context, u *user) error {
	select {
	case <-u.ready:
		return u.err
	default:
	}
	select {
	case <-u.ready:
		return u.err
	case <-ctx.Done():
		return gaveup.Error(ctx, driver.NotDone)
	}
}

// open tells the server of a session. An answer that took too long would leave
// its holds too little time, so that it is renewed at once.
func (c *client) open(u *user) {
	c.start()
	ctx, cancel := context.WithTimeout(c.life, patience+u.session.Spec.TTL)
	defer cancel()
	spec := u.session.Spec
	err := c.checkServer(ctx)
	sent := driver.Now()
	var reply []string
	if err == nil {
		reply, err = c.call(ctx, openScript, u.sid, millis(spec.TTL), spec.Owner, spec.Meta, strconv.Itoa(version))
	}
	if err == nil && reply[0] == "newer" {
		err = fitVersion(reply[1])
	}
	if err == nil {
		u.clock.set(sent, reply[1])
		u.session.Extend(sent, spec.TTL)
		c.add(u)
		if driver.Now().Sub(sent) > c.opts.slack(spec.TTL) {
			err = c.renewNow(ctx, u, spec.TTL)
		}
		if errors.Is(err, driver.ErrLost) {
			err = tooSlow("", driver.Now().Sub(sent), spec.TTL)
		}
	}
	if err != nil {
		u.err = err
		if c.life.Err() != nil {
			u.err = errClosed
		}
		c.retire(u, u.err)
	}
	close(u.ready)
}

func (c *client) add(u *user) {
	c.mu.Lock()
	c.users[u.session.ID] = u
	u.next = driver.Now().Add(c.pause(u))
	c.mu.Unlock()
	nudge(c.wakeKeeper)
}

// pause is the time to the next renewal of a session, a little different each
// time so that many clients do not renew together.
func (c *client) pause(u *user) time.Duration {
	d := c.opts.extension(u.session.Spec.TTL)
	return d*9/10 + rand.N(d/5)
}

// retire takes a session out of use; the server forgets it by its TTL, if it
// still knows it.
func (c *client) retire(u *user, cause error) {
	c.mu.Lock()
	c.drop(u)
	c.mu.Unlock()
	u.session.End(cause)
}

// drop forgets a session that is over with all its claims: their holders need not give
// them back, and those that wait see its end. The client is locked.
func (c *client) drop(u *user) {
	u.gone = true
	delete(c.users, u.session.ID)
	if c.shared[u.session.Spec] == u {
		delete(c.shared, u.session.Spec)
	}
	for k := range u.claims {
		delete(c.claims, k.id)
	}
	clear(u.claims)
}

// OpenSession opens a session of its own.
func (c *client) OpenSession(ctx context.Context, spec driver.Spec) (*driver.Session, error) {
	if err := policy.None(&spec); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	u := c.newUser(spec)
	if !c.spawn(func() { c.open(u) }) {
		return nil, errClosed
	}
	if err := c.opened(ctx, u); err != nil {
		c.spawn(func() { c.giveUp(u) })
		return nil, err
	}
	return u.session, nil
}

// giveUp ends a session that nobody waits for any more.
func (c *client) giveUp(u *user) {
	<-u.ready
	c.retire(u, driver.ErrReleased)
	c.tellEnd(u)
}

// tellEnd tells the server that a session is over, unless it forgets it by itself
// before it hears.
func (c *client) tellEnd(u *user) {
	ctx, cancel := context.WithTimeout(c.life, u.session.Spec.TTL)
	defer cancel()
	c.insist(ctx.Done(), endScript, u.sid)
}

// insist sends something until the server has heard, or stop or the client's life
// ends: false. Whatever it is refused for may pass.
func (c *client) insist(stop <-chan struct{}, s *script, args ...string) bool {
	for pause := c.opts.BusyWaitMin; c.life.Err() == nil; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(c.life, patience)
		_, err := c.call(ctx, s, args...)
		cancel()
		if err == nil {
			return true
		}
		select {
		case <-time.After(pause):
		case <-c.life.Done():
		case <-stop:
			return false
		}
	}
	return false
}

// ownUser is the server side of a session that this client opened; nil: it is over.
func (c *client) ownUser(l *driver.Session) *user {
	c.mu.Lock()
	u := c.users[l.ID]
	c.mu.Unlock()
	if u == nil || u.session != l || l.Err() != nil {
		return nil
	}
	return u
}

// over is whether a session has ended, for callers that hold a lock: Err would call
// what hangs on it.
func over(l *driver.Session) bool {
	select {
	case <-l.Done():
		return true
	default:
	}
	d, ok := l.Deadline()
	return ok && driver.Until(d) <= 0
}

// ended says that a session is over. One that Close ended is the client's end, whichever of the two a waiter sees first.
func ended(l *driver.Session) error {
	e := &driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: l.Err()}
	if e.Err == driver.ErrClosed {
		return errClosed
	}
	if e.Err == nil {
		e.Err = errors.New("the session has ended, or is not of this Space")
	}
	return e
}

// KeepSession renews l by hand.
func (c *client) KeepSession(ctx context.Context, l *driver.Session, ttl time.Duration) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	u := c.ownUser(l)
	if u == nil {
		return ended(l)
	}
	return c.renewNow(ctx, u, orElse(ttl, l.Spec.TTL))
}

// extended is when the session was last extended, by its deadline.
func (u *user) extended() time.Time {
	d, _ := u.session.Deadline()
	return d.Add(-u.session.Spec.TTL)
}

// renewNow renews a session once.
func (c *client) renewNow(ctx context.Context, u *user, ttl time.Duration) error {
	var heard []string
	for {
		sent := driver.Now()
		reply, err := c.rc.run(ctx, renewScript, c.keys, append([]string{u.sid, millis(ttl)}, heard...))
		if err != nil {
			return failure(ctx, err)
		}
		if heard = c.renewed(u, sent, ttl, reply); heard == nil {
			break
		}
	}
	if err := u.session.Err(); err != nil {
		return ended(u.session)
	}
	return nil
}

// renewed takes the answer to a renewal that was sent at a time. Losses come first,
// so that no hold outlives its own end: those that it returns have to be told to the
// server before it renews the session.
func (c *client) renewed(u *user, sent time.Time, ttl time.Duration, reply []string) (heard []string) {
	if reply[0] == "nosession" {
		c.retire(u, errNoSession)
		return nil
	}
	u.clock.set(sent, reply[1])
	if reply[2] == "1" {
		c.helps()
	}
	if reply[0] == "ok" {
		u.session.Extend(sent, ttl)
		return nil
	}
	for _, id := range reply[3:] {
		c.lose(id)
	}
	return reply[3:]
}

// EndSession ends l with all that hangs on it, for the holders here first. The server
// ends it with the first run of the script; more are for what hangs on it.
func (c *client) EndSession(ctx context.Context, l *driver.Session) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	u := c.ownUser(l)
	if u == nil {
		return ended(l)
	}
	c.retire(u, driver.ErrReleased)
	verdict, err := c.endThere(ctx, u.sid)
	if err != nil {
		c.spawn(func() { c.tellEnd(u) })
	}
	switch verdict {
	case "":
		return err
	case "gone":
		return errNoSession
	}
	return nil
}

// endThere has the server end a session, and clear away what hangs on it. "more": it is
// over, and what is left others clear away; so they may have before the next run.
func (c *client) endThere(ctx context.Context, sid string) (verdict string, err error) {
	for {
		reply, err := c.rc.run(ctx, endScript, c.keys, []string{sid})
		switch {
		case err != nil:
			return verdict, failure(ctx, err)
		case verdict == "more" && reply[0] == "gone":
			return "ok", nil
		}
		if verdict = reply[0]; verdict != "more" {
			return verdict, nil
		}
	}
}

// SessionInfo tells what the server knows of a session, also of another client's.
func (c *client) SessionInfo(ctx context.Context, q *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	if err := c.begin(ctx); err != nil {
		return driver.SessionInfo{}, err
	}
	most := q.Max
	if most <= 0 || most > maxListed {
		most = maxListed
	}
	if _, err := strconv.ParseUint(cmp.Or(q.After, "0"), 10, 64); err != nil {
		return driver.SessionInfo{}, driver.Errorf("", q.ID.String(), fs.ErrInvalid, "%q is no place to go on from: give the one that the last answer named, or none", q.After[:min(len(q.After), 40)])
	}
	reply, err := c.call(ctx, sessionScript, q.ID.String(), cmp.Or(q.After, "0"), strconv.Itoa(most))
	if err != nil {
		return driver.SessionInfo{}, err
	}
	if reply[0] != "ok" {
		return driver.SessionInfo{}, driver.Errorf("", q.ID.String(), fs.ErrNotExist, "no such session: it has ended, or is of another server")
	}
	r := reader{rest: reply[1:]}
	info := driver.SessionInfo{ID: q.ID, TTL: r.millis(), ExpiresIn: r.millis(), Owner: r.text(), Meta: r.text(), Next: r.text()}
	if info.Next == "0" {
		info.Next = ""
	}
	for !r.empty() {
		entry := r.text()
		switch entry[0] {
		case 'n':
			info.Names = append(info.Names, entry[1:])
		case 'w':
			info.Waits = append(info.Waits, entry[1:])
		case 'k':
			info.Keys = append(info.Keys, entry[1:])
		}
	}
	return info, r.err
}

// keep renews the sessions that are due, some at a time, as long as the client lives.
func (c *client) keep() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for c.life.Err() == nil {
		due, wait, shortest := c.dueUsers()
		if len(due) > 0 {
			c.renewAll(urgent(due), shortest/12)
			continue
		}
		timer.Reset(wait)
		select {
		case <-c.life.Done():
		case <-c.wakeKeeper:
		case <-timer.C:
		}
	}
}

// dueUsers are the sessions to renew now, or the time until there are some, and the
// shortest TTL of all that are renewed. A session that is over is forgotten.
func (c *client) dueUsers() (due []*user, wait, shortest time.Duration) {
	now := driver.Now()
	wait, shortest = time.Hour, math.MaxInt64
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.users {
		switch {
		case over(u.session):
			c.drop(u)
		case u.session.Spec.Manual:
			d, _ := u.session.Deadline()
			wait = min(wait, driver.Until(d)) // it is forgotten then, unless it was kept
		case u.next.After(now):
			wait, shortest = min(wait, u.next.Sub(now)), min(shortest, u.session.Spec.TTL)
		default:
			u.until, _ = u.session.Deadline()
			due, shortest = append(due, u), min(shortest, u.session.Spec.TTL)
		}
	}
	return due, wait, shortest
}

// maxRenewed is how many sessions one pipeline renews: few enough for a server to answer
// within a twelfth of the shortest TTL.
const maxRenewed = 200

// urgent are those of the sessions that are due to renew first.
func urgent(due []*user) []*user {
	slices.SortFunc(due, func(a, b *user) int { return a.until.Compare(b.until) })
	return due[:min(len(due), maxRenewed)]
}

// renewAll renews sessions in one pipeline. One that is not answered within patience, a
// twelfth of the shortest TTL of the program, counts as missed and is tried again soon,
// until its deadline passes: those of a short TTL do not wait for those of a long one.
func (c *client) renewAll(users []*user, patience time.Duration) {
	tasks := make([]task, len(users))
	for i, u := range users {
		tasks[i] = task{c.keys, []string{u.sid, millis(u.session.Spec.TTL)}}
	}
	ctx, cancel := context.WithTimeout(c.life, patience)
	defer cancel()
	sent := driver.Now()
	for i, a := range c.rc.runAll(ctx, renewScript, tasks) {
		u := users[i]
		if a.err == nil && c.renewed(u, sent, u.session.Spec.TTL, a.reply) != nil {
			a.err = c.renewNow(ctx, u, u.session.Spec.TTL)
		}
		if a.err == nil {
			u.tries = 0
			c.later(u, c.pause(u))
			continue
		}
		if u.tries++; u.tries == 2 && c.life.Err() == nil {
			c.fault("keep session", u.sid, fmt.Errorf("two renewals went unanswered: %w", failure(ctx, a.err)))
		}
		pause := min(10*time.Millisecond<<min(u.tries, 6), u.session.Spec.TTL/24)
		c.later(u, pause/2+rand.N(pause))
	}
}

func (c *client) later(u *user, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u.next = driver.Now().Add(d)
}
