package redishold

import (
	"bytes"
	"cmp"
	"context"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

// Txn runs a transaction.
func (c *client) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if n := len(r.If) + len(r.Then) + len(r.Else); n > maxOps {
		return nil, driver.Errorf("", "", fs.ErrInvalid, "%d compares and operations in one transaction: at most %d are allowed", n, maxOps)
	}
	args := []string{strconv.Itoa(len(r.If))}
	for i := range r.If {
		args = append(args, compareArgs(&r.If[i])...)
	}
	for _, ops := range [][]driver.Op{r.Then, r.Else} {
		args = append(args, strconv.Itoa(len(ops)))
		for i := range ops {
			if l := ops[i].Session; l != nil && l.Err() != nil {
				return nil, ended(l)
			}
			args = append(args, opArgs(&ops[i])...)
		}
	}
	reply, err := c.askOnce(ctx, r.ID, "", txnScript, args...)
	if err != nil {
		if len(reply) > 1 && reply[0] == "crowded" {
			err = driver.Errorf("", reply[1], driver.ErrExhausted, "%s", crowded[reply[2]])
		}
		return nil, err
	}
	in := reader{rest: reply[1:]}
	out := &driver.TxnReply{OK: in.flag(), Revision: in.revision()}
	for n := in.int(); n > 0 && in.err == nil; n-- {
		out.Results = append(out.Results, in.result())
	}
	ops := r.Else
	if out.OK {
		ops = r.Then
	}
	for i := range min(len(ops), len(out.Results)) {
		arrange(&ops[i], &out.Results[i])
	}
	return out, in.err
}

// maxOps is how many conditions and operations a transaction has at most, as on a
// server: one script does all of them, while everybody else waits.
const maxOps = 128

// crowded is what to do about a transaction that is too much for one script.
var crowded = map[string]string{
	"looks":   "conditions, and ranges in another order than that of keys, look at 10,000 keys at most, and conditions at 8 MiB of values: give longer prefixes, or range in order of key, page by page",
	"deletes": "a transaction deletes 2,500 keys at most by prefixes, or fewer if it looks at others: give longer prefixes, or use DeleteRange, which deletes page by page",
	"bytes":   "a range in another order than that of keys tells 1 MiB at most, and by value has to read all keys with the prefix for that: give longer prefixes, or range in order of key, page by page",
}

// arrange sorts a range by value, of which the script tells all keys: what it would
// take for that there, everybody else would wait for.
func arrange(o *driver.Op, res *driver.OpResult) {
	if o.Kind != driver.OpGet || !o.Prefix || o.Sort != driver.ByValue {
		return
	}
	slices.SortFunc(res.KVs, func(a, b driver.KV) int {
		if o.Desc {
			a, b = b, a
		}
		return cmp.Or(bytes.Compare(a.Value, b.Value), strings.Compare(a.Key, b.Key))
	})
	if o.Limit > 0 && len(res.KVs) > o.Limit {
		res.KVs, res.More = res.KVs[:o.Limit:o.Limit], true
	}
	if !o.Count {
		res.Count = int64(len(res.KVs))
	}
	for i := range res.KVs {
		if o.KeysOnly {
			res.KVs[i].Value = nil
		}
	}
}

func compareArgs(x *driver.Compare) []string {
	var session string
	if x.Session != (driver.SessionID{}) {
		session = x.Session.String()
	}
	// No revision or version reaches 2⁵³, so that a greater number may as well
	// be that: the server's numbers are exact only so far.
	num := min(x.Num, 1<<53)
	return []string{x.Key, bit(x.Prefix), strconv.Itoa(int(x.Target)), strconv.Itoa(int(x.Is)), strconv.FormatUint(num, 10), string(x.Value), session}
}

func opArgs(x *driver.Op) []string {
	var session string
	if x.Session != nil {
		session = x.Session.ID.String()
	}
	return []string{
		strconv.Itoa(int(x.Kind)), x.Key, bit(x.Prefix), string(x.Value), session, remaining(x.Expire),
		strconv.Itoa(x.Limit), strconv.Itoa(int(x.Sort)), bit(x.Desc), bit(x.KeysOnly), bit(x.Previous),
		x.After, bit(x.Count),
	}
}

func (r *reader) result() driver.OpResult {
	o := driver.OpResult{Count: r.int(), More: r.flag()}
	for n := r.int(); n > 0 && r.err == nil; n-- {
		o.KVs = append(o.KVs, r.kv())
	}
	return o
}
