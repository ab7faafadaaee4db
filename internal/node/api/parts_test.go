package api_test

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// rawBytes sends requests as they are.
type rawBytes struct{}

func (rawBytes) Name() string { return "proto" }

func (rawBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawBytes) Unmarshal(mem.BufferSlice, any) error { return nil }

// raw calls a method with a request that is encoded.
func (r *rig) raw(method string, in []byte) error {
	var out struct{}
	return r.conn.Invoke(r.ctx, method, in, &out, grpc.ForceCodecV2(rawBytes{}))
}

// took is how many bytes the process allocates while f runs, for each byte of a request.
func took(f func(), request int) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / request
}

// Requests that are made of as many small parts as they have room for are refused before they are decoded, in
// every dialect. A transaction of 16 MiB, which is refused for its length, took more than a GiB.
func TestRequestsOfManyParts(t *testing.T) {
	r := serve(t)
	then := "\x12\x00" // an empty operation
	for size, want := range map[int]codes.Code{15 << 20: codes.ResourceExhausted, 64_000: codes.InvalidArgument} {
		in := []byte(strings.Repeat(then, size/2))
		var err error
		if n := took(func() { err = r.raw(pb.KVService_Txn_FullMethodName, in) }, max(size, 1<<20)); status.Code(err) != want || n > 16 {
			t.Errorf("a transaction of %d bytes took %d for each: %v", size, n, err)
		}
	}
	many := strings.Repeat(`{},`, 20_000) + "{}"
	for path, body := range map[string]string{
		"/holdfast.v1.KVService/Txn": `{"then":[` + many + `]}`, "/v1/guards/g:evaluate": `{"when":{"lock_free":"main"},"facts":[` + many + `]}`,
		"/holdfast.v1.WatchService/Watch": `{"patterns":[` + many + `]}`,
	} {
		if n := took(func() { r.want(400, "POST", path, body, "Content-Type", "application/json") }, 1<<20); n > 8 {
			t.Errorf("%s took %d MiB", path, n)
		}
	}
	r.untouched()
}

// A client that asks for more at once than is taken is told so, and its stream goes on.
func TestFrameOfManyParts(t *testing.T) {
	r := serve(t)
	s := must[grpc.BidiStreamingClient[pb.Batch, pb.Batch]](t)(pb.NewSessionStreamClient(r.conn).Attach(r.ctx))
	id := core.SessionID{7}
	ask := func(m []byte) session.Message {
		t.Helper()
		if err := s.Send(&pb.Batch{Messages: m}); err != nil {
			t.Fatal(err)
		}
		got, _, err := session.DecodeMessage(must[*pb.Batch](t)(s.Recv()).Messages)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	ask(attachTo(id))
	open, ops := core.Command{Op: core.OpOpen, TTL: 30e9}, core.Command{Op: core.OpTxn, Seq: 1, Then: make([]core.KeyOp, 5000)}
	if m := ask(frameOf(id, id, open, ops)); m.Kind != session.KindRefused || m.Refusal != session.RefusedDenied || m.Code != core.CodeInvalid || m.Attempt != 1 || !strings.Contains(m.Text, "at most 4096") {
		t.Errorf("it is answered %+v", m)
	}
	if m := ask(frameOf(id, id, open)); m.Kind != session.KindReply {
		t.Errorf("then it is answered %+v", m)
	}
	_ = s.CloseSend()
	_, _ = s.Recv()
}
