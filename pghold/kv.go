package pghold

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

const kvColumns = `x.key, x.value, x.created, x.modified, x.version, x.lease,
  (extract(epoch from x.expires - clock_timestamp()) * 1000000)::bigint`

// scanKV reads kvColumns.
func scanKV(row pgx.CollectableRow, more ...any) (driver.KV, error) {
	var k driver.KV
	var created, modified, version int64
	var lease *[16]byte
	var left *int64
	err := row.Scan(append([]any{&k.Key, &k.Value, &created, &modified, &version, &lease, &left}, more...)...)
	k.Created, k.Modified, k.Version = uint64(created), uint64(modified), uint64(version)
	if lease != nil {
		k.Lease = *lease
	}
	if left != nil {
		k.ExpiresIn = max(time.Duration(*left)*time.Microsecond, time.Microsecond)
	}
	return k, err
}

func writes(ops []driver.Op) bool {
	return slices.ContainsFunc(ops, func(o driver.Op) bool { return o.Kind != driver.OpGet })
}

// Txn runs a transaction. Those that may write take turns: their revisions are
// in order, and what one compares no other changes.
func (c *client) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	for _, o := range slices.Concat(r.Then, r.Else) {
		if o.Lease != nil && o.Lease.Err() != nil {
			return nil, ended(o.Lease)
		}
	}
	var reply *driver.TxnReply
	var late error // after the commit may have left: not to be repeated
	err := c.ask(ctx, func(ctx context.Context, _ querier) error {
		conn, err := c.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // a connection that is left in a transaction is closed
		t := &txn{r: r, conn: conn.Conn()}
		if err := t.compare(ctx); err != nil {
			return err
		}
		reply, late = t.run(ctx)
		late = failed(ctx, late)
		return nil
	})
	if err = firstOf(err, late); err != nil {
		return nil, err
	}
	return reply, nil
}

// txn is one run of a transaction, in two round trips: one up to the compares,
// one for the rest.
type txn struct {
	r    *driver.TxnRequest
	conn *pgx.Conn
	rev  int64
	oks  []bool
}

// run does the branch that the conditions chose.
func (t *txn) run(ctx context.Context) (*driver.TxnReply, error) {
	reply := &driver.TxnReply{OK: !slices.Contains(t.oks, false), Revision: uint64(t.rev)}
	ops := t.r.Then
	if !reply.OK {
		ops = t.r.Else
	}
	if writes(ops) {
		reply.Revision++
	}
	return reply, t.apply(ctx, ops, reply)
}

// The beginning of a transaction that may write, which must not keep others
// waiting if its program stops, and of one that only reads.
const (
	beginWrite = "begin"
	beginRead  = "begin isolation level repeatable read read only"
	hurry      = "set local idle_in_transaction_session_timeout = '5s'"
	revWrite   = "select n from holdfast.revision for update"
	revRead    = "select n from holdfast.revision"
)

// compare begins, takes the turn and evaluates the conditions.
func (t *txn) compare(ctx context.Context) error {
	b := &pgx.Batch{}
	begin, rev := beginRead, revRead
	if writes(t.r.Then) || writes(t.r.Else) {
		begin, rev = beginWrite, revWrite
	}
	b.Queue(begin)
	b.Queue(hurry)
	b.Queue(rev).QueryRow(func(row pgx.Row) error { return row.Scan(&t.rev) })
	for i := range t.r.If {
		cond := &t.r.If[i]
		b.Queue("select "+kvColumns+" from holdfast.kv x where "+about(cond.Prefix)+" and holdfast.fresh(x)", cond.Key).
			Query(func(rows pgx.Rows) error {
				found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.KV, error) { return scanKV(row) })
				t.oks = append(t.oks, holds(cond, found))
				return err
			})
	}
	return t.conn.SendBatch(ctx, b).Close()
}

// about is the SQL for one key, or for all that begin with it; either can use
// the index.
func about(prefix bool) string {
	if prefix {
		return "x.key >= $1 and x.key ^@ $1"
	}
	return "x.key = $1"
}

// holds evaluates a condition on the keys that it is about.
func holds(c *driver.Compare, found []driver.KV) bool {
	if len(found) == 0 {
		return c.Target != driver.CompareValue && c.Target != driver.CompareLease && relates(c.Is, cmp.Compare(0, c.Num))
	}
	return !slices.ContainsFunc(found, func(k driver.KV) bool { return !relates(c.Is, order(c, &k)) })
}

// order is how a key compares to the condition's operand.
func order(c *driver.Compare, k *driver.KV) int {
	switch c.Target {
	case driver.CompareMod:
		return cmp.Compare(k.Modified, c.Num)
	case driver.CompareCreate:
		return cmp.Compare(k.Created, c.Num)
	case driver.CompareVersion:
		return cmp.Compare(k.Version, c.Num)
	case driver.CompareValue:
		return bytes.Compare(k.Value, c.Value)
	}
	return bytes.Compare(k.Lease[:], c.Lease[:])
}

func relates(is driver.Relation, order int) bool {
	switch is {
	case driver.Equal:
		return order == 0
	case driver.NotEqual:
		return order != 0
	case driver.Less:
		return order < 0
	}
	return order > 0
}

// apply runs the operations and commits.
func (t *txn) apply(ctx context.Context, ops []driver.Op, reply *driver.TxnReply) error {
	b := &pgx.Batch{}
	if writes(ops) {
		b.Queue("update holdfast.revision set n = n + 1")
	}
	reply.Results = make([]driver.OpResult, len(ops))
	for i := range ops {
		t.queue(b, &ops[i], i, &reply.Results[i])
	}
	b.Queue("commit")
	return t.conn.SendBatch(ctx, b).Close()
}

// sorts are the columns of the orders.
var sorts = map[driver.SortBy]string{
	driver.ByKey: "x.key", driver.ByVersion: "x.version", driver.ByCreate: "x.created", driver.ByMod: "x.modified", driver.ByValue: "x.value",
}

// queue adds one operation. Ordinals are spread so that a delete of many keys
// has room.
func (t *txn) queue(b *pgx.Batch, o *driver.Op, i int, res *driver.OpResult) {
	switch o.Kind {
	case driver.OpPut:
		var lease any
		if o.Lease != nil {
			lease = uuid(o.Lease.ID)
		}
		var ms any
		if o.Expire > 0 {
			ms = max(o.Expire.Milliseconds(), 1)
		}
		b.Queue("select "+kvColumns+" from holdfast.kv_put($1, $2, $3::text::uuid, $4, $5) x", o.Key, orEmpty(o.Value), lease, ms, i<<16).
			Query(func(rows pgx.Rows) error { return previous(rows, o, res) })
	case driver.OpDelete:
		b.Queue("select "+kvColumns+" from holdfast.kv_drop($1, $2, $3, null) x order by x.key", o.Key, o.Prefix, i<<16).
			Query(func(rows pgx.Rows) error { return previous(rows, o, res) })
	default:
		b.Queue(getSQL(o), o.Key, o.KeysOnly).Query(func(rows pgx.Rows) error { return collect(rows, o, res) })
	}
}

func orEmpty(v []byte) []byte {
	if v == nil {
		return []byte{}
	}
	return v
}

// getSQL reads keys in an order, with how many there are in all.
func getSQL(o *driver.Op) string {
	down := ""
	if o.Desc {
		down = " desc"
	}
	sql := fmt.Sprintf(`select x.key, case when $2 then '' else x.value end, x.created, x.modified, x.version, x.lease,
  (extract(epoch from x.expires - clock_timestamp()) * 1000000)::bigint, count(*) over ()
from holdfast.kv x where %s and holdfast.fresh(x) order by %s%s, x.key%s`, about(o.Prefix), sorts[o.Sort], down, down)
	if o.Limit > 0 {
		sql += fmt.Sprintf(" limit %d", o.Limit)
	}
	return sql
}

func collect(rows pgx.Rows, o *driver.Op, res *driver.OpResult) (err error) {
	res.KVs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.KV, error) { return scanKV(row, &res.Count) })
	res.More = int64(len(res.KVs)) < res.Count
	return err
}

// previous takes what a put or delete found.
func previous(rows pgx.Rows, o *driver.Op, res *driver.OpResult) error {
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.KV, error) { return scanKV(row) })
	res.Count = int64(len(found))
	if o.Previous {
		res.KVs = found
	}
	return err
}
