package api_test

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

func attachTo(id core.SessionID) []byte {
	return session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: id, Stream: 1})
}

func frameOf(in, id core.SessionID, commands ...core.Command) []byte {
	body := core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: commands})
	return session.AppendMessage(nil, &session.Message{Kind: session.KindFrame, Session: in, Stream: 1, Body: body})
}

// frameAt attaches a session and sends a command on it.
func frameAt(c core.Command) func(core.SessionID) []byte {
	return func(id core.SessionID) []byte { return append(attachTo(id), frameOf(id, id, c)...) }
}

// A session stream that carries nonsense ends, one that asks for what it may not
// is refused, and neither changes anything or harms another stream.
func TestHostileSessionStreams(t *testing.T) {
	r := serve(t)
	r.furnish()
	good := must[grpc.BidiStreamingClient[pb.Batch, pb.Batch]](t)(pb.NewSessionStreamClient(r.conn).Attach(r.ctx))
	id := core.SessionID{1}
	open := core.Command{Op: core.OpOpen, TTL: 30e9}
	ask := func(m []byte) []byte {
		t.Helper()
		if err := good.Send(&pb.Batch{Messages: m}); err != nil {
			t.Fatal(err)
		}
		return must[*pb.Batch](t)(good.Recv()).Messages
	}
	ask(attachTo(id))
	before, sessions := r.dump()
	cases := []struct {
		what string
		m    func(id core.SessionID) []byte
		ends bool // else a refusal comes
	}{
		{"garbage", func(core.SessionID) []byte { return []byte("\xff\x00garbage") }, true},
		{"half a message", func(id core.SessionID) []byte { return attachTo(id)[:5] }, true},
		{"what servers say", func(id core.SessionID) []byte {
			return session.AppendMessage(nil, &session.Message{Kind: session.KindTable, Session: id, Stream: 1, Last: true})
		}, true},
		{"a frame of another", func(id core.SessionID) []byte { return append(attachTo(id), frameOf(id, core.SessionID{99}, open)...) }, true},
		{"a frame that is none", func(id core.SessionID) []byte {
			return append(attachTo(id), session.AppendMessage(nil, &session.Message{Kind: session.KindFrame, Session: id, Stream: 1, Body: []byte("x")})...)
		}, true},
		{"a batch of 17 MiB", func(core.SessionID) []byte { return make([]byte, 17<<20) }, true},
		{"a reserved namespace", frameAt(core.Command{Op: core.OpOpen, TTL: 30e9, Namespace: "holdfast.x"}), false},
		{"too short a life", frameAt(core.Command{Op: core.OpOpen, TTL: 1}), false},
		{"too long a life", frameAt(core.Command{Op: core.OpOpen, TTL: math.MaxInt64}), false},
		{"an owner that is too long", frameAt(core.Command{Op: core.OpOpen, TTL: 30e9, Owner: strings.Repeat("x", 513)}), false},
		{"a frame of 50,000 commands", func(id core.SessionID) []byte {
			return append(attachTo(id), frameOf(id, id, slices.Repeat([]core.Command{open}, 50_000)...)...)
		}, false},
		{"no session", frameAt(core.Command{Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "x", Kind: core.Mutex}}}), false},
	}
	for i, c := range cases {
		bad := must[grpc.BidiStreamingClient[pb.Batch, pb.Batch]](t)(pb.NewSessionStreamClient(r.conn).Attach(r.ctx))
		_ = bad.Send(&pb.Batch{Messages: c.m(core.SessionID{2, byte(i)})}) // it may be cut off while it sends
		answered := false
		for !answered {
			b, err := bad.Recv()
			if err != nil {
				break
			}
			answered = refuses(t, b.Messages)
		}
		if answered == c.ends || r.ctx.Err() != nil {
			t.Errorf("%s: refused %t, want an end %t", c.what, answered, c.ends)
		}
		_ = bad.CloseSend()
		r.unchanged(c.what, before, sessions)
	}
	if m, _, err := session.DecodeMessage(ask(frameOf(id, id, open))); err != nil || m.Kind != session.KindReply {
		t.Errorf("the good stream is answered %+v, %v", m, err)
	}
	_ = good.CloseSend()
	_, _ = good.Recv()
}

// refuses reports whether an answer to the open is a refusal of any form.
func refuses(t *testing.T, messages []byte) (yes bool) {
	for len(messages) > 0 {
		m, rest, err := session.DecodeMessage(messages)
		if err != nil {
			t.Fatal(err)
		}
		switch messages = rest; m.Kind {
		case session.KindRefused:
			yes = true
		case session.KindReply:
			var reply core.Reply
			if err := core.DecodeReply(m.Body, &reply); err != nil {
				t.Fatal(err)
			}
			yes = reply.Results[0].Code != core.CodeOK
		}
	}
	return yes
}

func TestHostileLockStreams(t *testing.T) {
	r := serve(t)
	r.furnish()
	before, sessions := r.dump()
	for id, want := range map[int64]codes.Code{0: codes.InvalidArgument, -1: codes.InvalidArgument, math.MinInt64: codes.InvalidArgument, math.MaxInt64: codes.OK, 5: codes.OK} {
		s := must[grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]](t)(r.locks().LeaseKeepAlive(r.ctx))
		if err := s.Send(&pb.LeaseKeepAliveRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Recv()
		if status.Code(err) != want || got.GetTtl() != 0 {
			t.Errorf("keeping lease %d alive: %v, %v", id, got, err)
		}
		_ = s.CloseSend()
	}
	for want, list := range map[codes.Code][]*pb.LockWatchRequest{
		codes.InvalidArgument:   {{}, {Key: "k", StartRevision: -1}, {Key: "k", StartRevision: math.MinInt64}},
		codes.ResourceExhausted: {{Key: strings.Repeat("k", 70_000)}},
	} {
		for _, q := range list {
			s := must[grpc.BidiStreamingClient[pb.LockWatchRequest, pb.LockWatchResponse]](t)(r.locks().Watch(r.ctx))
			if err := s.Send(q); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if _, err := s.Recv(); status.Code(err) != want {
				t.Errorf("watching %.50v: %v, want %v", q, err, want)
			}
		}
	}
	r.unchanged("a stream of locks", before, sessions)
}

// A change of the membership that makes no sense changes nothing.
func TestHostileMembers(t *testing.T) {
	r := serve(t)
	admin := pb.NewAdminServiceClient(r.conn)
	for _, q := range []*pb.ChangeMembersRequest{
		{}, {Add: []*pb.Member{nil}}, {Add: []*pb.Member{{Id: 7}}}, {Add: []*pb.Member{{PeerAddress: "x:1"}}},
		{Add: []*pb.Member{{Id: 7, PeerAddress: "x:1"}}}, {Promote: []uint64{math.MaxUint64}}, {Remove: []uint64{1}}, {Promote: []uint64{0}},
		{Add: []*pb.Member{{Id: 7, PeerAddress: "0.0.0.0:7421"}}}, {Replace: []*pb.Member{{Id: 1, PeerAddress: "nowhere"}}}, {Update: []*pb.Member{{Id: 1, PeerAddress: "x:1", ClientAddress: ":7420"}}},
		{Add: []*pb.Member{{Id: 7, PeerAddress: strings.Repeat("x", 70_000)}}}, {Add: []*pb.Member{{Id: 1, PeerAddress: "x:1"}}}, {Promote: []uint64{1}},
	} {
		_, err := admin.ChangeMembers(r.ctx, q)
		if code := status.Code(err); code != codes.InvalidArgument && code != codes.ResourceExhausted {
			t.Errorf("%.80v: %v", q, err)
		}
	}
	for _, id := range []uint64{0, 2, math.MaxUint64} {
		_, err := admin.ChangeMembers(r.ctx, &pb.ChangeMembersRequest{Remove: []uint64{id}})
		wantCode(t, err, codes.InvalidArgument)
		_, err = admin.MoveLeader(r.ctx, &pb.MoveLeaderRequest{Id: id})
		wantCode(t, err, codes.InvalidArgument)
	}
	if st := must[*pb.StatusResponse](t)(admin.Status(r.ctx, &pb.StatusRequest{})); len(st.Members) != 1 || !st.Serving {
		t.Errorf("the group is now %v", st)
	}
	r.untouched()
}
