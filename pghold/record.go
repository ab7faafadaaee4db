package pghold

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// recordLater has the hold noted if it lasts.
func (l *pgLink) recordLater(cl *rowClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unrecorded.young = append(l.unrecorded.young, cl)
	if !l.unrecorded.ticking {
		l.unrecorded.ticking = true
		time.AfterFunc(l.c.recordHoldsAfter, l.tick)
	}
}

// tick comes every client.recordHoldsAfter while mutexes are granted: what was granted before
// the last one and is still held gets its row, if it has none, and others hear of
// it. When no more come the flag goes too.
func (l *pgLink) tick() {
	if l.turnOver() {
		time.AfterFunc(l.c.recordHoldsAfter, l.tick)
		return
	}
	l.start(l.c.opts.Timeout, l.recordHolds)
}

// turnOver makes the young the old; false: first some of the old are to be noted,
// or the flag is not needed any more.
func (l *pgLink) turnOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.unrecorded
	f.old = slices.DeleteFunc(f.old, func(cl *rowClaim) bool { return !cl.isQuiet() })
	if len(f.old) > 0 || len(f.young) == 0 {
		return false
	}
	f.old, f.young = f.young, f.old
	return true
}

// recordHolds writes the rows that are due, and takes the flag away if no others will
// be. It ends the ticks, or has them go on.
func (l *pgLink) recordHolds(ctx context.Context) error {
	l.mu.Lock()
	due := l.unrecorded.old
	last := len(l.unrecorded.young) == 0
	flag := l.unrecorded.flag
	l.mu.Unlock()
	err := l.writeRows(ctx, slices.Clone(due))
	if err == nil && last && flag {
		_, err = l.conn.Exec(ctx, "select pg_catalog.pg_advisory_unlock_shared($1)", int64(unrecordedFlag))
	}
	if err == nil {
		l.setTicking(!last)
		return nil
	}
	time.AfterFunc(faultPause, l.tick)
	return err
}

// setTicking says whether the flag, if it was there, still is, and the next tick to
// come.
func (l *pgLink) setTicking(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unrecorded.old, l.unrecorded.young = l.unrecorded.young, nil
	l.unrecorded.flag, l.unrecorded.ticking = l.unrecorded.flag && on, on
	if on {
		time.AfterFunc(l.c.recordHoldsAfter, l.tick)
	}
}

// noteSQL writes the rows that are missing, and has other programs look for rows
// before they take these names again.
const noteSQL = `with x as (
  select * from unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[], $10::bigint[], $11::boolean[])
    as x (space, key, token, name, lease, owner, meta, age, rowless)),
written as (
  insert into holdfast.claim (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, modified, since)
  select space, key, token, token, name, $8, 0, 1, $9, lease::uuid, owner, meta, token, clock_timestamp() - age * interval '1 microsecond'
  from x where rowless)
select pg_catalog.pg_notify('holdfast', 'r ' || space || ' ' || key) from x`

// writeRows tells the server of holders, and tells others that somebody does.
func (l *pgLink) writeRows(ctx context.Context, claims []*rowClaim) error {
	claims = slices.DeleteFunc(claims, func(cl *rowClaim) bool { return !cl.isQuiet() })
	if len(claims) == 0 {
		return nil
	}
	n := len(claims)
	spaces, keys, tokens, ages := make([]int16, n), make([]int64, n), make([]int64, n), make([]int64, n)
	names, sessions, owners, metas := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	rowless := make([]bool, n)
	for i, cl := range claims {
		spaces[i], keys[i], tokens[i], ages[i] = cl.key.space(), cl.key.n, cl.id, time.Since(cl.since).Microseconds()
		names[i], sessions[i], owners[i], metas[i] = cl.name, uuid(cl.session.ID), cl.session.Spec.Owner, []byte(cl.session.Spec.Meta)
		rowless[i] = cl.rowless.Load()
	}
	_, err := l.conn.Exec(ctx, noteSQL, spaces, keys, tokens, names, sessions, owners, metas, int16(driver.Mutex), l.nonce, ages, rowless)
	if err != nil {
		l.c.fault("acquire", claims[0].name, failed(ctx, err))
		return err
	}
	for _, cl := range claims {
		cl.heardOf()
	}
	return nil
}

// recorded returns when what was held before the call has its row.
func (c *client) recorded(ctx context.Context) error {
	return c.ask(ctx, func(ctx context.Context, q querier) error {
		_, err := q.Exec(ctx, "select holdfast_v10.noted()", c.mode)
		return err
	})
}

// sameKind refuses a claim on a name that is held as another kind by somebody
// whose row was not there when the claim arrived.
func (c *client) sameKind(ctx context.Context, cl *rowClaim) error {
	if err := c.recorded(ctx); err != nil {
		return err
	}
	var other *int16
	err := c.ask(ctx, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, `select max(c.kind) from holdfast.claim c
where c.space = $1 and c.key = $2 and c.token > 0 and c.kind <> $3 and holdfast_v10.alive(c.nonce, 0)`,
			c.args(cl.key.space(), cl.key.n, int16(cl.kind))...).Scan(&other)
	})
	if err == nil && other != nil {
		return otherKind(driver.ResourceKind(*other))
	}
	return err
}
