package holdfast

import (
	"container/list"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
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
	rejoined int           // those that had a place at the backend
	refused  bool          // the first was, and waits until there is room for it
	joined   uint64        // how many ever did
	opened   int64         // the costs of those that have their turn
	next     *list.Element // before it all have their turn; nil: all do
	told     refusal       // what those that wait were told last
}

// refusal is what an answer says to others: until then there is no room for cost.
type refusal struct {
	nth   uint64 // in order of the answers
	to    uint64 // those that had joined were told
	cost  int64
	until time.Time
}

// place is that of a caller. Of a nil place it is always the turn.
type place struct {
	t        *turns
	name     string
	own      *list.Element
	nth      uint64 // in order of arrival
	cost     int64
	ends     time.Time // when the caller's context does; zero: never
	open     bool
	gone     bool          // it was left
	rejoined bool          // it had a place at the backend
	told     uint64        // the last refusal before the caller asked
	turn     chan struct{} // closed when it is the caller's turn, which alone replaces it
	left     int64         // what the caller's answer left for others
	// tooLong is how long the wait would be by what another was answered, if that is longer than the
	// caller's context; it is set before turn is closed.
	tooLong time.Duration
	look    chan struct{} // has one when the caller is to look whether it still is worth its place
}

// join is a place behind all others of the name.
func (t *turns) join(name string, cost int64, ends time.Time) *place {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enter(name, cost, ends)
}

func (t *turns) enter(name string, cost int64, ends time.Time) *place {
	q := t.queues[name]
	if q == nil {
		q = &turnQueue{}
		if t.queues == nil {
			t.queues = map[string]*turnQueue{}
		}
		t.queues[name] = q
	}
	p := &place{t: t, name: name, cost: min(max(cost, 0), limit.MaxCount), ends: ends, turn: make(chan struct{}), look: make(chan struct{}, 1)}
	q.joined++
	p.nth, p.own = q.joined, q.PushBack(p)
	q.waits(p)
	q.admit(0)
	return p
}

// rejoin is join for a caller that had a place at the backend, which is gone: those that come later wait behind it.
func (t *turns) rejoin(name string, cost int64, ends time.Time) *place {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.enter(name, cost, ends)
	p.rejoined = true
	t.queues[name].rejoined++
	return p
}

// behindRejoined: it is not the caller's turn, and others that have rejoined may be before it.
func (p *place) behindRejoined() bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	return !p.open && p.t.queues[p.name].rejoined > 0
}

// waits notes that a place waits for its turn.
func (q *turnQueue) waits(p *place) {
	if q.next == nil || p.nth < q.next.Value.(*place).nth {
		q.next = p.own
	}
}

// admit lets the first go on, and those behind it as long as all of them together find room in left. What has its
// turn and is not answered yet counts, too: it may not be taken off yet. It looks at none of those again: that would
// take as much time as there are pairs of them.
func (q *turnQueue) admit(left int64) {
	for left -= q.opened; q.next != nil; q.next = q.next.Next() {
		p := q.next.Value.(*place)
		if p.open {
			continue
		}
		if left -= p.cost; left < 0 && p.own != q.Front() {
			return
		}
		q.goOn(p)
	}
}

// goOn has a caller that waits go on.
func (q *turnQueue) goOn(p *place) {
	p.open, p.told = true, q.told.nth
	q.opened += p.cost
	close(p.turn)
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
	q := p.t.queues[p.name]
	from := q.tell(p, after)
	for e := q.Back(); e != nil && e.Value.(*place).nth > from; e = e.Prev() {
		if o := e.Value.(*place); !o.open && !o.ends.IsZero() && time.Until(o.ends) < after {
			q.refuse(o, after, o.cost < p.cost)
		}
	}
}

// tell notes what a refusal says to those that wait, and returns the last of them that knows it: of callers that had
// their turn together and are refused alike, all would tell it to all, which takes as much time as there are pairs.
func (q *turnQueue) tell(p *place, after time.Duration) (from uint64) {
	until := driver.Now().Add(after)
	slack := after / 16 // answers of one moment come one after the other
	if p.told < q.told.nth && p.cost >= q.told.cost && !until.Add(-slack).After(q.told.until) {
		from = q.told.to
	} else {
		q.told = refusal{nth: q.told.nth + 1, cost: p.cost, until: until}
	}
	q.told.to, p.told = q.joined, q.told.nth // what it asks next says something new
	if q.next == nil {
		return q.joined
	}
	return max(from, q.next.Value.(*place).nth-1)
}

// refuse has a caller that waits fail, or look first.
func (q *turnQueue) refuse(p *place, after time.Duration, look bool) {
	if !look {
		p.tooLong = after
		q.goOn(p)
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
	q.opened -= p.cost
	q.waits(p)
	return false
}

// leave takes the caller out of the queue, first or not. Only the first call counts.
func (p *place) leave() {
	if p == nil {
		return
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.gone {
		return
	}
	p.gone = true
	q := p.t.queues[p.name]
	if p.rejoined {
		q.rejoined--
	}
	if q.Front() == p.own {
		q.refused = false
	}
	if p.open {
		q.opened -= p.cost
	}
	if q.next == p.own {
		q.next = p.own.Next()
	}
	q.Remove(p.own)
	if q.Len() == 0 {
		delete(p.t.queues, p.name)
		return
	}
	q.admit(p.left)
}
