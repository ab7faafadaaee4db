package pghold

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

const kvColumns = `x.key, x.value, x.created, x.modified, x.version, x.lease,
  (extract(epoch from x.expires - clock_timestamp()) * 1000000)::bigint`

// scanKV reads kvColumns.
func scanKV(row pgx.CollectableRow, more ...any) (driver.KV, error) {
	var k driver.KV
	var created, modified, version int64
	var session *[16]byte
	var left *int64
	err := row.Scan(append([]any{&k.Key, &k.Value, &created, &modified, &version, &session, &left}, more...)...)
	k.Created, k.Modified, k.Version = driver.Revision(created), driver.Revision(modified), uint64(version)
	if session != nil {
		k.Session = *session
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
		if o.Session != nil && o.Session.Err() != nil {
			return nil, ended(o.Session)
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
	// writes: the branch that runs does.
	writes bool
}

// run does the branch that the conditions chose.
func (t *txn) run(ctx context.Context) (*driver.TxnReply, error) {
	reply := &driver.TxnReply{OK: !slices.Contains(t.oks, false), Revision: driver.Revision(t.rev)}
	ops := t.r.Then
	if !reply.OK {
		ops = t.r.Else
	}
	if t.writes = writes(ops); t.writes {
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
	b.Queue(rev).QueryRow(func(row pgx.Row) error { return scanRevision(row, &t.rev) })
	for i := range t.r.If {
		cond := &t.r.If[i]
		sql := fmt.Sprintf("select %s from holdfast.kv x where %s and holdfast_v10.fresh(x) limit %d", kvColumns, about(cond.Prefix), maxKeys+1)
		b.Queue(sql, keysOf(cond.Key, cond.Prefix)...).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.KV, error) { return scanKV(row) })
			if err == nil && len(found) > maxKeys {
				err = driver.Errorf("", cond.Key, driver.ErrExhausted, "the condition looks at more than %d keys: give a longer prefix", maxKeys)
			}
			t.oks = append(t.oks, holds(cond, found))
			return err
		})
	}
	return t.conn.SendBatch(ctx, b).Close()
}

// maxKeys is how many keys one operation looks at or tells, and maxBytes about how
// many bytes it tells.
const (
	maxKeys  = 10_000
	maxBytes = 1 << 20
)

// about is the SQL for one key, or for all that begin with it, which are those from
// it up to the next text that does not; either can use the index.
func about(prefix bool) string {
	if prefix {
		return "x.key >= $1 and x.key < $2"
	}
	return "x.key = $1"
}

// keysOf are the arguments of about.
func keysOf(key string, prefix bool) []any {
	if !prefix {
		return []any{key}
	}
	return []any{key, behind(key)}
}

// behind is the least text behind all that begin with prefix, or one behind all
// keys. Texts are in the order of their code points.
func behind(prefix string) string {
	for prefix != "" {
		r, n := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-n]
		switch {
		case r == 0xd7ff: // what follows is no character
			return prefix + "\ue000"
		case r < utf8.MaxRune:
			return prefix + string(r+1)
		}
	}
	return strings.Repeat(string(utf8.MaxRune), 129) // no key is so long
}

// holds evaluates a condition on the keys that it is about.
func holds(c *driver.Compare, found []driver.KV) bool {
	if len(found) == 0 {
		return c.Target != driver.CompareValue && c.Target != driver.CompareSession && relates(c.Is, cmp.Compare(0, c.Num))
	}
	return !slices.ContainsFunc(found, func(k driver.KV) bool { return !relates(c.Is, order(c, &k)) })
}

// order is how a key compares to the condition's operand.
func order(c *driver.Compare, k *driver.KV) int {
	switch c.Target {
	case driver.CompareMod:
		return cmp.Compare(uint64(k.Modified), c.Num)
	case driver.CompareCreate:
		return cmp.Compare(uint64(k.Created), c.Num)
	case driver.CompareVersion:
		return cmp.Compare(k.Version, c.Num)
	case driver.CompareValue:
		return bytes.Compare(k.Value, c.Value)
	}
	return bytes.Compare(k.Session[:], c.Session[:])
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
	if t.writes {
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
		var session any
		if o.Session != nil {
			session = uuid(o.Session.ID)
		}
		var ms any
		if o.Expire > 0 {
			ms = max(o.Expire.Milliseconds(), 1)
		}
		b.Queue("select "+kvColumns+" from holdfast_v10.kv_put($1, $2, $3::text::uuid, $4, $5) x", o.Key, orEmpty(o.Value), session, ms, i<<16).
			Query(func(rows pgx.Rows) error { return previous(rows, o, res) })
	case driver.OpDelete:
		t.queueDelete(b, o, i, res)
	default:
		t.queueGet(b, o, res)
	}
}

// queueDelete adds a delete: of one key, or of keys with a prefix, no more than its limit says.
func (t *txn) queueDelete(b *pgx.Batch, o *driver.Op, i int, res *driver.OpResult) {
	var til, most any
	if o.Prefix {
		til = behind(o.Key)
	}
	if o.Limit > 0 {
		most = o.Limit
	}
	b.Queue("select "+kvColumns+" from holdfast_v10.kv_drop($1, $2, $3, $4) x order by x.key", o.Key, til, most, i<<16).
		Query(func(rows pgx.Rows) error { return previous(rows, o, res) })
	if o.Prefix && o.Limit > 0 {
		b.Queue("select exists (select from holdfast.kv x where "+about(true)+")", keysOf(o.Key, true)...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&res.More) })
	}
}

// queueGet adds a read. A transaction that writes is on its way to its end with it,
// so that nothing in it is refused any more: there only ranges in order of key are
// bounded, which can be cut.
func (t *txn) queueGet(b *pgx.Batch, o *driver.Op, res *driver.OpResult) {
	if !o.Prefix {
		b.Queue("select "+kvColumns+" from holdfast.kv x where x.key = $1 and holdfast_v10.fresh(x)", o.Key).Query(func(rows pgx.Rows) error {
			return t.collectOne(rows, o, res)
		})
		return
	}
	most, size := o.Limit, maxBytes
	switch {
	case o.Sort != driver.ByKey && t.writes:
		size = math.MaxInt
	case most == 0 || most > maxKeys && o.Sort == driver.ByKey:
		most = maxKeys
	}
	args := append(keysOf(o.Key, true), o.KeysOnly, size)
	if o.After != "" {
		args = append(args, o.After)
	}
	b.Queue(rangeSQL(o, most), args...).Query(func(rows pgx.Rows) error { return t.collect(rows, o, res) })
	if o.Count {
		b.Queue("select count(*) from holdfast.kv x where "+about(true)+" and holdfast_v10.fresh(x)", keysOf(o.Key, true)...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&res.Count) })
	}
}

func orEmpty(v []byte) []byte {
	if v == nil {
		return []byte{}
	}
	return v
}

// collectOne takes what a get found.
func (t *txn) collectOne(rows pgx.Rows, o *driver.Op, res *driver.OpResult) (err error) {
	res.KVs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.KV, error) { return scanKV(row) })
	res.Count = int64(len(res.KVs))
	for i := range res.KVs {
		if o.KeysOnly {
			res.KVs[i].Value = nil
		}
	}
	return err
}

// rangeSQL reads at most so many keys in an order, and of them those that fit, but
// always the first; with how many there were, one too many if there are more.
func rangeSQL(o *driver.Op, most int) string {
	down, behind := "", ">"
	if o.Desc {
		down, behind = " desc", "<"
	}
	where := about(true) + " and holdfast_v10.fresh(x)"
	if o.After != "" {
		where += " and x.key " + behind + " $5"
	}
	limit := ""
	if most > 0 {
		limit = fmt.Sprintf(" limit %d", most+1)
	}
	order := fmt.Sprintf("order by %s%s, x.key%s", sorts[o.Sort], down, down)
	return fmt.Sprintf(`select x.key, case when $3 then '' else x.value end, x.created, x.modified, x.version, x.lease,
  (extract(epoch from x.expires - clock_timestamp()) * 1000000)::bigint, x.found
from (select x.*, row_number() over (%[1]s) as nth, count(*) over () as found,
    sum(octet_length(x.key) + 64 + case when $3 then 0 else octet_length(x.value) end) over (%[1]s) as size
  from (select * from holdfast.kv x where %[2]s %[1]s%[3]s) x) x
where (x.size <= $4 or x.nth = 1) and (%[4]d = 0 or x.nth <= %[4]d) %[1]s`, order, where, limit, most)
}

// collect takes what a range found.
func (t *txn) collect(rows pgx.Rows, o *driver.Op, res *driver.OpResult) (err error) {
	found := int64(0)
	res.KVs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.KV, error) { return scanKV(row, &found) })
	res.Count = int64(len(res.KVs))
	res.More = res.Count < found
	if whole := o.Limit > 0 && int(res.Count) == o.Limit; err == nil && res.More && o.Sort != driver.ByKey && !whole {
		return driver.Errorf("", o.Key, driver.ErrExhausted, "a range in another order than that of keys tells more than %d keys or %d bytes: range in order of key, page by page, or give a longer prefix, a lower limit, or leave the values out", maxKeys, maxBytes)
	}
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
