package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/server"
)

// waitTable is the callers that wait for a grant, and the gateway's stream to the
// node, over which the grants come. The queue itself is the core's. A session is attached as long as one of its claims does.
type waitTable struct {
	s *server.Server

	mu      sync.Mutex
	conn    *conn // nil: there is none
	numbers uint64
	waits   map[core.SessionID]*attached
	ends    map[string]*endings // by namespace
}

// conn is one stream.
type conn struct {
	*server.Stream
	ended bool
}

// attached is a session with claims that wait.
type attached struct {
	number uint64  // of the attach
	waits  []*wait // by claim: thousands may wait
}

// from is where the waits for a claim begin.
func (a *attached) from(seq uint64) int {
	at, _ := slices.BinarySearchFunc(a.waits, seq, func(w *wait, seq uint64) int { return cmp.Compare(w.seq, seq) })
	return at
}

// wait is one claim that waits.
type wait struct {
	l      *lease
	seq    uint64
	queued uint64 // the revision at which its claim was
	done   chan outcome
	name   string        // of what it may join; "": nothing
	joins  chan struct{} // receives when another call of its lease was granted that
}

// outcome is what became of a claim.
type outcome struct {
	row core.Push
	err error // the stream has ended; nothing is known
}

// errMoved is told to waiters when this node stops leading. A claim of theirs waits on
// until its lease is used again or ends.
var errMoved = errors.New("this node has stopped leading while the call waited: ask the leader; the claim is withdrawn when its lease is used again or ends")

// add begins to wait for a claim that the machine has answered as queued, at that
// revision. Ends of its session are watched for before the claim is asked for, which tells of
// earlier ones. A wait costs what it waits for: whatever else its session has is not told.
func (l *waitTable) add(ctx context.Context, x *lease, seq, queued uint64, name string) (*wait, error) {
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil, moved()
	}
	if err := l.follow(x.ns); err != nil {
		return nil, err
	}
	a := l.waits[x.id]
	if a == nil {
		l.numbers++
		a = &attached{number: l.numbers}
		l.waits[x.id] = a
	}
	w := &wait{l: x, seq: seq, queued: queued, name: name, done: make(chan outcome, 1), joins: make(chan struct{}, 1)}
	a.waits = slices.Insert(a.waits, a.from(seq), w)
	l.conn.Attach(x.id, a.number, seq)
	return w, nil
}

// granted says that a call of a lease has got what it waited for: others of that lease that have asked
// for the same would wait for their own lease.
func (l *waitTable) granted(x *lease, name string) {
	x.mu.Lock()
	x.grants++
	x.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.waits[x.id]
	if a == nil || name == "" {
		return
	}
	for _, w := range a.waits {
		if w.name == name {
			select {
			case w.joins <- struct{}{}:
			default:
			}
		}
	}
}

func moved() error {
	return &driver.Error{Kind: driver.ErrUnavailable, Err: errMoved}
}

// connect opens the stream if there is none.
func (l *waitTable) connect(ctx context.Context) error {
	l.mu.Lock()
	up := l.conn != nil
	l.mu.Unlock()
	if up {
		return nil
	}
	c := &conn{}
	st, err := l.s.Stream(ctx, l.deliver, func() { l.closed(c) })
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Stream = st; l.conn == nil && !c.ended {
		l.conn = c
		return nil
	}
	st.Close() // another call was faster, or it is over already
	return nil
}

// remove ends a wait.
func (l *waitTable) remove(w *wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(w)
}

// drop forgets a wait, and detaches a session that has none left.
func (l *waitTable) drop(w *wait) {
	a := l.waits[w.l.id]
	l.unfollow(w.l.ns)
	for i := a.from(w.seq); i < len(a.waits) && a.waits[i].seq == w.seq; i++ {
		if a.waits[i] == w {
			a.waits = slices.Delete(a.waits, i, i+1)
			break
		}
	}
	if len(a.waits) > 0 {
		return
	}
	delete(l.waits, w.l.id)
	if l.conn != nil {
		l.conn.Detach(w.l.id, a.number)
	}
}

// deliver runs on the node's loop.
func (l *waitTable) deliver(data []byte, next func()) {
	if next != nil {
		defer next()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(data) > 0 {
		m, rest, err := session.DecodeMessage(data)
		if err != nil {
			return // the node wrote it: cannot be
		}
		if a := l.waits[m.Session]; a != nil {
			l.receive(a, &m)
		}
		data = rest
	}
}

func (l *waitTable) receive(a *attached, m *session.Message) {
	switch m.Kind {
	case session.KindPush:
		a.told(&m.Rows[0])
	case session.KindRefused:
		for _, w := range a.waits {
			w.finish(refusedWait(m, w))
		}
	}
}

// refusedWait is what a refused attach, or the end of an attached session, means for a
// wait.
func refusedWait(m *session.Message, w *wait) outcome {
	if m.Refusal == session.RefusedNoSession {
		return outcome{row: core.Push{Seq: w.seq, State: core.ClaimGone, Code: core.CodeNoSession}}
	}
	return outcome{err: moved()}
}

// told passes news of a claim on.
func (a *attached) told(r *core.Push) {
	for _, w := range a.waits[a.from(r.Seq):] {
		if w.seq != r.Seq {
			return
		}
		w.l.settle(w.seq) // from now on pushes tell
		if r.State != core.ClaimWaiting {
			w.finish(outcome{row: *r})
		}
	}
}

// finish tells the waiter; the first word counts.
func (w *wait) finish(o outcome) {
	select {
	case w.done <- o:
	default:
	}
}

// closed is told that a stream has ended.
func (l *waitTable) closed(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.ended = true
	if l.conn != c {
		return
	}
	l.conn = nil
	for _, a := range l.waits {
		for _, w := range a.waits {
			w.finish(outcome{err: moved()})
		}
	}
}

func (l *waitTable) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}
