package api_test

import (
	"bytes"
	"fmt"
	"testing"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// TestManyLargeResults: calls whose results together are more than a session may
// leave unacknowledged are all answered.
func TestManyLargeResults(t *testing.T) {
	r := serve(t)
	kv := pb.NewKVServiceClient(r.conn)
	for i := range 16 {
		must[*pb.PutResponse](t)(kv.Put(r.ctx, &pb.PutRequest{Key: fmt.Sprint("p/", i), Value: bytes.Repeat([]byte("v"), 60_000)}))
	}
	answers := make(chan error)
	for i := range 64 {
		go func() {
			res, err := kv.Txn(r.ctx, &pb.TxnRequest{Then: []*pb.Op{
				{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: fmt.Sprint("q/", i)}}},
				{Op: &pb.Op_Range{Range: &pb.RangeRequest{Prefix: "p/"}}},
			}})
			if err == nil && len(res.Results[1].Kvs) != 16 {
				err = fmt.Errorf("call %d: %d keys", i, len(res.Results[1].Kvs))
			}
			answers <- err
		}()
	}
	for range 64 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}
