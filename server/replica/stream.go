package replica

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/server/admission"
	"github.com/holdfast-io/holdfast/session"
)

// tablePiece is how many claims go into one message of a claim table.
const tablePiece = 512

// maxHeld is how many frames of a session wait for its claim table; a session
// sends no more before it has an answer.
const maxHeld = 1024

// busyFor is what a client is told to wait whose session is not ready for more.
const busyFor = int64(100 * time.Millisecond)

// attachment binds a session to the stream that its answers go to. There are as
// many as sessions, most of them idle, so it is small.
type attachment struct {
	id     core.SessionID
	caller Caller
	stream uint64 // the client's number for the stream; the greatest wins
	pushes uint64
	early  *early // nil: the claim table has been sent
}

// early is what came before the claim table was sent. Frames wait, since a reply
// that is older than the table must not follow it: the client would take its old
// news for the newest. Renewals do not wait, only their answers.
type early struct {
	frames []item
	held   [][]byte
}

// streams are the sessions attached to this leader.
type streams struct {
	attached map[core.SessionID]*attachment
	buffers  map[Caller]*[]byte
	order    []Caller // of the buffers, as first written to
	last     int      // the size of the last buffer: the next will be about as large

	// Used again and again.
	frame core.Frame
	body  []byte
}

func (s *streams) init() {
	s.attached = map[core.SessionID]*attachment{}
	s.buffers = map[Caller]*[]byte{}
}

// Receive takes what came over a stream: any number of messages of package
// session, which must not change afterwards. What they ask for is proposed with
// the next Output, together with all that comes until then. An error means that
// the stream is not to be trusted any more.
func (n *Node) Receive(now int64, stream Caller, data []byte) error {
	if !n.begin(now) {
		return n.err
	}
	for len(data) > 0 {
		m, rest, err := session.DecodeMessage(data)
		if err != nil {
			return err
		}
		if err := n.receive(stream, &m); err != nil {
			return err
		}
		data = rest
	}
	return nil
}

func (n *Node) receive(stream Caller, m *session.Message) error {
	switch m.Kind {
	case session.KindAttach:
		n.attachFrom(stream, m)
	case session.KindFrame:
		return n.receiveFrame(stream, m)
	case session.KindRenewal:
		r := core.Renewal{Session: m.Session, Attempt: m.Attempt, TTL: m.TTL}
		if n.attachedOn(stream, m) {
			n.enqueue(item{caller: stream, stream: true, renewal: r, short: n.short(m.Session)})
		}
	default:
		return fmt.Errorf("replica: a client sent a message of kind %d, which only servers send", m.Kind)
	}
	return nil
}

// short: a tick would look like silence to the session. A group takes none so
// short.
func (n *Node) short(id core.SessionID) bool {
	ttl, ok := n.machine.TTL(id)
	return ok && ttl < 24*int64(n.cfg.Tick)
}

// attachFrom is an attach that came over a stream: the server's own sessions are
// not for those who come that way.
func (n *Node) attachFrom(stream Caller, m *session.Message) {
	if session.Reserved(m.Session) {
		n.frame(stream, &session.Message{Kind: session.KindRefused, Session: m.Session, Stream: m.Stream, Refusal: session.RefusedDenied,
			Code: core.CodePermission, Text: "the session is one that the server keeps: use its lease by the calls for leases"})
		return
	}
	n.attach(stream, m.Session, m.Stream)
}

// Attach binds a session to a stream of this process, which may be one of the
// server's own.
func (n *Node) Attach(now int64, stream Caller, id core.SessionID, number uint64) {
	if n.begin(now) {
		n.attach(stream, id, number)
	}
}

// attach binds the session to the stream and sends its claim table as soon as
// that is certain to be complete.
func (n *Node) attach(stream Caller, id core.SessionID, number uint64) {
	if !n.leading {
		n.frame(stream, n.noLeader(id, number, 0))
		return
	}
	if old := n.streams.attached[id]; old != nil && old.stream >= number {
		return
	}
	a := &attachment{id: id, caller: stream, stream: number, early: &early{}}
	n.streams.attached[id] = a
	n.reads.waiting = append(n.reads.waiting, reader{attach: a})
	n.ask()
}

func (n *Node) noLeader(id core.SessionID, stream, attempt uint64) *session.Message {
	return &session.Message{Kind: session.KindRefused, Session: id, Stream: stream, Attempt: attempt,
		Refusal: session.RefusedNoLeader, Endpoint: n.members.Address(n.leader), Text: "this node does not lead"}
}

// attachedOn reports whether a message came over the stream that its session is
// attached to; one of an older stream is void.
func (n *Node) attachedOn(stream Caller, m *session.Message) bool {
	a := n.streams.attached[m.Session]
	return a != nil && a.caller == stream && a.stream == m.Stream
}

func (n *Node) receiveFrame(stream Caller, m *session.Message) error {
	f := &n.streams.frame
	if err := core.DecodeFrame(m.Body, f); err != nil {
		return err
	}
	if f.Session != m.Session {
		return fmt.Errorf("replica: a frame of session %x in a message of session %x", f.Session, m.Session)
	}
	if !n.attachedOn(stream, m) {
		return nil
	}
	code, text := forbidden(f)
	if code == core.CodeOK {
		code, text = n.admit(f)
	}
	if code != core.CodeOK {
		n.denyStream(stream, m.Stream, f, code, text)
		return nil
	}
	i := item{
		caller: stream, stream: true, frame: m.Body, renewal: core.Renewal{Session: f.Session, Attempt: f.Attempt},
		class: admission.OfFrame(f, n.known), commands: len(f.Commands),
	}
	if a := n.streams.attached[m.Session]; a.early != nil {
		if len(a.early.frames) >= maxHeld {
			n.busyStream(i, busyFor)
			return nil
		}
		a.early.frames = append(a.early.frames, i)
		return nil
	}
	n.enqueue(i)
	return nil
}

// denyStream tells that a frame is not wanted: for ever, or while the disk is
// full.
func (n *Node) denyStream(stream Caller, number uint64, f *core.Frame, code core.Code, text string) {
	m := &session.Message{Kind: session.KindRefused, Session: f.Session, Stream: number, Attempt: f.Attempt, Refusal: session.RefusedDenied, Code: code, Text: text}
	if code == core.CodeUnavailable {
		m.Refusal, m.RetryAfter = session.RefusedBusy, 10*busyFor
	}
	n.frame(stream, m)
}

// sendTable sends the claim table, and what was held back for it.
func (n *Node) sendTable(a *attachment) {
	if n.streams.attached[a.id] != a {
		return
	}
	rows, known := n.machine.Table(a.id)
	for piece := uint64(0); ; piece++ {
		k := min(len(rows), tablePiece)
		m := session.Message{Kind: session.KindTable, Session: a.id, Stream: a.stream, Piece: piece, Known: known, Rows: rows[:k], Last: k == len(rows)}
		n.frame(a.caller, &m)
		if rows = rows[k:]; m.Last {
			break
		}
	}
	before := a.early
	a.early = nil
	for _, b := range before.held {
		n.bytes(a.caller, b)
	}
	for _, i := range before.frames {
		n.enqueue(i)
	}
}

// replyStream answers a frame, if its session is still attached where it came
// from; otherwise the client will ask again.
func (n *Node) replyStream(i item, r *core.Reply) {
	a := n.streams.attached[r.Session]
	if a == nil || a.caller != i.caller {
		return
	}
	n.streams.body = core.AppendReply(n.streams.body[:0], r)
	n.tell(a, &session.Message{Kind: session.KindReply, Session: r.Session, Stream: a.stream, Pushes: a.pushes, Body: n.streams.body})
}

func (n *Node) renewed(i item, r *core.Renewed) {
	if !i.stream {
		n.answer(i.caller, Done, core.AppendRenewed(nil, r))
		return
	}
	a := n.streams.attached[r.Session]
	if a == nil || a.caller != i.caller {
		return
	}
	n.tell(a, &session.Message{Kind: session.KindRenewed, Session: r.Session, Stream: a.stream, Pushes: a.pushes, Attempt: r.Attempt, Now: r.Now, Deadline: r.Deadline})
}

// tell sends an answer, after the claim table.
func (n *Node) tell(a *attachment, m *session.Message) {
	if a.early == nil {
		n.frame(a.caller, m)
		return
	}
	a.early.held = append(a.early.held, session.AppendMessage(nil, m))
}

// pushAll tells sessions what became of their claims: losses before the replies
// of the same entry, the rest after them. Before a session has its table, the
// table will tell.
func (n *Node) pushAll(pushes []core.Push, losses bool) {
	for i := range pushes {
		p := &pushes[i]
		loss := p.State == core.ClaimRevoked || p.State == core.ClaimGone
		a := n.streams.attached[p.Session]
		if loss != losses || a == nil || a.early != nil {
			continue
		}
		a.pushes++
		n.frame(a.caller, &session.Message{Kind: session.KindPush, Session: p.Session, Stream: a.stream, Pushes: a.pushes, Rows: []core.ClaimRow{*p}})
	}
}

// refuseStream tells that a frame or renewal was not taken.
func (n *Node) refuseStream(i item) {
	id := i.renewal.Session
	if a := n.streams.attached[id]; a != nil && a.caller == i.caller {
		n.frame(i.caller, n.noLeader(id, a.stream, i.renewal.Attempt))
	}
}

func (n *Node) busyStream(i item, wait int64) {
	id := i.renewal.Session
	if a := n.streams.attached[id]; a != nil && a.caller == i.caller {
		n.frame(i.caller, &session.Message{Kind: session.KindRefused, Session: id, Stream: a.stream, Attempt: i.renewal.Attempt,
			Refusal: session.RefusedBusy, RetryAfter: wait, Text: "the leader has more to do than it can take"})
	}
}

// StreamClosed tells that a stream has ended. Its sessions live on.
func (n *Node) StreamClosed(stream Caller) {
	maps.DeleteFunc(n.streams.attached, func(_ core.SessionID, a *attachment) bool { return a.caller == stream })
}

// Detach ends an attachment of a session, by its number; the session lives on.
func (n *Node) Detach(stream Caller, id core.SessionID, number uint64) {
	if a := n.streams.attached[id]; a != nil && a.caller == stream && a.stream == number {
		delete(n.streams.attached, id)
	}
}

// closeStreams ends every stream, since this node does not lead any more: its
// clients have to attach to who does.
func (n *Node) closeStreams() {
	seen := map[Caller]bool{}
	for _, a := range n.streams.attached {
		seen[a.caller] = true
	}
	n.out.Closed = append(n.out.Closed, slices.Sorted(maps.Keys(seen))...)
	clear(n.streams.attached)
}

// frame appends a message to what its stream gets at the end of this input: one
// wake-up a stream, however much it gets.
func (n *Node) frame(stream Caller, m *session.Message) {
	b := n.streams.buffer(stream)
	*b = session.AppendMessage(*b, m)
}

func (n *Node) bytes(stream Caller, data []byte) {
	b := n.streams.buffer(stream)
	*b = append(*b, data...)
}

func (s *streams) buffer(stream Caller) *[]byte {
	b := s.buffers[stream]
	if b == nil {
		b = new([]byte)
		*b = make([]byte, 0, s.last)
		s.buffers[stream] = b
		s.order = append(s.order, stream)
	}
	return b
}

func (n *Node) flushStreams() {
	s := &n.streams
	for _, c := range s.order {
		n.out.Frames = append(n.out.Frames, StreamFrame{Stream: c, Data: *s.buffers[c]})
		s.last = len(*s.buffers[c])
		delete(s.buffers, c)
	}
	s.order = s.order[:0]
}
