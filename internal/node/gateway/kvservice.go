package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Keys is pb.KVService.
type Keys struct {
	*Gateway
}

// maxOps is how many compares and operations one transaction may have.
const maxOps = 128

func (s Keys) Get(ctx context.Context, r *pb.GetRequest) (*pb.GetResponse, error) {
	res, revision, err := s.txn(ctx, "get", r.Key, &pb.TxnRequest{Then: []*pb.Op{{Op: &pb.Op_Get{Get: r}}}})
	if err != nil {
		return nil, err
	}
	out := &pb.GetResponse{Header: s.Header(ctx, revision)}
	if kvs := res.Results[0].Kvs; len(kvs) > 0 {
		out.Kv = kvs[0]
	}
	return out, nil
}

func (s Keys) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	res, revision, err := s.txn(ctx, "range", r.Prefix, &pb.TxnRequest{Then: []*pb.Op{{Op: &pb.Op_Range{Range: r}}}})
	if err != nil {
		return nil, err
	}
	x := res.Results[0]
	out := &pb.RangeResponse{Header: s.Header(ctx, revision), Kvs: x.Kvs, More: x.More, Count: x.Count}
	if x.More && r.Sort == pb.SortBy_SORT_BY_KEY {
		out.Next = x.Kvs[len(x.Kvs)-1].Key // the first key of a page always fits
	}
	return out, nil
}

func (s Keys) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	t := &pb.TxnRequest{If: expect(r.Key, r.ExpectRevision), Then: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{
		Key: r.Key, Value: r.Value, LeaseId: r.LeaseId, ExpireMs: r.ExpireMs, PrevKv: r.PrevKv,
	}}}}}
	res, revision, err := s.txn(ctx, "put", r.Key, t)
	if err == nil && !res.Succeeded {
		err = differs("put", r.Key, *r.ExpectRevision)
	}
	if err != nil {
		return nil, err
	}
	out := &pb.PutResponse{Header: s.Header(ctx, revision)}
	if kvs := res.Results[0].Kvs; len(kvs) > 0 {
		out.PrevKv = kvs[0]
	}
	return out, nil
}

// expect is the condition of a write that a caller has for it.
func expect(key string, revision *uint64) []*pb.Compare {
	if revision == nil {
		return nil
	}
	return []*pb.Compare{{Key: key, Number: *revision}}
}

func NotExist(key string) error {
	return driver.Errorf("", key, fs.ErrNotExist, "there is no such key")
}

func differs(op, key string, revision uint64) error {
	return driver.Errorf(op, key, driver.ErrConflict, "its mod_revision is not %d: read it anew and decide", revision)
}

func (s Keys) Delete(ctx context.Context, r *pb.KVDeleteRequest) (*pb.KVDeleteResponse, error) {
	if r.Prefix && r.ExpectRevision != nil {
		return nil, Named(Invalid("", "a revision can be expected of one key only, not of a prefix"), "delete", r.Key)
	}
	if r.Prefix && !r.PrevKv && callerOf(ctx).key == "" {
		return s.deletePrefix(ctx, r.Key)
	}
	t := &pb.TxnRequest{If: expect(r.Key, r.ExpectRevision), Then: []*pb.Op{{Op: &pb.Op_Delete{Delete: &pb.KVDeleteRequest{
		Key: r.Key, Prefix: r.Prefix, PrevKv: r.PrevKv,
	}}}}}
	res, revision, err := s.txn(ctx, "delete", r.Key, t)
	if err == nil && !res.Succeeded {
		err = differs("delete", r.Key, *r.ExpectRevision)
	}
	if err != nil {
		return nil, err
	}
	x := res.Results[0]
	return &pb.KVDeleteResponse{Header: s.Header(ctx, revision), Deleted: x.Count, PrevKvs: x.Kvs}, nil
}

// deletePage is how many keys one command of a prefix that is deleted page by page
// deletes: few enough that nobody else's calls are held up.
const deletePage = 1000

// deletePrefix deletes all keys with a prefix, page by page. What was deleted before
// an error stays so.
func (s Keys) deletePrefix(ctx context.Context, prefix string) (*pb.KVDeleteResponse, error) {
	if err := CheckName(prefix); err != nil {
		return nil, Named(err, "delete", prefix)
	}
	page := core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyDelete, Key: prefix, Prefix: true, Limit: deletePage}}}
	for deleted := int64(0); ; {
		res, _, err := s.do(ctx, page)
		if err != nil {
			return nil, Named(afterPages(deleted, err), "delete", prefix)
		}
		deleted += int64(res.Keys[0].Count)
		if !res.Keys[0].More {
			return &pb.KVDeleteResponse{Header: s.Header(ctx, res.Revision), Deleted: deleted}, nil
		}
	}
}

// afterPages is the error of a page after others that were done.
func afterPages(deleted int64, err error) error {
	if deleted == 0 {
		return err
	}
	kind := error(nil)
	if e, ok := errors.AsType[*driver.Error](err); ok {
		kind = e.Kind
	}
	return &driver.Error{Kind: kind, Err: fmt.Errorf("%d keys were deleted before this, and stay so: ask again for the rest: %w", deleted, err)}
}

func (s Keys) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	res, revision, err := s.txn(ctx, "transaction", "", r)
	if err != nil {
		return nil, err
	}
	res.Header = s.Header(ctx, revision)
	return res, nil
}

// txn runs a transaction; one that only reads goes through no log.
func (g *Gateway) txn(ctx context.Context, op, name string, r *pb.TxnRequest) (*pb.TxnResponse, uint64, error) {
	c, writes, err := transaction(callerOf(ctx).namespace, r)
	if err != nil {
		return nil, 0, Named(err, op, name)
	}
	run := g.read
	if writes {
		run = g.do
	}
	res, now, err := run(ctx, c)
	if err != nil {
		return nil, 0, Named(err, op, name)
	}
	out := &pb.TxnResponse{Succeeded: res.OK}
	for i := range res.Keys {
		out.Results = append(out.Results, keyResult(now, &res.Keys[i]))
	}
	return out, res.Revision, nil
}

func keyResult(now int64, k *core.KeyResult) *pb.OpResult {
	r := &pb.OpResult{Count: int64(k.Count), More: k.More}
	for i := range k.Keys {
		r.Kvs = append(r.Kvs, keyValue(now, &k.Keys[i]))
	}
	return r
}

func keyValue(now int64, k *core.Key) *pb.KeyValue {
	kv := &pb.KeyValue{
		Key: k.Name, Value: k.Value, CreateRevision: k.Created, ModRevision: k.Modified, Version: k.Version,
		ExpiresInMs: convert.Left(now, k.Deadline).Milliseconds(),
	}
	if k.Session != (core.SessionID{}) {
		kv.Session = k.Session[:]
	}
	return kv
}

// transaction checks a transaction and turns it into a command.
func transaction(ns string, r *pb.TxnRequest) (c core.Command, writes bool, err error) {
	if n := len(r.If) + len(r.Then) + len(r.Else); n == 0 || n > maxOps {
		return c, false, Invalid("", "%d compares and operations in one transaction: give 1 to %d", n, maxOps)
	}
	c.Op = core.OpTxn
	for _, x := range r.If {
		cmp, err := compareOf(ns, x)
		if err != nil {
			return c, false, err
		}
		c.If = append(c.If, cmp)
	}
	then, w1, err1 := keyOps(ns, r.Then)
	els, w2, err2 := keyOps(ns, r.Else)
	c.Then, c.Else = then, els
	return c, w1 || w2, errors.Join(err1, err2)
}

func compareOf(ns string, x *pb.Compare) (core.Compare, error) {
	if x.Key == "" && x.Prefix {
		return core.Compare{}, Invalid("", "a compare of every key: give a prefix")
	}
	if err := CheckName(x.Key); err != nil {
		return core.Compare{}, err
	}
	if x.Target < 0 || x.Target > pb.Compare_TARGET_LEASE || x.Relation < 0 || x.Relation > pb.Compare_RELATION_GREATER {
		return core.Compare{}, Invalid(x.Key, "a compare has an unknown target or relation")
	}
	c := core.Compare{
		Key: x.Key, Prefix: x.Prefix, Target: core.CompareTarget(x.Target), Is: core.Relation(x.Relation), Num: x.Number, Value: x.Value,
	}
	if x.LeaseId != 0 {
		c.Session = sessionOf(ns, x.LeaseId)
	}
	return c, nil
}

func keyOps(ns string, ops []*pb.Op) (list []core.KeyOp, writes bool, err error) {
	for _, o := range ops {
		k, err := keyOp(ns, o)
		if err != nil {
			return nil, false, err
		}
		writes = writes || k.Kind != core.KeyGet
		list = append(list, k)
	}
	return list, writes, nil
}

func keyOp(ns string, o *pb.Op) (core.KeyOp, error) {
	switch x := o.GetOp().(type) {
	case *pb.Op_Get:
		return core.KeyOp{Kind: core.KeyGet, Key: x.Get.GetKey()}, CheckName(x.Get.GetKey())
	case *pb.Op_Range:
		return rangeOp(x.Range)
	case *pb.Op_Put:
		return putOp(ns, x.Put)
	case *pb.Op_Delete:
		return deleteOp(x.Delete)
	}
	return core.KeyOp{}, Invalid("", "an operation says nothing: give get, range, put or delete")
}

func rangeOp(r *pb.RangeRequest) (core.KeyOp, error) {
	k := core.KeyOp{Kind: core.KeyGet, Key: r.GetPrefix(), Prefix: true, Limit: uint64(r.GetLimit()), Sort: core.SortBy(r.GetSort()), Desc: r.GetDescending(), KeysOnly: r.GetKeysOnly(), After: r.GetAfter(), Count: r.GetCount()}
	if err := CheckLimit(r.GetLimit()); err != nil {
		return k, err
	}
	switch {
	case r.GetSort() < 0 || r.GetSort() > pb.SortBy_SORT_BY_VALUE:
		return k, Invalid(k.Key, "order %d is unknown", r.GetSort())
	case k.Key == "":
		return k, nil
	}
	return k, CheckName(k.Key)
}

func putOp(ns string, r *pb.PutRequest) (core.KeyOp, error) {
	expire, err := CheckSpan("an expire_ms", r.GetExpireMs(), 100*365*MaxTTL)
	k := core.KeyOp{Kind: core.KeyPut, Key: r.GetKey(), Value: r.GetValue(), Expire: int64(expire), Previous: r.GetPrevKv()}
	switch {
	case err != nil:
		return k, err
	case r.ExpectRevision != nil:
		return k, Invalid(k.Key, "in a transaction write the condition as a compare")
	case ofHold(r.GetLeaseId()) || r.GetLeaseId() < 0:
		return k, Invalid(k.Key, "lease %d belongs to a hold, or is negative: grant one", r.GetLeaseId())
	case r.GetLeaseId() != 0:
		k.Session = sessionOf(ns, r.GetLeaseId())
	}
	return k, CheckName(k.Key)
}

func deleteOp(r *pb.KVDeleteRequest) (core.KeyOp, error) {
	k := core.KeyOp{Kind: core.KeyDelete, Key: r.GetKey(), Prefix: r.GetPrefix(), Previous: r.GetPrevKv()}
	if r.ExpectRevision != nil {
		return k, Invalid(k.Key, "in a transaction write the condition as a compare")
	}
	return k, CheckName(k.Key)
}
