package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// node is one for all inputs of a fuzz test.
func node(f *testing.F) *Service {
	n, err := server.New(server.Config{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	s := New(n)
	f.Cleanup(func() {
		s.Close()
		n.Close()
	})
	return s
}

// Whatever comes over HTTP is answered with a status that says whose fault it is,
// and with JSON on the short paths.
func FuzzHTTP(f *testing.F) {
	s := node(f)
	h := s.handler(time.Second)
	f.Add("POST", "/v1/locks/a:acquire", []byte(`{"holder_id":"w","ttl_ms":5000,"timeout_ms":0}`))
	f.Add("POST", "/v1/locks/a:release", []byte(`{"token":3}`))
	f.Add("PUT", "/v1/kv/%2Fa%00", []byte(`{"value_base64":"AA=="}`))
	f.Add("GET", "/v1/keys/?limit=3", []byte(nil))
	f.Add("POST", "/v1/leases/:open", []byte(`{"ttl_ms":-1}`))
	f.Add("POST", "/holdfast.v1.KVService/Txn", []byte(`{"then":[{"put":{"key":"k"}}]}`))
	f.Add("POST", "/holdfast.v1.LockService/TryLock", []byte(`{"name":"x","ttlMs":"1e9"}`))
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		r, err := http.NewRequest(method, "http://localhost"+path, bytes.NewReader(body))
		if err != nil || len(path) == 0 || path[0] != '/' {
			return // not to be said in HTTP
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // bounds waits
		defer cancel()
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
		if (restHandler{s}).serves(r) && r.URL.EscapedPath() != "/v1/watch" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s %q: no JSON: %s", method, path, body, w.Body)
		}
	})
}

// Whatever a transaction says, it is done or refused for a reason.
func FuzzTxn(f *testing.F) {
	s := node(f)
	add := func(r *pb.TxnRequest) {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(&pb.TxnRequest{Then: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: "k", Value: []byte("v"), LeaseId: 7}}}}})
	add(&pb.TxnRequest{If: []*pb.Compare{{Key: "k", Target: pb.Compare_TARGET_LEASE, Relation: pb.Compare_RELATION_LESS}}, Else: []*pb.Op{{}}})
	add(&pb.TxnRequest{Then: []*pb.Op{{Op: &pb.Op_Range{Range: &pb.RangeRequest{Limit: -1, Sort: 99}}}}})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r pb.TxnRequest
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		out, err := s.plain.checked(t.Context(), &r, func(ctx context.Context, _ any) (any, error) { return kvService{gateway: s.plain}.Txn(ctx, &r) })
		if st := s.plain.status(t.Context(), err); err != nil && httpCode(st) == http.StatusInternalServerError {
			t.Errorf("%v: %v", &r, err)
		}
		if err == nil && out.(*pb.TxnResponse).Header == nil {
			t.Errorf("%v: no header", &r)
		}
	})
}
