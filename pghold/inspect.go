package pghold

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

const showColumns = `select c.name, c.kind, c.mode, c.weight, c.token, c.owner, c.meta, c.lease, c.value, c.id, c.modified, c.version,
  (extract(epoch from clock_timestamp() - c.since) * 1000000)::bigint, c.revoked
from holdfast.claim c `

const (
	showKey    = showColumns + `where c.space = $1 and c.key = $2 and holdfast.alive(c.nonce, 0) order by c.token = 0, not c.chosen, c.id`
	showPrefix = showColumns + `where c.name = any ($1) and holdfast.alive(c.nonce, 0) order by c.name, c.token = 0, not c.chosen, c.id`
)

// page are the names with a prefix that somebody holds or awaits, or that have
// a limit.
const page = `select n.name from (
  select name from holdfast.claim c where starts_with(c.name, $1) and holdfast.alive(c.nonce, 0)
  union select name from holdfast.resource r where starts_with(r.name, $1)) n
where n.name > $2 order by n.name limit $3`

// Inspect tells who holds and who waits, as far as they use this package;
// others' locks are told by heldError.
func (c *client) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	var reply driver.InspectReply
	key, err := c.key(r.Name)
	if err != nil && !r.Prefix {
		return reply, err
	}
	about := &key
	if r.Prefix {
		about = nil
	}
	if err := c.describedBy(ctx, about); err != nil {
		return reply, err
	}
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		if err := q.QueryRow(ctx, "select n from holdfast.revision", c.mode).Scan(&reply.Revision); err != nil {
			return err
		}
		if r.Prefix {
			return c.list(ctx, q, r, &reply)
		}
		one, known, err := c.show(ctx, q, r.Name, key)
		if known {
			reply.Resources = append(reply.Resources, one)
		}
		return err
	})
	return reply, err
}

// show is one name; false: nobody knows it.
func (c *client) show(ctx context.Context, q querier, name string, key Key) (driver.Resource, bool, error) {
	res := driver.Resource{Name: name}
	err := c.limits(ctx, q, &res, "where space = $1 and key = $2", key.space(), key.n)
	if err != nil {
		return res, false, err
	}
	claims, err := c.claims(ctx, q, showKey, key.space(), key.n)
	addClaims(&res, claims)
	return res, res.Kind != 0, err
}

func (c *client) list(ctx context.Context, q querier, r *driver.InspectRequest, reply *driver.InspectReply) error {
	most := r.Max
	if most <= 0 {
		most = 100
	}
	rows, err := q.Query(ctx, page, c.args(r.Name, r.After, most+1)...)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if reply.More = len(names) > most; reply.More {
		names = names[:most]
	}
	claims, err := c.claims(ctx, q, showPrefix, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		res := driver.Resource{Name: name}
		if err := c.limits(ctx, q, &res, "where name = $1", name); err != nil {
			return err
		}
		addClaims(&res, slices.DeleteFunc(slices.Clone(claims), func(cl driver.Claim) bool { return cl.Name != name }))
		if res.Kind != 0 {
			reply.Resources = append(reply.Resources, res)
		}
	}
	return nil
}

// limits fills in what a semaphore, latch or barrier has.
func (c *client) limits(ctx context.Context, q querier, res *driver.Resource, where string, args ...any) error {
	var kind int16
	var made int64
	err := q.QueryRow(ctx, "select kind, lim, made from holdfast.resource "+where, c.args(args...)...).Scan(&kind, &res.Limit, &made)
	if err == pgx.ErrNoRows {
		return nil
	}
	res.Kind, res.Created, res.Modified = driver.ResourceKind(kind), uint64(made), uint64(made)
	return err
}

func (c *client) claims(ctx context.Context, q querier, sql string, args ...any) ([]driver.Claim, error) {
	rows, err := q.Query(ctx, sql, c.args(args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanClaim)
}

func scanClaim(row pgx.CollectableRow) (driver.Claim, error) {
	var cl driver.Claim
	var kind, mode int16
	var token, id, modified, version, held int64
	var meta []byte
	var lease [16]byte
	err := row.Scan(&cl.Name, &kind, &mode, &cl.Weight, &token, &cl.Owner, &meta, &lease, &cl.Value, &id, &modified, &version, &held, &cl.Revoked)
	cl.Kind, cl.Mode, cl.Token, cl.Meta, cl.Lease = driver.ResourceKind(kind), driver.Mode(mode), uint64(token), string(meta), lease
	cl.Created, cl.Modified, cl.Version, cl.Held = uint64(id), uint64(modified), uint64(version), time.Duration(max(held, 0))*time.Microsecond
	return cl, err
}

// addClaims sorts claims of one name into holders and waiters.
func addClaims(res *driver.Resource, claims []driver.Claim) {
	for _, cl := range claims {
		if res.Kind == 0 {
			res.Kind, res.Created = cl.Kind, cl.Created
		}
		res.Modified = max(res.Modified, cl.Modified)
		if cl.Token > 0 {
			res.Used += cl.Weight
			res.Holders = append(res.Holders, cl)
			continue
		}
		cl.Position = len(res.Waiters) + 1
		if cl.Position > 1 {
			cl.Before = res.Waiters[cl.Position-2].Lease
		}
		res.Waiters = append(res.Waiters, cl)
	}
}

// heldError is ErrHeld with those who stand in the way, other programs that use
// the same advisory lock included.
func (c *client) heldError(ctx context.Context, cl *claim) error {
	e := &driver.Error{Kind: driver.ErrHeld, Outcome: driver.NotDone}
	err := c.ask(ctx, func(ctx context.Context, q querier) error {
		res, _, err := c.show(ctx, q, cl.name, cl.key)
		if err == nil && (len(res.Holders) == 0 || cl.kind == driver.RWMutex) { // its row, or another reader's, may be on the way
			if err = c.describedBy(ctx, &cl.key); err == nil {
				res, _, err = c.show(ctx, q, cl.name, cl.key)
			}
		}
		if err != nil {
			return err
		}
		if res.Kind != 0 && res.Kind != cl.kind {
			return otherKind(res.Kind)
		}
		e.Holders, e.Waiting = res.Holders, len(res.Waiters)
		if len(e.Holders) == 0 && !cl.gathers() {
			e.Holders, err = c.strangers(ctx, q, cl)
		}
		return err
	})
	if err != nil {
		return err
	}
	return e
}

// strangers are holders that do not use this package.
func (c *client) strangers(ctx context.Context, q querier, cl *claim) ([]driver.Claim, error) {
	rows, err := q.Query(ctx, "select pid, mode from holdfast.locks($1, $2) where granted", c.args(cl.key.space(), cl.key.n)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.Claim, error) {
		var pid int32
		var mode string
		err := row.Scan(&pid, &mode)
		k := driver.Claim{Name: cl.name, Kind: cl.kind, Owner: fmt.Sprintf("PostgreSQL process %d", pid), Weight: 1}
		if mode == "ShareLock" {
			k.Mode = driver.Shared
		}
		return k, err
	})
}
