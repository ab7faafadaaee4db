package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// Submit runs the commands of one frame, once, and waits for the answer. It is
// for callers that keep their sessions by hand; only the leader can do it. An
// error with another outcome than NotDone leaves open whether it happened.
func (s *Server) Submit(ctx context.Context, f *core.Frame) (core.Reply, error) {
	frame := core.AppendFrame(nil, f)
	data, err := s.call(ctx, func(now int64, id replica.Caller) { s.loop.node.Submit(now, id, frame) })
	if err != nil {
		return core.Reply{}, err
	}
	var r core.Reply
	return r, core.DecodeReply(data, &r)
}

// Renew renews a session by hand. Its Deadline is 0 if there is no such session
// (any more).
func (s *Server) Renew(ctx context.Context, id core.SessionID, ttl time.Duration) (core.Renewed, error) {
	n := core.Renewal{Session: id, TTL: int64(ttl)}
	data, err := s.call(ctx, func(now int64, c replica.Caller) { s.loop.node.Renew(now, c, n) })
	if err != nil {
		return core.Renewed{}, err
	}
	var r core.Renewed
	return r, core.DecodeRenewed(data, &r)
}

// call asks the node for something that it answers once.
func (s *Server) call(ctx context.Context, ask func(now int64, id replica.Caller)) ([]byte, error) {
	return s.loop.call(ctx, ask)
}

func (l *loop) call(ctx context.Context, ask func(now int64, id replica.Caller)) ([]byte, error) {
	done := make(chan replica.Answer, 1)
	err := l.do(ctx, func() {
		id := l.newCaller()
		l.calls[id] = func(a replica.Answer) { done <- a }
		ask(l.now(), id)
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-done:
		return a.Data, answerError(&a)
	case <-ctx.Done():
		return nil, &driver.Error{Kind: ctx.Err(), Err: context.Cause(ctx)}
	}
}

// errOverruled is what callers of a leader are told that was replaced before it
// knew whether the others had taken what was asked for.
var errOverruled = errors.New("another node took over before this one knew whether it was done: it may have been; ask the leader again under the same session and number")

// answerError is what is wrong with an answer; nil: nothing.
func answerError(a *replica.Answer) error {
	switch {
	case a.Outcome == replica.Done:
		return nil
	case a.Outcome == replica.Overload:
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, RetryAfter: time.Duration(a.RetryAfter), Err: errors.New("the leader has more to do than it can take")}
	case a.Outcome == replica.NotDone && a.Code != core.CodeOK:
		return convert.Refusal(a.Code, a.Text)
	case a.Outcome == replica.NotDone:
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, Err: fmt.Errorf("%w: ask the leader", ErrNotLeader)}
	case a.Outcome == replica.Unknown:
		return &driver.Error{Kind: driver.ErrUnavailable, Err: errOverruled}
	}
	return &driver.Error{Kind: driver.ErrClosed, Err: errStopped}
}

// Attach binds a session to the stream under a number, unless it is bound to it already, and has
// told what became of one of its claims, as a push: for callers in this process, which may have
// the server's own sessions too. On a stream that has ended it does nothing: nobody would
// detach the session.
func (st *Stream) Attach(id core.SessionID, number, seq uint64) {
	st.l.post(func(in *inbox) {
		in.todo = append(in.todo, func() {
			if st.l.streams[st.id] != nil {
				st.l.node.Attach(st.l.now(), st.id, id, number, seq)
			}
		})
	})
}

// Detach ends the attachment of a session that has that number; a later one
// stays, and so does the session.
func (st *Stream) Detach(id core.SessionID, number uint64) {
	st.l.post(func(in *inbox) { in.todo = append(in.todo, func() { st.l.node.Detach(st.id, id, number) }) })
}

// ClusterID is the group's number.
func (s *Server) ClusterID() uint64 { return s.cfg.ClusterID }

// MinTTL is the shortest TTL that a session may have here. It changes as the node
// gets or loses others that vote.
func (s *Server) MinTTL() time.Duration { return time.Duration(s.loop.minTTL.Load()) }
