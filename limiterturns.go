package holdfast

import (
	"container/list"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// turns has the callers that wait for a key of a window, in order of arrival. It is the turn of the first,
// and of those behind it for which there is room too, as the last answer told: they need not ask one after
// the other.
type turns struct {
	mu     sync.Mutex
	queues map[string]*turnQueue
}

// turnQueue has the places of a key.
type turnQueue struct {
	list.List
	refused bool // the first was, and waits until there is room for it
}

// place is that of a caller. Of a nil place it is always the turn.
type place struct {
	t    *turns
	name string
	own  *list.Element
	cost int64
	ends time.Time // when the caller's context does; zero: never
	open bool
	turn chan struct{} // closed when it is the caller's turn, which alone replaces it
	left int64         // what the caller's answer left for others
	// tooLong is how long the wait would be by what another was answered, if that is longer than the
	// caller's context; it is set before turn is closed.
	tooLong time.Duration
	look    chan struct{} // has one when the caller is to look whether it still is worth its place
}

// join is a place behind all others of the name.
func (t *turns) join(name string, cost int64, ends time.Time) *place {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[name]
	if q == nil {
		q = &turnQueue{}
		if t.queues == nil {
			t.queues = map[string]*turnQueue{}
		}
		t.queues[name] = q
	}
	p := &place{t: t, name: name, cost: max(cost, 0), ends: ends, turn: make(chan struct{}), look: make(chan struct{}, 1)}
	p.own = q.PushBack(p)
	q.admit(0)
	return p
}

// admit lets the first go on, and those behind it as long as all of them together find room in left. What has its
// turn and is not answered yet counts, too: it may not be taken off yet.
func (q *turnQueue) admit(left int64) {
	for e := q.Front(); e != nil; e = e.Next() {
		p := e.Value.(*place)
		if left -= p.cost; left < 0 && e != q.Front() {
			return
		}
		p.goOn()
	}
}

// goOn has the caller go on, if it waits.
func (p *place) goOn() {
	if !p.open {
		p.open = true
		close(p.turn)
	}
}

// answered notes what the backend has said to the caller, for the others. An error says nothing.
func (p *place) answered(d limit.Decision, err error) {
	switch {
	case p == nil || err != nil || d.RetryAfter == limit.Never:
	case d.Allowed:
		p.left = d.Remaining
	default:
		p.refuseOthers(d.RetryAfter)
	}
}

// refuseOthers tells those that wait for their turn, and not as long: one after the other, many would wait until
// their contexts end. Those of no smaller cost would be refused as the caller was, the others have to look.
func (p *place) refuseOthers(after time.Duration) {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	for e := p.t.queues[p.name].Front(); e != nil; e = e.Next() {
		if o := e.Value.(*place); !o.open && !o.ends.IsZero() && time.Until(o.ends) < after {
			o.refuse(after, o.cost < p.cost)
		}
	}
}

// refuse has the caller fail, or look first.
func (p *place) refuse(after time.Duration, look bool) {
	if !look {
		p.tooLong = after
		p.goOn()
		return
	}
	select {
	case p.look <- struct{}{}:
	default:
	}
}

// behindRefused: another waits before the caller, and was refused.
func (p *place) behindRefused() bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	return !p.open && p.t.queues[p.name].refused
}

// again is after a refusal; false: others are first, and the caller waits for its turn again.
func (p *place) again() bool {
	if p == nil {
		return true
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	q := p.t.queues[p.name]
	if q.Front() == p.own {
		q.refused = true
		return true
	}
	p.open, p.turn = false, make(chan struct{})
	return false
}

// leave takes the caller out of the queue, first or not.
func (p *place) leave() {
	if p == nil {
		return
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	q := p.t.queues[p.name]
	if q.Front() == p.own {
		q.refused = false
	}
	q.Remove(p.own)
	if q.Len() == 0 {
		delete(p.t.queues, p.name)
		return
	}
	q.admit(p.left)
}
