package holdfast

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// turns has the callers that are to ask for a key, in order of arrival, those of a window until they are served. It is
// the turn of the first, and of those behind it for which there is room too, as the last answer told: they need not ask
// one after the other. What callers that left took is given back in turn with them.
type turns struct {
	mu     sync.Mutex
	queues map[string]*turnQueue
}

// turnQueue has the places of a key.
type turnQueue struct {
	list.List
	refused bool          // the first was, and waits until there is room for it
	joined  uint64        // how many ever did
	opened  int64         // the costs of those that have their turn
	next    *list.Element // before it all have their turn; nil: all do
	told    refusal       // what those that wait were told last
	heard   uint64        // how many answers there were of callers that are served
	rooms   []room        // of these, those of which none since left less: the least first
}

// room is what an answer left for others.
type room struct {
	nth  uint64 // in the order in which callers left with their answers
	left int64
}

// maxRooms is how many answers are looked at one by one; those before count as one, by the least that one of them left.
const maxRooms = 64

// refusal is what an answer says to others: until then there is no room for cost.
type refusal struct {
	nth   uint64 // in order of the answers
	to    uint64 // those that had joined were told
	cost  int64
	until time.Time
}

// place is that of a caller. Of a nil place it is always the turn.
type place struct {
	t     *turns
	name  string
	own   *list.Element
	nth   uint64 // in order of arrival
	cost  int64
	ends  time.Time // when the caller's context does; zero: never
	open  bool
	gone  bool          // it was left
	told  uint64        // the last refusal before the caller asked
	since uint64        // the last answer before the caller asked
	heard bool          // the caller is served
	turn  chan struct{} // closed when it is the caller's turn, which alone replaces it
	left  int64         // what the caller's answer left for others
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

// overtake is a place before all that wait for their turn, with which none of them goes on.
func (t *turns) overtake(name string) *place {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queue(name)
	if q.next == nil {
		return t.enter(name, limit.MaxCount, time.Time{})
	}
	p := t.place(name, limit.MaxCount, time.Time{})
	p.nth = q.next.Value.(*place).nth
	p.own = q.InsertBefore(p, q.next)
	q.next = p.own
	return p
}

// queue is that of a key, which is made if there is none.
func (t *turns) queue(name string) *turnQueue {
	if t.queues == nil {
		t.queues = map[string]*turnQueue{}
	}
	if t.queues[name] == nil {
		t.queues[name] = &turnQueue{}
	}
	return t.queues[name]
}

func (t *turns) place(name string, cost int64, ends time.Time) *place {
	return &place{t: t, name: name, cost: min(max(cost, 0), limit.MaxCount), ends: ends, turn: make(chan struct{}), look: make(chan struct{}, 1)}
}

func (t *turns) enter(name string, cost int64, ends time.Time) *place {
	q, p := t.queue(name), t.place(name, cost, ends)
	q.joined++
	p.nth, p.own = q.joined, q.PushBack(p)
	q.waits(p)
	q.admit(0)
	return p
}

// behind is a place behind all others, as large as this one.
func (p *place) behind() *place {
	if p == nil {
		return nil
	}
	return p.t.join(p.name, p.cost, p.ends)
}

// await returns when it is the turn of a place, or ctx has ended.
func (p *place) await(ctx context.Context) {
	if p == nil {
		return
	}
	select {
	case <-p.turn:
	case <-ctx.Done():
	}
}

// over: the place was left.
func (p *place) over() bool {
	if p == nil {
		return false
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	return p.gone
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
	p.open, p.told, p.since = true, q.told.nth, q.heard
	q.opened += p.cost
	close(p.turn)
}

// asks notes that the caller asks now.
func (p *place) asks() {
	if p == nil {
		return
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if q := p.t.queues[p.name]; !p.gone {
		p.since = q.heard
	}
}

// room is what is left for others by the answer of a caller that leaves with it. Answers of callers that asked together do
// not come in the order in which they were decided: the last of those, which leaves least, may have come before.
func (q *turnQueue) room(p *place) int64 {
	for n := len(q.rooms); n > 0 && q.rooms[n-1].left >= p.left; n-- {
		q.rooms = q.rooms[:n-1]
	}
	q.heard++
	q.rooms = append(q.rooms, room{q.heard, p.left})
	if len(q.rooms) > maxRooms {
		q.rooms[1].left = q.rooms[0].left
		q.rooms = slices.Delete(q.rooms, 0, 1)
	}
	i, _ := slices.BinarySearchFunc(q.rooms, p.since+1, func(r room, nth uint64) int { return cmp.Compare(r.nth, nth) })
	return q.rooms[i].left
}

// answered notes what the backend has said to the caller, for the others. An error says nothing.
func (p *place) answered(d limit.Decision, err error) {
	switch {
	case p == nil || err != nil || d.RetryAfter == limit.Never:
	case d.Allowed:
		p.left, p.heard = d.Remaining, true
	default:
		p.refuseOthers(d.RetryAfter)
	}
}

// makeRoom has others go on with the caller's answer beside those for which it left room.
func (p *place) makeRoom(n int64) {
	if p != nil {
		p.left += n
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
	left := p.left
	if p.heard {
		left = q.room(p)
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
	q.admit(left)
}
