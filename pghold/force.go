package pghold

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// scanWords reads a word and one or two numbers.
func scanWords(s string, what *string, a, b *int64) bool {
	words := strings.Fields(s)
	if len(words) < 2 || len(words) > 3 {
		return false
	}
	*what = words[0]
	for i, to := range []*int64{a, b}[:len(words)-1] {
		n, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil {
			return false
		}
		*to = n
	}
	return true
}

// revokeSQL marks a claim, and tells its program and the watches. As everywhere the lock of watched comes before a row that
// others wait for.
const revokeSQL = `with watch as materialized (select holdfast_v10.watched() as yes),
marked as (
  update holdfast.claim c set revoked = true from watch
  where watch.yes is not null and c.space = $1 and c.key = $2 and c.token = $3 and c.token > 0 and holdfast_v10.alive(c.nonce, 0)
  returning c.nonce, c.token, c.id, c as claim),
told as (select pg_catalog.pg_notify('holdfast', 'f ' || token), holdfast_v10.tell(claim, 'revoked', 'revoked') from marked)
select nonce, id from marked, told`

// Force asks the holder's program to let go: it is told first, and gives the
// name back at once. With Now a program that does not answer within a fifth of
// Options.Timeout is cut off: its connection is ended, with everything on it.
func (c *client) Force(ctx context.Context, r *driver.ForceRequest) (driver.ForceReply, error) {
	if c.opts.Scope == TransactionScope {
		return driver.ForceReply{}, errors.ErrUnsupported
	}
	key, err := c.key(r.Name)
	if err != nil {
		return driver.ForceReply{}, err
	}
	if err := c.recorded(ctx); err != nil {
		return driver.ForceReply{}, err
	}
	m, err := c.revoke(ctx, key, r.Token)
	switch {
	case err != nil || m.gone:
		return driver.ForceReply{}, err
	case !r.Now:
		return driver.ForceReply{Until: c.opts.Keepalive + c.opts.Timeout}, nil
	}
	return driver.ForceReply{}, begun(c.insist(ctx, key, m.id, m.nonce))
}

// begun is the error of what followed when the holder was told to end: it may have.
func begun(err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Outcome != driver.NotDone {
		return err
	}
	told := *e
	told.Outcome = driver.Unknown
	return &told
}

// marked is a claim that was told to end. gone: it has, by an earlier run of the statement
// without an answer.
type marked struct {
	nonce, id int64
	gone      bool
}

// revoke marks the claim with a token and tells its program.
func (c *client) revoke(ctx context.Context, key Key, token driver.Token) (m marked, err error) {
	missing := refuse(fs.ErrNotExist, "nobody holds it with the token %d; it may have been released", token)
	found, err := c.find(ctx, missing, func(ctx context.Context, q querier) (bool, error) {
		err := q.QueryRow(ctx, revokeSQL, c.args(key.space(), key.n, int64(token))...).Scan(&m.nonce, &m.id)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	m.gone = !found
	return m, err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// insist waits until the claim has gone, and then ends its connection.
func (c *client) insist(ctx context.Context, key Key, id, nonce int64) error {
	polite := time.Now().Add(c.opts.Timeout / 5)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var there bool
		err := c.ask(ctx, func(ctx context.Context, q querier) error {
			return q.QueryRow(ctx, `select exists (select from holdfast.claim c
where c.space = $1 and c.key = $2 and c.id = $3 and holdfast_v10.alive(c.nonce, 0))`, c.args(key.space(), key.n, id)...).Scan(&there)
		})
		if err != nil || !there {
			return err
		}
		if time.Now().After(polite) {
			if err := c.terminate(ctx, nonce); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return gaveup.Error(ctx, driver.Unknown)
		}
	}
}

// terminate ends the connection that holds a nonce.
func (c *client) terminate(ctx context.Context, nonce int64) error {
	return c.ask(ctx, func(ctx context.Context, q querier) error {
		_, err := q.Exec(ctx, "select pg_catalog.pg_terminate_backend(pid) from holdfast_v10.locks(1::smallint, $1) where granted and mode = 'ExclusiveLock'", c.args(nonce)...)
		return err
	})
}

var errForced = refuse(driver.ErrLost, "it was taken by force: somebody else decided its end")

// maxEarly is how many tokens are remembered that nobody here holds with: most of
// them are other programs'.
const maxEarly = 64

// forced ends a hold of ours: its holder knows before the name is free. One that
// nobody here knows may be a grant that is still on its way: it ends when it comes.
func (c *client) forced(token driver.Token) {
	c.mu.Lock()
	cl := c.tokens[token]
	if cl == nil {
		c.early = append(c.early, token)
		c.early = c.early[max(0, len(c.early)-maxEarly):]
	}
	c.mu.Unlock()
	if cl == nil {
		return
	}
	cl.told(errForced)
	c.giveBack(cl)
}
