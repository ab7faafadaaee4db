package rpc

import (
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// A call over HTTP with an idempotency key may happen twice if it may over gRPC, which depends on whether its
// request names a lease.
func TestKeyedCallsOverHTTP(t *testing.T) {
	own, named := &pb.LockRequest{Name: "x"}, &pb.LockRequest{Name: "x", LeaseId: 4}
	encoded := func(m proto.Message) string {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const lock, share = pb.LockService_Lock_FullMethodName, pb.SemaphoreService_Acquire_FullMethodName
	for _, c := range []struct {
		path, content, body, key string
		twice                    bool
	}{
		{lock, "application/json", `{"name":"x"}`, "k", true},
		{lock, "application/json; charset=utf-8", `{"name":"x"}`, "k", true},
		{lock, "application/json", `{"name":"x"}`, "", false},
		{lock, "application/json", `{"name":"x","leaseId":"4"}`, "k", false},
		{lock, "application/json", `{"name":"x","lease_id":4}`, "k", false},
		{lock, "application/json", `{"name":"x",`, "k", false},
		{share, "application/json", `{"name":"x"}`, "k", true},
		{share, "application/json", `{"name":"x","terms":{"leaseId":"4"}}`, "k", false},
		{lock, "application/proto", encoded(own), "k", true},
		{lock, "application/proto", encoded(named), "k", false},
		{lock, "application/grpc-web+proto", "\x00\x00\x00\x00\x03" + encoded(own), "k", true},
		{lock, "application/grpc-web+proto", "\x01\x00\x00\x00\x03" + encoded(own), "k", false},
		{lock, "application/grpc-web", "\x00\x00", "k", false},
		{lock, "text/plain", `{"name":"x"}`, "k", false},
		{"/holdfast.v1.LockService/Explode", "application/json", `{}`, "k", false},
		{"/holdfast.v1.LockService", "application/json", `{}`, "k", false},
		{pb.CounterService_Add_FullMethodName, "application/json", `{"name":"x"}`, "k", true},
	} {
		r := &http.Request{Header: http.Header{}}
		r.Header.Set("Content-Type", c.content)
		if c.key != "" {
			r.Header.Set(gateway.HeaderKey, c.key)
		}
		if call := gateway.CallOf(c.path, keyed(r, c.path, []byte(c.body)), r.Header.Values, nil); call.Twice != c.twice {
			t.Errorf("%s %s %q with key %q: %t", c.path, c.content, c.body, c.key, call.Twice)
		}
	}
	r := &http.Request{Header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}, "Idempotency-Key": {"k"}}}
	if keyed(r, lock, []byte(`{"name":"x"}`)) != nil {
		t.Error("a compressed request was read as one that is not")
	}
}
