package api

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/internal/wire"
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
	h := timely(s.handler(), time.Second)
	f.Add("POST", "/v1/locks/a:acquire", []byte(`{"holder_id":"w","ttl_ms":5000,"timeout_ms":0}`))
	f.Add("POST", "/v1/locks/a:release", []byte(`{"token":3}`))
	f.Add("PUT", "/v1/kv/%2Fa%00", []byte(`{"value_base64":"AA=="}`))
	f.Add("GET", "/v1/keys/?limit=3", []byte(nil))
	f.Add("POST", "/v1/limiters/x:reserve", []byte(`{"key":"k","cost":2,"rate":"5/1s","burst":3,"max_wait_ms":5}`))
	f.Add("GET", "/v1/limiters/x?rate=5/day&offset_minutes=60", []byte(nil))
	f.Add("POST", "/v1/guards/g:evaluate", []byte(`{"when":{"not":{"file_exists":"f"}},"facts":[{"source":"file","name":"f","is":true}]}`))
	f.Add("POST", "/v1/leases/:open", []byte(`{"ttl_ms":-1}`))
	f.Add("POST", "/holdfast.v1.KVService/Txn", []byte(`{"then":[{"put":{"key":"k"}}]}`))
	f.Add("POST", "/holdfast.v1.WatchService/Watch", []byte(`{"prefix":"x","patterns":["kv:*"],"fromRevision":"1"}`))
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
		if strings.HasPrefix(r.URL.EscapedPath(), "/v1/") && r.URL.EscapedPath() != "/v1/watch" && !json.Valid(w.Body.Bytes()) {
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
		out, err := s.rpc.Call(t.Context(), pb.KVService_Txn_FullMethodName, &r, func(ctx context.Context, _ any) (any, error) {
			return gateway.Keys{Gateway: s.gateway}.Txn(ctx, &r)
		})
		if err != nil && wire.HTTPCode(err) == http.StatusInternalServerError {
			t.Errorf("%v: %v", &r, err)
		}
		if err == nil && out.(*pb.TxnResponse).Header == nil {
			t.Errorf("%v: no header", &r)
		}
	})
}

// calls collects the plain calls of all services.
type calls map[string]func(ctx context.Context, body []byte) (any, error)

// RegisterService is of grpc.ServiceRegistrar.
func (c calls) RegisterService(d *grpc.ServiceDesc, impl any) {
	for _, m := range d.Methods {
		c[d.ServiceName+"/"+m.MethodName] = func(ctx context.Context, body []byte) (any, error) {
			return m.Handler(impl, ctx, func(in any) error {
				if proto.Unmarshal(body, in.(proto.Message)) != nil {
					return status.Error(codes.InvalidArgument, "as grpc-go says it")
				}
				return nil
			}, nil)
		}
	}
}

// Whatever bytes come as the request of whatever call, they are answered for a
// reason.
func FuzzProto(f *testing.F) {
	s := node(f)
	all := calls{}
	s.Register(all)
	names := slices.Sorted(maps.Keys(all))
	add := func(method string, m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint(slices.Index(names, "holdfast.v1."+method)), b)
	}
	add("LockService/Lock", &pb.LockRequest{Name: "a", TtlMs: 5000, TimeoutMs: proto.Int64(0)})
	add("LockService/Unlock", &pb.UnlockRequest{Key: "a/7"})
	add("LockService/LeaseGrant", &pb.LeaseGrantRequest{Ttl: 5, Id: 7})
	add("SemaphoreService/Acquire", &pb.SemaphoreAcquireRequest{Name: "s", Weight: proto.Int64(2), Limit: 3, Terms: &pb.Terms{TimeoutMs: proto.Int64(0)}})
	add("CounterService/CompareAndSet", &pb.CounterCompareAndSetRequest{Name: "n"})
	add("LimitService/Allow", &pb.LimitAllowRequest{Name: "x", Key: "k", Rate: &pb.Rate{Count: 5, PerMs: 1000, Algorithm: 1}})
	add("LimitService/Reserve", &pb.LimitReserveRequest{Name: "x", Key: "k", MaxWaitMs: 5, Rate: &pb.Rate{Count: 5, Algorithm: 4, Every: 1}})
	add("LimitService/Settle", &pb.LimitSettleRequest{Name: "x", Key: "k", Reservation: "AQIDBAUGAAAAAA", Cost: proto.Int64(3)})
	add("GuardService/Evaluate", &pb.GuardEvaluateRequest{Name: "g", When: `{"all":[{"lock_free":"a"},{"key":"k"},{"limit_available":"x"}]}`, Facts: []*pb.GuardFact{{Input: &pb.GuardInput{Source: "file", Name: "f"}}}})
	add("KVService/Put", &pb.PutRequest{Key: "k", LeaseId: 7})
	f.Fuzz(func(t *testing.T, i uint, body []byte) {
		name := names[i%uint(len(names))]
		if strings.HasPrefix(name, "holdfast.v1.AdminService/") {
			return // a member too many stops the node for good, as it should
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // bounds waits
		defer cancel()
		_, err := all[name](ctx, body)
		if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
			t.Errorf("%s %x: %v", name, body, err)
		}
	})
}

// Whatever comes over a session stream, the node goes on.
func FuzzStream(f *testing.F) {
	s := node(f)
	id := core.SessionID{7}
	attach := session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: id, Stream: 1})
	frame := core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: []core.Command{
		{Op: core.OpOpen, TTL: 30e9}, {Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "x", Kind: core.Mutex}}},
	}})
	f.Add(attach)
	f.Add(append(attach, session.AppendMessage(nil, &session.Message{Kind: session.KindFrame, Session: id, Stream: 1, Body: frame})...))
	f.Add(append(attach, session.AppendMessage(nil, &session.Message{Kind: session.KindRenewal, Session: id, Stream: 1, Attempt: 2, TTL: 1})...))
	f.Fuzz(func(t *testing.T, data []byte) {
		ended := make(chan struct{})
		st, err := s.node.Stream(t.Context(), func([]byte, func()) {}, func() { close(ended) })
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(data); err != nil {
			t.Fatal(err)
		}
		if err := s.node.Look(t.Context(), func(*core.Machine, int64) {}); err != nil {
			t.Fatalf("%x: the node does not serve any more: %v", data, err)
		}
		st.Close()
		<-ended
	})
}
