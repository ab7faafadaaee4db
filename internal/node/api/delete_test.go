package api_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/api"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// A prefix of more keys than one transaction deletes is deleted by the call that is
// only that, and by none that would have to do it at once.
func TestDeleteOfALongPrefix(t *testing.T) {
	const n = 10_050
	r := limited(t, server.Limits{}, api.Config{})
	kv := pb.NewKVServiceClient(r.conn)
	for from := 0; from < n; {
		var txn pb.TxnRequest
		for ; from < n && len(txn.Then) < 128; from++ {
			txn.Then = append(txn.Then, &pb.Op{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: fmt.Sprintf("p/%06d", from)}}})
		}
		must[*pb.TxnResponse](t)(kv.Txn(r.ctx, &txn))
	}
	prefix := &pb.KVDeleteRequest{Key: "p/", Prefix: true}
	_, err := kv.Txn(r.ctx, &pb.TxnRequest{Then: []*pb.Op{{Op: &pb.Op_Delete{Delete: prefix}}}})
	exhausted(t, err, "page by page")
	_, err = kv.Delete(r.as("idempotency-key", "k"), prefix)
	exhausted(t, err, "page by page")
	_, err = kv.Delete(r.ctx, &pb.KVDeleteRequest{Key: "p/", Prefix: true, PrevKv: true})
	exhausted(t, err, "page by page")
	if d := must[*pb.KVDeleteResponse](t)(kv.Delete(r.ctx, prefix)); d.Deleted != n {
		t.Errorf("%d keys were deleted of %d", d.Deleted, n)
	}
	if left := must[*pb.RangeResponse](t)(kv.Range(r.ctx, &pb.RangeRequest{Prefix: "p/"})); len(left.Kvs) != 0 {
		t.Errorf("%d keys are left", len(left.Kvs))
	}
}
