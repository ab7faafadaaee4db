package api_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Whoever sees the session of a lease in an inspection cannot attach it to a
// stream and end what hangs on it, neither in one batch nor once it was refused.
func TestStreamCannotTakeALease(t *testing.T) {
	r := serve(t)
	must[*pb.LeaseGrantResponse](t)(r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 30, Id: 77}))
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 77}))
	seen := must[*pb.InspectResponse](t)(pb.NewInspectServiceClient(r.conn).Inspect(r.ctx, &pb.InspectRequest{Name: "x"}))
	id := core.SessionID(seen.GetResource().GetHolders()[0].GetSession())

	s := must[pb.SessionStream_AttachClient](t)(pb.NewSessionStreamClient(r.conn).Attach(r.ctx))
	attach := session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: id, Stream: 1 << 60})
	end := session.AppendMessage(nil, &session.Message{Kind: session.KindFrame, Session: id, Stream: 1 << 60,
		Body: core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: []core.Command{{Op: core.OpEnd}}})})
	for _, batch := range [][]byte{append(attach[:len(attach):len(attach)], end...), attach} {
		if err := s.Send(&pb.Batch{Messages: batch}); err != nil {
			t.Fatal(err)
		}
		m, rest, err := session.DecodeMessage(must[*pb.Batch](t)(s.Recv()).GetMessages())
		if err != nil || len(rest) > 0 || m.Kind != session.KindRefused || m.Refusal != session.RefusedDenied || m.Code != core.CodePermission {
			t.Errorf("the attach was answered by %+v and %d bytes, %v", m, len(rest), err)
		}
	}
	r.holders("x", 1)
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 77}))
}
