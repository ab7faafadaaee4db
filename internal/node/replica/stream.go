package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/internal/session"
)

// maxHeld is how many frames of a session wait for its claim table; a session
// sends no more before it has an answer.
const maxHeld = 1024

// maxNewcomers is how many attaches of a stream wait for a leader; those beyond
// are refused.
const maxNewcomers = 64

// busyFor is what a client is told to wait while its session is not ready for more.
const busyFor = int64(100 * time.Millisecond)

// attachment binds a session to the stream that its answers go to. There are as
// many as sessions, most of them idle, so it is small.
type attachment struct {
	id     core.SessionID
	stream uint64 // the client's number for the stream; the greatest wins
	pushes uint64
	out    *outlet // nil: another took its place, or its stream or session has ended
	early  *early  // nil: the claim table has been sent

	before, after *attachment // of the same stream
}

func (a *attachment) over() bool { return a.out == nil }

// early is what came before the claim table was sent. Frames wait, since a reply
// that is older than the table must not follow it: the client would take its old
// news for the newest. Renewals do not wait, only their answers.
type early struct {
	frames []item
	held   [][]byte
	table  *table // nil: not begun
}

// streams are the sessions attached to this leader.
type streams struct {
	attached map[core.SessionID]*attachment
	outlets  map[Caller]*outlet
	filled   []*outlet // those that have something to send, as first written to
	lent     [][]byte  // what the last Output has for streams; over with the next
	rooms    [][]byte  // for the next
	ended    []*attachment

	// Used again and again.
	frame core.Frame
	body  []byte
}

// How much room is kept for what streams get.
const (
	maxRooms = 64
	maxRoom  = 64 << 10
)

// outlet is what a stream gets at the end of this input: one wake-up a stream,
// however much it gets.
type outlet struct {
	stream Caller
	data   []byte      // nil: nothing
	away   *turnedAway // nil: every attach was taken

	first  *attachment   // of its sessions
	tables []*attachment // wait for their claim tables, which follow each other
	rows   int           // of tables in data
	more   bool          // the next page follows when the client has taken this one
}

// turnedAway is a stream that was told that this node does not lead. It is told
// once for each leader: what attaches over it afterwards waits for the next one,
// or for the same one if it was gone meanwhile, so that a client that looks for the
// leader need not keep asking.
type turnedAway struct {
	named   uint64 // as the leader; 0: nobody
	waiting []newcomer
}

// newcomer is an attach that is not answered yet.
type newcomer struct {
	id     core.SessionID
	number uint64
}

func (s *streams) init() {
	s.attached = map[core.SessionID]*attachment{}
	s.outlets = map[Caller]*outlet{}
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
		if a := n.attachedOn(stream, m); a != nil {
			n.enqueue(&item{at: a, renewal: r, short: n.short(m.Session)})
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
// not for clients that come that way.
func (n *Node) attachFrom(stream Caller, m *session.Message) {
	if session.Reserved(m.Session) {
		n.frame(stream, &session.Message{Kind: session.KindRefused, Session: m.Session, Stream: m.Stream, Refusal: session.RefusedDenied,
			Code: core.CodePermission, Text: "the session is one that the server keeps: use its lease by the calls for leases"})
		return
	}
	n.welcome(n.streams.outlet(stream), newcomer{m.Session, m.Stream})
}

// Attach binds a session to a stream of this process, which may be one of the server's own, unless
// it is bound to that already. Instead of the claim table, which may be long, it has one claim
// told, as a push: this node has applied all that it has answered, so that what has become of a
// claim by then and the pushes to come are all there is to know.
func (n *Node) Attach(now int64, stream Caller, id core.SessionID, number, seq uint64) {
	if !n.begin(now) {
		return
	}
	if !n.leading || n.healing != nil {
		n.frame(stream, n.noLeader(id, number, 0))
		return
	}
	a := n.streams.attached[id]
	if a == nil || a.out.stream != stream {
		a = &attachment{id: id, stream: number, out: n.streams.outlet(stream)}
		n.streams.detach(id)
		n.streams.bind(a)
	}
	a.pushes++
	n.tell(a, &session.Message{Kind: session.KindPush, Session: id, Stream: a.stream, Pushes: a.pushes, Rows: []core.ClaimRow{n.machine.Row(id, seq)}})
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
	a := &attachment{id: id, stream: number, out: n.streams.outlet(stream), early: &early{}}
	n.streams.detach(id)
	n.streams.bind(a)
	n.reads.waiting = append(n.reads.waiting, reader{attach: a})
	n.ask()
}

// welcome takes an attach, or refuses it, or, if its stream knows already which node
// leads, has it wait until there is news.
func (n *Node) welcome(o *outlet, c newcomer) {
	a := o.away
	switch {
	case n.leading:
		o.away = nil
	case a != nil && a.named == n.leader && len(a.waiting) < maxNewcomers:
		a.waiting = append(a.waiting, c)
		return
	case a != nil:
		a.named = n.leader
	default:
		o.away = &turnedAway{named: n.leader}
	}
	n.attach(o.stream, c.id, c.number)
}

// callBack takes in the clients that wait for another leader, or tells them which node it is.
func (n *Node) callBack() {
	for _, stream := range slices.Sorted(maps.Keys(n.streams.outlets)) {
		o := n.streams.outlets[stream]
		if o.away == nil || !n.leading && o.away.named == n.leader {
			continue
		}
		if !n.leading && n.leader == 0 { // should the same one come back, it is news
			o.away.named = 0
			continue
		}
		waiting := o.away.waiting
		o.away.waiting = nil
		for _, c := range waiting {
			n.welcome(o, c)
		}
	}
}

func (n *Node) noLeader(id core.SessionID, stream, attempt uint64) *session.Message {
	return &session.Message{Kind: session.KindRefused, Session: id, Stream: stream, Attempt: attempt,
		Refusal: session.RefusedNoLeader, Endpoint: n.leaderAt(), Text: "this node does not lead"}
}

// bind adds an attachment to those of its stream.
func (s *streams) bind(a *attachment) {
	s.attached[a.id] = a
	if a.after = a.out.first; a.after != nil {
		a.after.before = a
	}
	a.out.first = a
}

// detach ends the attachment of a session, if there is one.
func (s *streams) detach(id core.SessionID) {
	a := s.attached[id]
	if a == nil {
		return
	}
	if a.after != nil {
		a.after.before = a.before
	}
	if a.before != nil {
		a.before.after = a.after
	} else {
		a.out.first = a.after
	}
	a.out, a.before, a.after = nil, nil, nil
	delete(s.attached, id)
}

// attachedOn is the attachment over which a message came; one of an older stream
// is void.
func (n *Node) attachedOn(stream Caller, m *session.Message) *attachment {
	if a := n.streams.attached[m.Session]; a != nil && a.out.stream == stream && a.stream == m.Stream {
		return a
	}
	return nil
}

func (n *Node) receiveFrame(stream Caller, m *session.Message) error {
	f := &n.streams.frame
	err := core.DecodeNew(m.Body, f)
	if err != nil && !errors.Is(err, core.ErrParts) {
		return err
	}
	if f.Session != m.Session {
		return fmt.Errorf("replica: a frame of session %x in a message of session %x", f.Session, m.Session)
	}
	a := n.attachedOn(stream, m)
	if a == nil {
		return nil
	}
	if err != nil { // a client would send it again over a new stream
		n.denyStream(stream, m.Stream, f, core.CodeInvalid, err.Error())
		return nil
	}
	if n.early(f) {
		n.streams.put(a.out, n.noLeader(a.id, a.stream, f.Attempt))
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
	i := &item{
		at: a, frame: m.Body, renewal: core.Renewal{Session: f.Session, Attempt: f.Attempt},
		class: admission.OfFrame(f, n.known), commands: len(f.Commands),
	}
	if a.early != nil {
		if len(a.early.frames) >= maxHeld {
			n.busyStream(i, busyFor)
			return nil
		}
		a.early.frames = append(a.early.frames, *i)
		return nil
	}
	n.enqueue(i)
	return nil
}

// denyStream tells that a frame is not wanted.
func (n *Node) denyStream(stream Caller, number uint64, f *core.Frame, code core.Code, text string) {
	n.frame(stream, &session.Message{Kind: session.KindRefused, Session: f.Session, Stream: number, Attempt: f.Attempt, Refusal: session.RefusedDenied, Code: code, Text: text})
}

// maxReply is how many bytes a reply may have if it has several results: a client
// behind a slow link hears of the first of them before the last has come.
const maxReply = 1 << 20

// replyStream answers a frame, if its session is still attached as it was when
// that came; otherwise the client will ask again. A long answer comes in several
// replies to the same attempt, but for that of a session that is not there, which
// the client judges as a whole.
func (n *Node) replyStream(a *attachment, r *core.Reply) {
	if a.over() {
		return
	}
	n.streams.body = core.AppendReply(n.streams.body[:0], r)
	if k := len(r.Results) / 2; k > 0 && r.Deadline != 0 && len(n.streams.body) > maxReply {
		first, rest := *r, *r
		first.Results, rest.Results = r.Results[:k], r.Results[k:]
		n.replyStream(a, &first)
		n.replyStream(a, &rest)
		return
	}
	n.tell(a, &session.Message{Kind: session.KindReply, Session: r.Session, Stream: a.stream, Pushes: a.pushes, Body: n.streams.body})
}

func (n *Node) renewed(i *item, r *core.Renewed) {
	a := i.at
	if a == nil {
		n.answer(i.caller, Done, core.AppendRenewed(nil, r))
		return
	}
	if a.over() {
		return
	}
	n.tell(a, &session.Message{Kind: session.KindRenewed, Session: r.Session, Stream: a.stream, Pushes: a.pushes, Attempt: r.Attempt, Now: r.Now, Deadline: r.Deadline})
}

// tell sends an answer, after the claim table.
func (n *Node) tell(a *attachment, m *session.Message) {
	if a.early == nil {
		n.streams.put(a.out, m)
		return
	}
	a.early.held = append(a.early.held, session.AppendMessage(nil, m))
}

// pushAll tells sessions what became of their claims: losses before the replies
// of the same entry, the rest after them. Before a session's table is begun, the
// table will tell.
func (n *Node) pushAll(pushes []core.Push, losses bool) {
	for i := range pushes {
		p := &pushes[i]
		loss := p.State == core.ClaimRevoked || p.State == core.ClaimGone
		a := n.streams.attached[p.Session]
		if loss != losses || a == nil || a.early != nil && a.early.table == nil {
			continue
		}
		a.pushes++
		n.tell(a, &session.Message{Kind: session.KindPush, Session: p.Session, Stream: a.stream, Pushes: a.pushes, Rows: []core.ClaimRow{*p}})
	}
}

// refuseStream tells that a frame or renewal was not taken.
func (n *Node) refuseStream(i *item) {
	if a := i.at; !a.over() {
		n.streams.put(a.out, n.noLeader(a.id, a.stream, i.renewal.Attempt))
	}
}

func (n *Node) busyStream(i *item, wait int64) {
	if a := i.at; !a.over() {
		n.streams.put(a.out, &session.Message{Kind: session.KindRefused, Session: a.id, Stream: a.stream, Attempt: i.renewal.Attempt,
			Refusal: session.RefusedBusy, RetryAfter: wait, Text: "the leader has more to do than it can take"})
	}
}

// Streams is how many there are that the node may have something to say to.
func (n *Node) Streams() int { return len(n.streams.outlets) }

// StreamClosed tells that a stream has ended. Its sessions live on.
func (n *Node) StreamClosed(stream Caller) {
	o := n.streams.outlets[stream]
	for o != nil && o.first != nil {
		n.streams.detach(o.first.id)
	}
	delete(n.streams.outlets, stream)
}

// Detach ends an attachment of a session, by its number; the session lives on.
func (n *Node) Detach(stream Caller, id core.SessionID, number uint64) {
	if a := n.streams.attached[id]; a != nil && a.out.stream == stream && a.stream == number {
		n.streams.detach(id)
	}
}

// closeStreams ends every stream, since this node does not lead any more: its
// clients have to attach to the node that does.
func (n *Node) closeStreams() {
	for _, stream := range slices.Sorted(maps.Keys(n.streams.outlets)) {
		o := n.streams.outlets[stream]
		if o.first == nil {
			continue
		}
		n.out.Closed = append(n.out.Closed, stream)
		for o.first != nil {
			n.streams.detach(o.first.id)
		}
		o.tables, o.more = nil, false
	}
}

// frame sends a message to a stream.
func (n *Node) frame(stream Caller, m *session.Message) {
	n.streams.put(n.streams.outlet(stream), m)
}

func (s *streams) outlet(stream Caller) *outlet {
	o := s.outlets[stream]
	if o == nil {
		o = &outlet{stream: stream}
		s.outlets[stream] = o
	}
	return o
}

func (s *streams) put(o *outlet, m *session.Message) {
	s.fill(o)
	o.data = session.AppendMessage(o.data, m)
}

// fill makes room for the first that an outlet gets.
func (s *streams) fill(o *outlet) {
	if o.data == nil {
		o.data = s.room()
		s.filled = append(s.filled, o)
	}
}

func (s *streams) room() []byte {
	n := len(s.rooms)
	if n == 0 {
		return make([]byte, 0, 256)
	}
	b := s.rooms[n-1]
	s.rooms = s.rooms[:n-1]
	return b[:0]
}

// takeBack takes the room of what was lent.
func (s *streams) takeBack() {
	for _, b := range s.lent {
		if len(s.rooms) < maxRooms && cap(b) <= maxRoom {
			s.rooms = append(s.rooms, b)
		}
	}
	clear(s.lent)
	s.lent = s.lent[:0]
}

func (n *Node) flushStreams() {
	s := &n.streams
	s.takeBack()
	for _, o := range s.filled {
		n.out.Frames = append(n.out.Frames, StreamFrame{Stream: o.stream, Data: o.data, More: o.more && o.rows > 0})
		s.lent = append(s.lent, o.data)
		o.data, o.rows = nil, 0
	}
	s.filled = s.filled[:0]
}
