package api_test

import (
	"fmt"
	"testing"
	"time"

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

// A session with thousands of holds attaches again: its claim table comes whole, in
// pages, also to a client that takes its time.
func TestAttachWithManyHolds(t *testing.T) {
	const holds, each = 50_000, 1000
	r := serve(t)
	id := core.SessionID{7}
	r.hold(id, holds, each)
	s := must[pb.SessionStream_AttachClient](t)(pb.NewSessionStreamClient(r.conn).Attach(r.ctx))
	began := time.Now()
	if err := s.Send(&pb.Batch{Messages: session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: id, Stream: 1})}); err != nil {
		t.Fatal(err)
	}
	rows, bytes := 0, 0
	for last := false; !last; {
		data := must[*pb.Batch](t)(s.Recv()).GetMessages()
		for bytes += len(data); len(data) > 0; {
			m, rest, err := session.DecodeMessage(data)
			if err != nil || m.Kind != session.KindTable {
				t.Fatalf("%+v, %v", m, err)
			}
			rows, last, data = rows+len(m.Rows), m.Last, rest
		}
	}
	if rows != holds {
		t.Errorf("the table has %d rows, want %d", rows, holds)
	}
	t.Logf("proof: a table of %d rows, %d bytes, in %s", rows, bytes, time.Since(began))
}

// hold opens a session and takes locks for it, some in each frame.
func (r *rig) hold(id core.SessionID, holds, each int) {
	r.t.Helper()
	for seq := uint64(1); seq <= uint64(holds); {
		f := core.Frame{Session: id, Mark: seq}
		if seq == 1 {
			f.Commands = append(f.Commands, core.Command{Op: core.OpOpen, TTL: int64(time.Hour), Window: uint64(each)})
		}
		for range each {
			f.Commands = append(f.Commands, core.Command{Op: core.OpAcquire, Seq: seq, Wants: []core.Want{{Name: fmt.Sprint("x", seq), Kind: core.Mutex}}})
			seq++
		}
		reply, err := r.node.Submit(r.ctx, &f)
		if last := len(reply.Results) - 1; err != nil || last < 0 || reply.Results[last].Code != core.CodeOK {
			r.t.Fatalf("%d: %+v, %v", seq, reply.Results[max(last, 0):], err)
		}
	}
}
