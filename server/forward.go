package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// order is what an operator asks of the leader. A node that does not lead passes it on
// over the connections of the nodes, on which nobody else can ask.
type order struct {
	Change *replica.Change `json:",omitempty"`
	Lead   uint64          `json:",omitempty"` // the node that shall lead
}

// reply is the leader's answer to an order.
type reply struct {
	Number  uint64 `json:",omitempty"`
	Refused string `json:",omitempty"`
	Kind    string `json:",omitempty"`
	NotDone bool   `json:",omitempty"`
	// Elsewhere: the node that was asked does not lead any more.
	Elsewhere bool `json:",omitempty"`
}

// orderMark is the first byte of a question that is an order; those of requests for a
// number are 0 and 1.
const orderMark = 2

// kinds are those that a refusal of an order can have.
var kinds = []error{fs.ErrInvalid, fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, errors.ErrUnsupported, context.Canceled, context.DeadlineExceeded,
	driver.ErrConflict, driver.ErrUnavailable, driver.ErrExhausted, driver.ErrClosed, driver.ErrHeld, driver.ErrLost}

// takeOverTicks is for how many ticks an order waits while leadership changes hands, as
// it does when the leader is to be removed: a few elections.
const takeOverTicks = 50

// carryOut does what an operator asks, here or by the leader, whichever node that is in
// the end.
func (s *Server) carryOut(ctx context.Context, o order) (number uint64, err error) {
	for range takeOverTicks {
		if number, err = s.pass(ctx, o); !errors.Is(err, ErrNotLeader) {
			return number, err
		}
		select {
		case <-time.After(s.cfg.Tick):
		case <-s.loop.stopped:
			return 0, err
		case <-ctx.Done():
			return 0, err
		}
	}
	return 0, err
}

// pass does what an operator asks if this node leads, or has the leader do it.
func (s *Server) pass(ctx context.Context, o order) (uint64, error) {
	number, err := s.obey(ctx, s.loop, o)
	if !errors.Is(err, ErrNotLeader) || s.loop.peers == nil {
		return number, err
	}
	st, unknown := s.Status(ctx)
	for _, e := range st.Members.Endpoints {
		if unknown == nil && e.ID == st.Leader && e.ID != st.ID {
			e.Peer = cmp.Or(s.loop.peers.FoundAt(e.ID), e.Peer)
			return s.forward(e, o)
		}
	}
	return 0, err
}

// obey does what an operator asks, if this node leads.
func (s *Server) obey(ctx context.Context, l *loop, o order) (uint64, error) {
	if o.Change != nil {
		c := *o.Change
		if c.Seen = nil; s.leads(l) {
			c.Seen = l.seenAt(c.Update)
		}
		return changeMembers(ctx, l, c)
	}
	answer := make(chan error, 1)
	if err := l.do(ctx, func() { answer <- l.handTo(o.Lead) }); err != nil {
		return 0, err
	}
	return 0, <-answer
}

func (s *Server) leads(l *loop) bool {
	leader, _ := l.lead.get()
	return leader.ID == s.cfg.ID
}

// seenWithin is how long a member may take to show itself at a new address.
const seenWithin = 2 * time.Second

// seenAt are the members that answer at new addresses, as those that the group knows.
func (l *loop) seenAt(moved []replica.Endpoint) (seen []uint64) {
	if l.peers == nil || len(moved) == 0 {
		return nil
	}
	shown := make(chan uint64, len(moved))
	for _, e := range moved {
		go func() { shown <- l.shows(e) }()
	}
	late := time.After(seenWithin)
	for range moved {
		select {
		case id := <-shown:
			seen = append(seen, id)
		case <-late:
			return seen
		}
	}
	return seen
}

// shows is the number of a member that answers at its address; 0: what is there, if
// anything is, is another.
func (l *loop) shows(e replica.Endpoint) uint64 {
	w, err := l.wordOf(e.ID, e.Peer)
	if dir := l.peers.Known(e.ID); err != nil || w.Node != e.ID || dir == 0 || w.Dir != dir {
		return 0
	}
	return e.ID
}

// handTo hands leadership to a node. A leader that does not serve, since it has just begun or
// since its state differs, does soon, or hands over by itself: the order waits for that.
func (l *loop) handTo(to uint64) error {
	st := l.node.Status()
	switch {
	case !st.Serving:
		return answerError(&replica.Answer{Outcome: replica.NotDone})
	case to == 0:
		return l.handOn()
	case !slices.Contains(st.Members.Conf.GetVoters(), to):
		return driver.Errorf("", "", fs.ErrInvalid, "%d is no voter of this group: see holdfast member ls", to)
	}
	if why := l.node.Unfit(to); why != "" {
		return &driver.Error{Kind: driver.ErrConflict, Outcome: driver.NotDone, Err: errors.New(why)}
	}
	l.node.Transfer(l.now(), to)
	return nil
}

// handOn hands the leadership of this node, which is about to stop, to the best that there is: with a leader that ails the
// group does more than with none.
func (l *loop) handOn() error {
	to := l.node.TakesOver()
	if to == 0 {
		return &driver.Error{Kind: driver.ErrConflict, Outcome: driver.NotDone, Err: errors.New("no other voter answers and has the state of the group, so that none can take over: see holdfast status")}
	}
	l.node.Transfer(l.now(), to)
	return nil
}

// forward has the leader do it.
func (s *Server) forward(leader replica.Endpoint, o order) (uint64, error) {
	question, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	b, err := s.loop.peers.Ask(leader.ID, leader.Peer, append([]byte{orderMark}, question...))
	if err != nil {
		return 0, unasked(leader, err)
	}
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return 0, unasked(leader, fmt.Errorf("its answer has an unknown form: run the same version on all nodes: %w", err))
	}
	return r.Number, r.err()
}

// unasked is the error of an order that the leader has not answered.
func unasked(leader replica.Endpoint, err error) error {
	e := &driver.Error{Kind: driver.ErrUnavailable, Err: fmt.Errorf("node %d, which leads, does not answer at %s: %w", leader.ID, leader.Peer, err)}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" || errors.Is(err, transport.ErrHandshake) {
		e.Outcome = driver.NotDone
	}
	return e
}

func (r *reply) err() error {
	if r.Refused == "" {
		return nil
	}
	e := &driver.Error{Err: errors.New(r.Refused)}
	if r.Elsewhere {
		e.Err = ErrNotLeader
	}
	for _, k := range kinds {
		if k.Error() == r.Kind {
			e.Kind = k
		}
	}
	if r.NotDone {
		e.Outcome = driver.NotDone
	}
	return e
}

// takeOrder answers a node that passes an order on.
func (s *Server) takeOrder(l *loop, question []byte) ([]byte, error) {
	var o order
	if err := json.Unmarshal(question, &o); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	number, err := s.obey(ctx, l, o)
	r := reply{Number: number, Elsewhere: errors.Is(err, ErrNotLeader)}
	if err != nil {
		r.Refused = err.Error()
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		r.NotDone = e.Outcome == driver.NotDone
		if e.Kind != nil {
			r.Kind = e.Kind.Error()
		}
		if e.Err != nil {
			r.Refused = e.Err.Error()
		}
	}
	return json.Marshal(r)
}
