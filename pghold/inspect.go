package pghold

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

// show reads claims, each with its place among those that hold or wait, the one that
// it waits behind, and how many there are of the same name: by key, or by names.
const show = `select * from (select c.name, c.kind, c.mode, c.weight, c.token, c.owner, c.meta, c.lease, c.value, c.id, c.modified, c.version,
  (extract(epoch from clock_timestamp() - c.since) * 1000000)::bigint, c.revoked, c.chosen,
  row_number() over line as place, lag(c.lease) over line,
  count(*) filter (where c.token > 0) over everybody, count(*) filter (where c.token = 0) over everybody,
  coalesce(sum(c.weight) filter (where c.token > 0) over everybody, 0)::bigint
from holdfast.claim c where %[1]s and holdfast_v10.alive(c.nonce, 0)
window line as (partition by %[2]s, c.token = 0 order by not c.chosen, c.id), everybody as (partition by %[2]s)) c where %[3]s
order by %[4]sc.token = 0, not c.chosen, c.id`

var (
	showKey = fmt.Sprintf(show, "c.space = $1 and c.key = $2", "c.space",
		"(c.token = 0, not c.chosen, c.id) > ($3::boolean, $4::boolean, $5::bigint)", "") + " limit $6"
	showNames = fmt.Sprintf(show, "c.name = any ($1)", "c.name", "c.place <= $2", "c.name, ")
)

// How many claims of one name one answer tells, how many of each name of a list,
// and how many names.
const (
	maxClaims = 1000
	fewClaims = 50 // that hold, and as many that wait
	maxNames  = 1000
)

// page are the names from one up to another that somebody holds or awaits, or that have
// a limit. Of either no more are read than a page has.
const page = `select n.name from (
  (select distinct c.name from holdfast.claim c where c.name >= $1 and c.name < $2 and c.name > $3 and holdfast_v10.alive(c.nonce, 0) order by c.name limit $4)
  union (select r.name from holdfast.resource r where r.name >= $1 and r.name < $2 and r.name > $3 order by r.name limit $4)) n
order by n.name limit $4`

// Inspect lists holders and waiters, as far as they use this package;
// others' locks are told by heldError.
func (c *client) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	var reply driver.InspectReply
	key, err := c.key(r.Name)
	if err != nil && !r.Prefix {
		return reply, err
	}
	if err := c.recorded(ctx); err != nil {
		return reply, err
	}
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		reply = driver.InspectReply{} // a run before this one may have told a part
		if err := scanRevision(q.QueryRow(ctx, "select n from holdfast.revision", c.mode), &reply.Revision); err != nil {
			return err
		}
		if r.Prefix {
			return c.list(ctx, q, r, &reply)
		}
		one, next, err := c.show(ctx, q, r.Name, key, r.After, r.Max)
		if one.Kind != 0 {
			reply.Resources, reply.Next = append(reply.Resources, one), next
		}
		return err
	})
	return reply, err
}

// show is one name, of Kind 0 if it is unknown, with at most so many claims
// behind a place, and the place behind them.
func (c *client) show(ctx context.Context, q querier, name string, key Key, after string, most int) (driver.Resource, string, error) {
	res := driver.Resource{Name: name}
	limits, err := c.limits(ctx, q, limitsSQL+"space = $1 and key = $2", key.space(), key.n)
	if err != nil {
		return res, "", err
	}
	if len(limits) > 0 {
		res = limits[0]
		res.Name = name // it may have been made under another of the same key
	}
	var waits, last bool
	id := int64(-1)
	if after != "" {
		if _, err := fmt.Sscanf(after, "%t.%t.%d", &waits, &last, &id); err != nil {
			return res, "", driver.Errorf("", name, fs.ErrInvalid, "%q is no place to go on from: give the one that the last answer named, or none", after[:min(len(after), 40)])
		}
	}
	if most <= 0 || most > maxClaims {
		most = maxClaims
	}
	claims, err := c.claims(ctx, q, showKey, key.space(), key.n, waits, last, id, most+1)
	next := ""
	if len(claims) > most {
		claims = claims[:most]
		end := &claims[most-1]
		next, res.More = fmt.Sprintf("%t.%t.%d", end.Token == 0, !end.chosen, end.Created), true
	}
	addClaims(&res, claims)
	return res, next, err
}

func (c *client) list(ctx context.Context, q querier, r *driver.InspectRequest, reply *driver.InspectReply) error {
	most := r.Max
	if most <= 0 || most > maxNames {
		most = maxNames
	}
	rows, err := q.Query(ctx, page, c.args(r.Name, behind(r.Name), r.After, most+1)...)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(names) > most {
		names = names[:most]
		reply.Next = names[most-1]
	}
	claims, err := c.claims(ctx, q, showNames, names, fewClaims)
	if err != nil {
		return err
	}
	limits, err := c.limitsOf(ctx, q, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		res := limits[name]
		res.Name = name
		n := 0
		for n < len(claims) && claims[n].Name == name {
			n++
		}
		addClaims(&res, claims[:n])
		if claims = claims[n:]; res.Kind != 0 {
			res.More = res.Holding > len(res.Holders) || res.Waiting > len(res.Waiters)
			reply.Resources = append(reply.Resources, res)
		}
	}
	return nil
}

const limitsSQL = "select name, kind, lim, made from holdfast.resource where "

// limitsOf are the semaphores, latches and barriers among names, without their claims.
func (c *client) limitsOf(ctx context.Context, q querier, names []string) (map[string]driver.Resource, error) {
	list, err := c.limits(ctx, q, limitsSQL+"name = any ($1)", names)
	found := map[string]driver.Resource{}
	for _, res := range list {
		found[res.Name] = res
	}
	return found, err
}

func (c *client) limits(ctx context.Context, q querier, sql string, args ...any) ([]driver.Resource, error) {
	rows, err := q.Query(ctx, sql, c.args(args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (res driver.Resource, err error) {
		var kind int16
		var made int64
		err = row.Scan(&res.Name, &kind, &res.Limit, &made)
		res.Kind, res.Created, res.Modified = driver.ResourceKind(kind), driver.Revision(made), driver.Revision(made)
		return res, err
	})
}

// claimRow is a claim as show reads it.
type claimRow struct {
	driver.Claim
	chosen           bool
	holding, waiting int
	used             int64
}

func (c *client) claims(ctx context.Context, q querier, sql string, args ...any) ([]claimRow, error) {
	rows, err := q.Query(ctx, sql, c.args(args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanClaim)
}

func scanClaim(row pgx.CollectableRow) (claimRow, error) {
	var cl claimRow
	var kind, mode int16
	var token, id, modified, version, held int64
	var meta []byte
	var session [16]byte
	var before *[16]byte
	err := row.Scan(&cl.Name, &kind, &mode, &cl.Weight, &token, &cl.Owner, &meta, &session, &cl.Value, &id, &modified, &version, &held, &cl.Revoked,
		&cl.chosen, &cl.Position, &before, &cl.holding, &cl.waiting, &cl.used)
	cl.Kind, cl.Mode, cl.Token, cl.Meta, cl.Session = driver.ResourceKind(kind), driver.Mode(mode), driver.Token(token), string(meta), session
	cl.Created, cl.Modified, cl.Version, cl.Held = driver.Revision(id), driver.Revision(modified), uint64(version), time.Duration(max(held, 0))*time.Microsecond
	switch {
	case token > 0:
		cl.Position = 0
	case before != nil:
		cl.Before = *before
	}
	return cl, err
}

// addClaims sorts claims of one name into holders and waiters.
func addClaims(res *driver.Resource, claims []claimRow) {
	for i := range claims {
		cl := &claims[i]
		if res.Kind == 0 {
			res.Kind, res.Created = cl.Kind, cl.Created
		}
		res.Modified = max(res.Modified, cl.Modified)
		res.Holding, res.Waiting, res.Used = cl.holding, cl.waiting, cl.used
		if cl.Token > 0 {
			res.Holders = append(res.Holders, cl.Claim)
		} else {
			res.Waiters = append(res.Waiters, cl.Claim)
		}
	}
}

// maxHolders is how many holders a refusal tells.
const maxHolders = 16

// heldError is ErrHeld with the claims that stand in the way, other programs that use
// the same advisory lock included.
func (c *client) heldError(ctx context.Context, cl *rowClaim) error {
	e := &driver.Error{Kind: driver.ErrHeld, Outcome: driver.NotDone}
	err := c.ask(ctx, func(ctx context.Context, q querier) error {
		res, _, err := c.show(ctx, q, cl.name, cl.key, "", maxHolders)
		if err == nil && len(res.Holders) == 0 { // its row may be on the way
			if err = c.recorded(ctx); err == nil {
				res, _, err = c.show(ctx, q, cl.name, cl.key, "", maxHolders)
			}
		}
		if err != nil {
			return err
		}
		if res.Kind != 0 && res.Kind != cl.kind {
			return otherKind(res.Kind)
		}
		e.Holders, e.Waiting = res.Holders, res.Waiting
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
func (c *client) strangers(ctx context.Context, q querier, cl *rowClaim) ([]driver.Claim, error) {
	rows, err := q.Query(ctx, "select pid, mode from holdfast_v10.locks($1, $2) where granted", c.args(cl.key.space(), cl.key.n)...)
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
