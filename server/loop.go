package server

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/transport"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// errStopped is what calls on a node that has ended are told.
var errStopped = errors.New("the node has stopped")

// loop is the goroutine that drives the node. Everything reaches it through the
// inbox; it alone touches the node.
type loop struct {
	node  *replica.Node
	disk  *writer
	peers *transport.Transport // nil: alone
	host  *host.Host
	began time.Time
	tick  time.Duration
	// minTTL is the node's, for callers outside the loop.
	minTTL atomic.Int64

	mu      sync.Mutex
	inbox   inbox
	wake    chan struct{}
	looks   bool          // the loop will look by itself: a few frames need not wake it
	taken   chan struct{} // closed when the loop takes the inbox; nil: nobody waits for that
	stopped chan struct{} // closed when the loop has ended
	err     error         // why; valid then
	stop    bool

	// The loop's own.
	spare     []inFrame // for the next inbox
	caller    replica.Caller
	streams   map[replica.Caller]*stream
	calls     map[replica.Caller]func(replica.Answer)
	reads     map[replica.Caller]func(*core.Machine)
	backups   []awaited
	founding  founding
	probing   atomic.Bool // somebody looks how much room the disk has
	ticks     int         // since somebody looked
	removed   []uint64    // nodes that are not to be heard any more
	failed    error       // why this node cannot go on
	full      bool        // the disk has less room than it should
	fullSince time.Time   // when it began to
	lack      string      // what was missing when it was last looked at
	lackAt    time.Time   // when that was
	notice    func(error) // tells an operator
	dir       string
	itself    func(id uint64) bool   // a number is this node's
	here      func(addr string) bool // this node is at an address
	named     []replica.Endpoint     // where operators say that nodes are

	hubMu sync.Mutex
	hub   *watch.Hub
	woken map[*watch.Watcher]func()
	seen  int64 // cluster time of the newest event

	lead leadership
}

// inbox is what has come since the loop last looked.
type inbox struct {
	frames      []inFrame
	bytes       int // of the frames
	messages    [][]byte
	unreachable []uint64
	written     uint64
	full        bool
	todo        []func()
	failure     error
}

type inFrame struct {
	stream replica.Caller
	data   []byte
}

// stream is where the answers for a client go.
type stream struct {
	// deliver takes messages of package session; it must neither block nor keep
	// them. If next is not nil, more follow when it is called.
	deliver func(data []byte, next func())
	// closed is told that nothing more will come.
	closed func()
}

func newLoop(node *replica.Node, tick time.Duration, revision uint64) *loop {
	return &loop{
		node: node, tick: tick, began: time.Now(), wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		streams: map[replica.Caller]*stream{}, calls: map[replica.Caller]func(replica.Answer){}, reads: map[replica.Caller]func(*core.Machine){},
		hub: watch.NewHub(0, revision), woken: map[*watch.Watcher]func(){}, notice: func(error) {},
	}
}

// now is the node's elapsed time.
func (l *loop) now() int64 { return int64(time.Since(l.began)) }

// post changes the inbox and wakes the loop; false: it has ended.
func (l *loop) post(f func(*inbox)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop {
		return false
	}
	f(&l.inbox)
	l.signal()
	return true
}

// receive is post for a frame, of which there are more than of all else.
func (l *loop) receive(f inFrame) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop {
		return false
	}
	l.inbox.frames = append(l.inbox.frames, f)
	l.inbox.bytes += len(f.data)
	if l.awaits(len(f.data)) {
		l.signal()
	}
	return true
}

// handful is how many bytes of frames wake a loop that would look later.
const handful = 4 << 10

// awaits reports whether the frame that came last, of size bytes, wakes the loop.
func (l *loop) awaits(size int) bool {
	if l.looks {
		return l.inbox.bytes >= handful && l.inbox.bytes-size < handful
	}
	return len(l.inbox.frames) == 1 // else it has been woken and has yet to look
}

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run drives the node until it is told to stop or the node fails.
func (l *loop) run() {
	ticker := time.NewTicker(l.tick)
	defer ticker.Stop()
	for {
		ticked := false
		select {
		case <-l.wake:
		case <-ticker.C:
			ticked = true
		}
		in, stop := l.take()
		if stop || in.failure != nil {
			l.end(in.failure)
			return
		}
		began := l.now()
		l.feed(&in, ticked)
		clear(in.frames)
		l.spare = in.frames[:0]
		out := l.node.Output()
		l.minTTL.Store(int64(l.node.MinTTL())) // before anybody hears of new members
		l.act(out)
		l.node.Rest(began, l.now())
		l.rest()
		if err := cmp.Or(l.failed, l.node.Err()); err != nil {
			l.end(err)
			return
		}
	}
}

// take empties the inbox, and lets the callers go on that waited for room in it.
func (l *loop) take() (in inbox, stop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in = l.inbox
	l.inbox = inbox{full: in.full, frames: l.spare}
	l.looks = true
	if l.taken != nil {
		close(l.taken)
		l.taken = nil
	}
	return in, l.stop
}

// rest ends a round. A busy node looks again when a write is done, and can do
// nothing with a frame before: waking it for each would cost more than the frame.
func (l *loop) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks = l.node.Busy()
	if !l.looks && len(l.inbox.frames) > 0 {
		l.signal()
	}
}

// feed gives the node everything that came. Word from the disk goes first: it
// may let answers go that others wait for.
func (l *loop) feed(in *inbox, ticked bool) {
	now := l.now()
	l.setFull(in.full)
	if in.written > 0 {
		l.node.Written(now, in.written)
	}
	for _, m := range in.messages {
		_ = l.node.Step(now, m) // a message that does not decode is as good as lost
	}
	for _, p := range in.unreachable {
		l.node.PeerUnreachable(now, p)
	}
	for _, f := range in.frames {
		l.receiveFrame(now, f)
	}
	for _, f := range in.todo {
		f()
	}
	if ticked {
		l.tellFull()
		l.probe()
		l.node.Date(time.Now().Unix())
		l.node.Elsewhere(l.strayed())
		l.node.Tick(now)
	}
}

// strayed are the members that were found where operators say that they are, and not where the group
// has them, each with its address for clients.
func (l *loop) strayed() map[uint64]string {
	if l.peers == nil {
		return nil
	}
	at := map[uint64]string{}
	for _, e := range l.named {
		if l.peers.FoundAt(e.ID) != "" {
			at[e.ID] = e.Client
		}
	}
	return at
}

// receiveFrame hands on what came over a stream, unless that has ended meanwhile:
// what it would attach nobody would detach.
func (l *loop) receiveFrame(now int64, f inFrame) {
	if l.streams[f.stream] == nil {
		return
	}
	if err := l.node.Receive(now, f.stream, f.data); err != nil {
		l.drop(f.stream)
	}
}

// act does what the node asks for. A write that it does itself comes last: no
// caller that was answered waits for it.
func (l *loop) act(out replica.Output) {
	if l.follow(&out); l.failed != nil {
		return
	}
	last := l.idle(&out)
	if len(out.Writes) > 0 && !last {
		l.disk.add(disk.Job{Writes: out.Writes})
	}
	for _, m := range out.Messages {
		l.peers.Send(m.To, m.Data)
	}
	l.publish(out.Events, out.Jumped)
	for _, f := range out.Frames {
		l.deliver(f)
	}
	for _, a := range out.Answers {
		l.answer(a)
	}
	for _, c := range out.Reads {
		if f := l.reads[c]; f != nil {
			delete(l.reads, c)
			f(l.node.Machine())
		}
	}
	for _, c := range out.Closed {
		l.drop(c)
	}
	if out.Notice != nil {
		l.notice(out.Notice)
	}
	l.snapshots(&out)
	l.wakeBackups()
	l.lead.set(l.node.Leader())
	if last && !l.disk.now(out.Writes) {
		l.disk.add(disk.Job{Writes: out.Writes})
	}
}

func (l *loop) deliver(f replica.StreamFrame) {
	s := l.streams[f.Stream]
	switch {
	case s == nil:
	case f.More:
		s.deliver(f.Data, func() { l.next(f.Stream) })
	default:
		s.deliver(f.Data, nil)
	}
}

// idle: there is nothing to do but to write a little, so that the loop can as well
// do it itself. In a group it may not: others take silence for its end.
func (l *loop) idle(out *replica.Output) bool {
	if len(out.Writes) == 0 || out.Compact > 0 || out.Snapshot != nil || !l.node.Solitary() || sizeOf(out.Writes) > handful {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inbox.frames) == 0
}

// sizeOf is how many bytes of entries are to be written.
func sizeOf(writes []replica.Write) (n int) {
	for i := range writes {
		for _, e := range writes[i].Entries {
			n += len(e.Data)
		}
	}
	return n
}

func (l *loop) answer(a replica.Answer) {
	if f := l.calls[a.Caller]; f != nil {
		delete(l.calls, a.Caller)
		f(a)
		return
	}
	if f := l.reads[a.Caller]; f != nil {
		delete(l.reads, a.Caller)
		f(nil)
	}
}

// drop ends a stream.
func (l *loop) drop(c replica.Caller) {
	if s := l.streams[c]; s != nil {
		delete(l.streams, c)
		l.node.StreamClosed(c)
		s.closed()
	}
}

// publish hands events to the watchers.
func (l *loop) publish(events []core.Event, jumped bool) {
	l.host.Tell(events)
	l.hubMu.Lock()
	defer l.hubMu.Unlock()
	l.seen = l.node.Machine().Now()
	woken := l.hub.Publish(events, l.node.Machine().Revision())
	if jumped {
		woken = l.hub.Jump(l.node.Machine().Revision())
		l.hub.Begun(l.node.Machine().Ordinal())
	}
	for _, w := range woken {
		if wake := l.woken[w]; wake != nil {
			wake()
		}
	}
}

// written is told by the writer that writes are durable, or why not: any failure
// of the disk ends the node, since nothing is known about what is on it then.
func (l *loop) written(j disk.Job, err error) {
	full := err == nil && l.disk.disk.Full()
	l.post(func(in *inbox) {
		in.full = full
		if err != nil {
			in.failure = err
			return
		}
		in.written = max(in.written, j.Writes[len(j.Writes)-1].ID) // of two writers, the first may tell last
	})
}

// end answers everybody and closes what is open.
func (l *loop) end(err error) {
	l.mu.Lock()
	l.stop = true
	l.mu.Unlock()
	l.err = err
	for c := range l.streams {
		l.drop(c)
	}
	for _, f := range l.reads {
		f(nil)
	}
	for _, f := range l.calls {
		f(replica.Answer{})
	}
	l.hubMu.Lock()
	for _, wake := range l.woken {
		wake()
	}
	l.hubMu.Unlock()
	close(l.stopped)
}
