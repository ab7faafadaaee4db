package api_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// narrow is a connection of a client that takes 8 KiB of headers, as those of many languages do.
func (r *rig) narrow() *grpc.ClientConn {
	r.t.Helper()
	c, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxHeaderListSize(8<<10))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// A refusal reaches a client that takes few headers, however much holders say of themselves.
func TestRefusal_ManyHolders(t *testing.T) {
	r := serve(t)
	locks := pb.NewRWLockServiceClient(r.narrow())
	name := strings.Repeat("ä", 256)
	for i := range 16 {
		terms := &pb.Terms{Owner: fmt.Sprint(strings.Repeat("ö", 250), i), Metadata: make([]byte, 4<<10)}
		must[*pb.AcquireReadResponse](t)(locks.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: name, Terms: terms}))
	}
	for timeout, code := range map[int64]codes.Code{0: codes.Aborted, 1: codes.DeadlineExceeded} {
		_, err := locks.AcquireWrite(r.ctx, &pb.AcquireWriteRequest{Name: name, Terms: &pb.Terms{TimeoutMs: &timeout}})
		if f := wantCode(t, err, code); !f.NotDone || len(f.Holders) == 0 || f.Holders[0].Owner == "" {
			t.Errorf("a wait of %d ms: %v", timeout, f)
		}
	}
}

// So does one with much to say.
func TestRefusal_LongText(t *testing.T) {
	r := serve(t)
	when := `{"all":[` + strings.TrimSuffix(strings.Repeat(`{"no_such_kind":"x"},`, 1000), ",") + `]}`
	_, err := pb.NewGuardServiceClient(r.narrow()).Evaluate(r.ctx, &pb.GuardEvaluateRequest{Name: "g", When: when})
	if f := wantCode(t, err, codes.InvalidArgument); !f.NotDone || !strings.Contains(f.Cause, "no_such_kind") {
		t.Errorf("%v", f)
	}
}
