package pipeline

import (
	"cmp"
	"container/heap"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// Policy is the order in which waiting runs start, under its name in files.
type Policy string

// The policies.
const (
	// FIFO starts the oldest first and replaces nothing.
	FIFO Policy = "fifo"
	// Newest keeps only the newest waiting: a run that joins replaces those that
	// wait. What has started goes on.
	Newest Policy = "newest"
	// CancelOlder keeps only the newest at all: a run that joins replaces those that
	// wait and those that have started.
	CancelOlder Policy = "cancel-older"
	// Priority starts the run with the highest priority first, the oldest of equals.
	// No run starves: see [MaxPassed].
	Priority Policy = "priority"
)

// MaxPassed bounds how long [Priority] may pass over a run: after so many starts of
// others the oldest that waits is next, whatever its priority. So a run with n older ones
// before it is started by the (n+1)·(MaxPassed+1)th start after it joined.
const MaxPassed = 16

// MaxWaiting is the most runs that wait in a queue; more are refused.
const MaxWaiting = 1 << 16

// Run is one run.
type Run struct {
	// ID names it; no other in the queue has the same.
	ID string `json:"id"`
	// Priority counts under the policy [Priority] only; more is earlier.
	Priority int `json:"priority,omitempty"`
}

// Queue has the runs that wait for a place and those that have one. How many places
// there are its user knows: it calls [Queue.Start] when there is room. The zero Queue is an
// empty one with [FIFO]. It is not for several goroutines at once.
type Queue struct {
	policy  Policy
	known   map[string]*entry
	waiting int
	joined  uint64
	// byAge has the runs that wait, in order, and best the same as a heap, the next by
	// priority first. Both also have some that wait no more, until they are trimmed.
	byAge []*entry
	best  byPriority
	// passed counts the starts of others since the oldest has been the oldest.
	passed int
}

type entry struct {
	run   Run
	age   uint64
	state state
}

type state uint8

const (
	waits state = iota
	runs
	gone
)

// NewQueue makes an empty queue; an unknown policy is an [fs.ErrInvalid].
func NewQueue(policy Policy) (*Queue, error) {
	switch policy {
	case FIFO, Newest, CancelOlder, Priority:
		return &Queue{policy: policy, known: map[string]*entry{}}, nil
	}
	return nil, fmt.Errorf("pipeline: queue: the policy %q is none of fifo, newest, cancel-older, priority: %w", policy, fs.ErrInvalid)
}

// Join lets a run wait, and answers with the runs that it replaces, the oldest first:
// they are no longer in the queue, and their user cancels them. An empty ID, one that is
// in the queue ([fs.ErrExist]) and a full queue are errors that change nothing.
func (q *Queue) Join(r Run) (replaced []Run, err error) {
	switch {
	case r.ID == "":
		return nil, fmt.Errorf("pipeline: queue: join: the ID is empty: %w", fs.ErrInvalid)
	case q.known[r.ID] != nil:
		return nil, fmt.Errorf("pipeline: queue: join %q: it is in the queue already: %w", r.ID, fs.ErrExist)
	case q.waiting >= MaxWaiting:
		return nil, fmt.Errorf("pipeline: queue: join %q: %d runs wait already; join again when some have started", r.ID, q.waiting)
	}
	if q.known == nil {
		q.known = map[string]*entry{}
	}
	replaced = q.replace()
	e := &entry{run: r, age: q.joined}
	q.joined++
	q.waiting++
	q.known[r.ID] = e
	q.byAge = append(q.byAge, e)
	if q.policy == Priority {
		heap.Push(&q.best, e)
	}
	return replaced, nil
}

// replace takes out what a new run replaces.
func (q *Queue) replace() (replaced []Run) {
	if q.policy != Newest && q.policy != CancelOlder {
		return nil
	}
	var out []*entry
	for _, e := range q.known {
		if e.state == waits || q.policy == CancelOlder {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *entry) int { return cmp.Compare(a.age, b.age) })
	for _, e := range out {
		replaced = append(replaced, e.run)
		q.leave(e)
	}
	q.trim()
	return replaced
}

// Start takes the run that is next out of those that wait; false: none waits. It stays
// in the queue as one that has started, until it leaves.
func (q *Queue) Start() (Run, bool) {
	e := q.next()
	if e == nil {
		return Run{}, false
	}
	if e != q.oldest() {
		q.passed++
	} else {
		q.passed = 0
	}
	e.state = runs
	q.waiting--
	q.trim()
	return e.run, true
}

// next is the run that starts next, or nil.
func (q *Queue) next() *entry {
	oldest := q.oldest()
	if q.policy != Priority || q.passed >= MaxPassed {
		return oldest
	}
	for len(q.best) > 0 && q.best[0].state != waits {
		heap.Pop(&q.best)
	}
	if len(q.best) == 0 {
		return nil
	}
	return q.best[0]
}

// Leave takes a run out, whether it waits or has ended; false: it is not there.
func (q *Queue) Leave(id string) bool {
	e := q.known[id]
	if e == nil {
		return false
	}
	if e == q.oldest() {
		q.passed = 0
	}
	q.leave(e)
	q.trim()
	return true
}

func (q *Queue) leave(e *entry) {
	if e.state == waits {
		q.waiting--
	}
	e.state = gone
	delete(q.known, e.run.ID)
}

// Waiting is how many wait.
func (q *Queue) Waiting() int { return q.waiting }

// Started is how many have started and not left.
func (q *Queue) Started() int { return len(q.known) - q.waiting }

// oldest is the run that waits longest, or nil.
func (q *Queue) oldest() *entry {
	for len(q.byAge) > 0 && q.byAge[0].state != waits {
		q.byAge = q.byAge[1:]
	}
	if len(q.byAge) == 0 {
		return nil
	}
	return q.byAge[0]
}

// trim drops those that wait no more once they are the most, so that a queue costs
// memory for what is in it.
func (q *Queue) trim() {
	idle := func(e *entry) bool { return e.state != waits }
	const few = 16
	if len(q.byAge) > 2*q.waiting+few {
		q.byAge = slices.DeleteFunc(slices.Clone(q.byAge), idle)
	}
	if len(q.best) > 2*q.waiting+few {
		q.best = slices.DeleteFunc(q.best, idle)
		heap.Init(&q.best)
	}
}

// byPriority is a heap: the highest priority first, of equals the oldest.
type byPriority []*entry

func (h byPriority) Len() int      { return len(h) }
func (h byPriority) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h byPriority) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[j].run.Priority, h[i].run.Priority), cmp.Compare(h[i].age, h[j].age)) < 0
}

// Push is for container/heap.
func (h *byPriority) Push(e any) { *h = append(*h, e.(*entry)) }

// Pop is for container/heap.
func (h *byPriority) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}

// QueueState is all that a queue knows, to be kept.
type QueueState struct {
	// Runs are in the order in which they joined.
	Runs []QueuedRun `json:"runs,omitempty"`
	// Passed is how often the oldest that waits was passed over.
	Passed int `json:"passed,omitempty"`
}

// QueuedRun is a run of a [QueueState].
type QueuedRun struct {
	Run
	// Started: it has its place.
	Started bool `json:"started,omitempty"`
}

// State is the queue as [RestoreQueue] takes it.
func (q *Queue) State() QueueState {
	list := slices.SortedFunc(maps.Values(q.known), func(a, b *entry) int { return cmp.Compare(a.age, b.age) })
	s := QueueState{Passed: q.passed}
	for _, e := range list {
		s.Runs = append(s.Runs, QueuedRun{e.run, e.state == runs})
	}
	return s
}

// RestoreQueue makes a queue that goes on where the state was taken. A state that no queue
// has is an [fs.ErrInvalid].
func RestoreQueue(policy Policy, s QueueState) (*Queue, error) {
	q, err := NewQueue(policy)
	if err != nil {
		return nil, err
	}
	if s.Passed < 0 {
		return nil, fmt.Errorf("pipeline: queue: restore: the oldest was passed over %d times: %w", s.Passed, fs.ErrInvalid)
	}
	for _, r := range s.Runs {
		if r.ID == "" || q.known[r.ID] != nil {
			return nil, fmt.Errorf("pipeline: queue: restore: the ID %q is empty or there twice: %w", r.ID, fs.ErrInvalid)
		}
		e := &entry{run: r.Run, age: q.joined}
		q.joined++
		q.known[r.ID] = e
		if r.Started {
			e.state = runs
			continue
		}
		q.waiting++
		q.byAge = append(q.byAge, e)
		if policy == Priority {
			heap.Push(&q.best, e)
		}
	}
	q.passed = s.Passed
	return q, nil
}
