package pghold

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
	"github.com/holdfast-io/holdfast/internal/policy"
)

func newID() (id driver.SessionID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// uuid is an id as PostgreSQL reads it, in every mode of the protocol.
func uuid(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// OpenSession opens a session: it lives as long as the home connection, and has no
// TTL.
func (c *client) OpenSession(ctx context.Context, spec driver.Spec) (*driver.Session, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	if err := policy.None(&spec); err != nil {
		return nil, err
	}
	l, err := c.atHome(ctx)
	if err != nil {
		return nil, err
	}
	session := driver.NewSession(newID(), spec)
	err = c.onHome(ctx, l, func(ctx context.Context, q querier) error {
		_, err := q.Exec(ctx, "insert into holdfast.session (id, nonce, owner, meta, ttl) values ($1::uuid, $2, $3, $4, $5)",
			c.args(uuid(session.ID), l.nonce, spec.Owner, []byte(spec.Meta), int64(spec.TTL))...)
		return err
	}, func() { c.forgetSession(session) })
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, lives := c.links[l]; !lives {
		return nil, lostBecause(errors.New("it broke off before the answer was taken"))
	}
	l.sessions[session] = struct{}{}
	return session, nil
}

func (c *client) forgetSession(session *driver.Session) {
	c.cleanUp("open a session", session.Spec.Owner, func(ctx context.Context, q querier, _ int64) error {
		_, err := q.Exec(ctx, "delete from holdfast.session where id = $1::uuid", c.args(uuid(session.ID))...)
		return err
	}, nil)
}

// KeepSession asks for a sign of life: there is no deadline to move.
func (c *client) KeepSession(ctx context.Context, l *driver.Session, _ time.Duration) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if l.Err() != nil {
		return ended(l)
	}
	home := c.linkOf(l)
	if home == nil {
		return ended(l)
	}
	j := home.start(c.opts.Timeout, func(ctx context.Context) error {
		_, err := home.conn.Exec(ctx, "select 1", pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if !j.wait(ctx) {
		return gaveup.Error(ctx, driver.Unknown)
	}
	return failed(ctx, j.err)
}

// linkOf is the link that a session of ours lives on; nil: it has ended.
func (c *client) linkOf(l *driver.Session) *pgLink {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.links {
		if _, ok := k.sessions[l]; ok {
			return k
		}
	}
	return nil
}

// EndSession ends l with all that hangs on it; for the holders first. If the server does
// not answer in time, that goes on in the background: no TTL ends a session here.
func (c *client) EndSession(ctx context.Context, l *driver.Session) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if l.Err() != nil {
		return ended(l)
	}
	hanging, ours := c.detach(l)
	if !ours {
		return ended(l)
	}
	hanging = append(hanging, c.endSession(l, driver.ErrReleased)...)
	for _, cl := range hanging {
		c.giveBack(cl)
	}
	err := allReleased(ctx, hanging)
	if err == nil {
		err = c.removeSession(l, func(run func(ctx context.Context, q querier) error) error { return c.ask(ctx, run) })
	}
	if err != nil {
		c.keepTrying("end a session", l.Spec.Owner, func() error { return c.removeAside(l) }, nil)
	}
	return err
}

// detach takes l from its link, and returns what hangs on it: a link that breaks off from now on
// does not know of it any more. ours: it was of a link that lives.
func (c *client) detach(l *driver.Session) (hanging []*rowClaim, ours bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.links {
		if _, ok := k.sessions[l]; ok {
			ours = true
			delete(k.sessions, l)
		}
	}
	hanging = c.hangingOn(l)
	return hanging, ours || len(hanging) > 0
}

// allReleased waits until the claims are given back. One with a connection that broke off meanwhile may
// be held there until the server notices that.
func allReleased(ctx context.Context, claims []*rowClaim) error {
	for _, cl := range claims {
		select {
		case <-cl.released:
		case <-ctx.Done():
			return gaveup.Error(ctx, driver.Unknown)
		}
		if cl.result != nil && !cl.l.alive() {
			return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown, Err: fmt.Errorf(
				"the connection that held %q broke off; it is free when the server notices that: %w", cl.name, cl.l.err)}
		}
	}
	return nil
}

// keyPage is how many keys one transaction removes: as long as it lasts no other writes keys.
const keyPage = 1000

// removeSession removes the row of a session and then, page by page, its keys; it may be
// repeated. A put of a key shares the row until that is over, so that no key follows when
// the row is gone; and not in one transaction, in which each would wait for the other. ask
// runs a statement.
func (c *client) removeSession(l *driver.Session, ask func(run func(ctx context.Context, q querier) error) error) error {
	err := ask(func(ctx context.Context, q querier) error {
		_, err := q.Exec(ctx, "delete from holdfast.session where id = $1::uuid", c.args(uuid(l.ID))...)
		return err
	})
	n := keyPage // not of the loop, which would read it while a statement that is given up may write it
	for err == nil && n == keyPage {
		err = ask(func(ctx context.Context, q querier) error {
			return scanRemoved(q.QueryRow(ctx, "select case when "+isRevision+" then holdfast_v10.kv_end($1::uuid, $2) else -1 end", c.args(uuid(l.ID), keyPage)...), &n)
		})
	}
	return c.revised(err)
}

// removeFor is how long the removal of a session with many keys may take.
const removeFor = time.Minute

// removeAside is removeSession on a connection that no lock hangs on: it may wait long for
// others that write keys. One session after the other has one, so that the caller's pool, if it is
// that, is left to the caller. Only if the pool has none it is the home link.
func (c *client) removeAside(l *driver.Session) error {
	select {
	case c.removing <- struct{}{}:
		defer func() { <-c.removing }()
	case <-c.life.Done():
		return errClosed
	}
	soon, cancel := context.WithTimeout(c.life, c.opts.Timeout)
	conn, err := c.pool.Acquire(soon)
	cancel()
	if err != nil && c.opts.Scope == SessionScope {
		return c.removeSession(l, c.atHomeInTime)
	}
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(c.life, removeFor)
	defer cancel()
	return c.removeSession(l, func(run func(ctx context.Context, q querier) error) error { return run(ctx, conn) })
}

// atHomeInTime runs a statement on the home link of session scope. The server gives a wait for
// others' locks up, of which one statement may have three, before the link would count as broken.
func (c *client) atHomeInTime(run func(ctx context.Context, q querier) error) error {
	ctx, cancel := context.WithTimeout(c.life, c.opts.Timeout)
	defer cancel()
	l, err := c.atHome(ctx)
	if err != nil {
		return err
	}
	return c.onHome(ctx, l, run, nil)
}

// endSession ends a session here and gives back what hangs on it.
func (c *client) endSession(l *driver.Session, why error) []*rowClaim {
	l.End(why)
	c.mu.Lock()
	hanging := c.hangingOn(l)
	c.mu.Unlock()
	for _, cl := range hanging {
		c.giveBack(cl)
	}
	return hanging
}

// hangingOn are the claims on a session; the client is locked.
func (c *client) hangingOn(l *driver.Session) (hanging []*rowClaim) {
	for _, cl := range c.tokens {
		if cl.session == l {
			hanging = append(hanging, cl)
		}
	}
	return hanging
}

// SessionInfo tells what the server knows of a session.
func (c *client) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	info := driver.SessionInfo{ID: r.ID}
	if err := c.recorded(ctx); err != nil {
		return info, err
	}
	err := c.ask(ctx, func(ctx context.Context, q querier) error {
		info = driver.SessionInfo{ID: r.ID} // a run before this one may have told a part
		var meta []byte
		err := q.QueryRow(ctx, `select owner, meta from holdfast.session where id = $1::uuid and holdfast_v10.alive(nonce, 0)
union all select owner, meta from holdfast.claim where lease = $1::uuid and holdfast_v10.alive(nonce, 0) limit 1`, c.args(uuid(r.ID))...).Scan(&info.Owner, &meta)
		if errors.Is(err, pgx.ErrNoRows) {
			return driver.Errorf("", r.ID.String(), fs.ErrNotExist, "no such session: it has ended, or is of another database")
		}
		if err != nil {
			return err
		}
		info.Meta = string(meta)
		return c.hanging(ctx, q, r, &info)
	})
	return info, err
}

// hanging lists what hangs on a session: claims by their places, the names of which
// need not be unique, then keys.
const hanging = `select * from (
  select 'c' as list, id, name, token = 0 from holdfast.claim where lease = $1::uuid and id > $2 and holdfast_v10.alive(nonce, 0)
  union all select 'k', 0, key, false from holdfast.kv where lease = $1::uuid and key > $3) h
order by list, id, name limit $4`

func (c *client) hanging(ctx context.Context, q querier, r *driver.SessionInfoRequest, info *driver.SessionInfo) error {
	id, key, err := hangingAfter(r)
	if err != nil {
		return err
	}
	most := r.Max
	if most <= 0 || most > maxClaims {
		most = maxClaims
	}
	rows, err := q.Query(ctx, hanging, c.args(uuid(info.ID), id, key, most+1)...)
	if err != nil {
		return err
	}
	var list, name string
	var waits bool
	told := 0
	_, err = pgx.ForEachRow(rows, []any{&list, &id, &name, &waits}, func() error {
		if told++; told > most {
			return nil
		}
		to := &info.Names
		switch {
		case list == "k":
			to, info.Next = &info.Keys, "k"+name
		case waits:
			to, info.Next = &info.Waits, fmt.Sprintf("c%d", id)
		default:
			info.Next = fmt.Sprintf("c%d", id)
		}
		*to = append(*to, name)
		return nil
	})
	if told <= most {
		info.Next = ""
	}
	return err
}

// hangingAfter is where a list of what hangs on a session goes on: behind the claim
// with an id, and behind a key.
func hangingAfter(r *driver.SessionInfoRequest) (id int64, key string, err error) {
	switch {
	case r.After == "":
		return 0, "", nil
	case r.After[0] == 'k':
		return math.MaxInt64, r.After[1:], nil
	}
	if _, err := fmt.Sscanf(r.After, "c%d", &id); err != nil {
		return 0, "", driver.Errorf("", r.ID.String(), fs.ErrInvalid, "%q is no place to go on from: give the one that the last answer named, or none", r.After[:min(len(r.After), 40)])
	}
	return id, "", nil
}
