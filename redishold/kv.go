package redishold

import (
	"context"
	"strconv"

	"github.com/holdfast-io/holdfast/driver"
)

// Txn runs a transaction.
func (c *client) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
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
			err = driver.Errorf("", reply[1], driver.ErrExhausted, "conditions, and ranges in another order than that of keys, look at 10,000 keys at most: give longer prefixes, or range in order of key, page by page")
		}
		return nil, err
	}
	in := reader{rest: reply[1:]}
	out := &driver.TxnReply{OK: in.flag(), Revision: in.revision()}
	for n := in.int(); n > 0 && in.err == nil; n-- {
		out.Results = append(out.Results, in.result())
	}
	return out, in.err
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
