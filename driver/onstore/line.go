package onstore

import (
	"container/list"
	"context"
	"sync"
)

// Line lets the goroutines of a process take turns by name in the order of their
// arrival, so that one at a time asks the engine. The zero Line is ready.
type Line struct {
	mu    sync.Mutex
	names map[string]*list.List // of *queueEntry; leaving takes as long in a long queue as in a short one
}

type queueEntry struct {
	head chan struct{} // closed when it is the first, or sent away
	id   [16]byte
	err  error // why it was sent away; when head is closed
	at   *list.Element
}

// Wait joins the queue for name and returns when everybody before has left, or
// with ctx's error. position is called with the place, 1 being next, if it is
// not nil. A caller that got no error has to call leave.
func (l *Line) Wait(ctx context.Context, name string, id [16]byte, position func(int)) (leave func(), err error) {
	p := &queueEntry{head: make(chan struct{}), id: id}
	n := l.join(name, p)
	leave = func() { l.part(name, p) }
	if position != nil {
		position(n)
	}
	select {
	case <-p.head:
		if p.err != nil {
			return nil, p.err
		}
		return leave, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

func (l *Line) join(name string, p *queueEntry) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil {
		l.names = map[string]*list.List{}
	}
	queue := l.names[name]
	if queue == nil {
		queue = list.New()
		l.names[name] = queue
		close(p.head)
	}
	p.at = queue.PushBack(p)
	return queue.Len()
}

// part leaves the queue; if that was the first, the next one is. A second time does nothing.
func (l *Line) part(name string, p *queueEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.names[name]
	if queue == nil {
		return
	}
	first := queue.Front() == p.at
	queue.Remove(p.at)
	switch {
	case queue.Len() == 0:
		delete(l.names, name)
	case first:
		close(entryOf(queue.Front()).head)
	}
}

func entryOf(e *list.Element) *queueEntry { return e.Value.(*queueEntry) }

// sendAway ends the waits behind the first with err: each of them would only find out the same,
// one after the other.
func (l *Line) sendAway(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.names[name]
	for queue != nil && queue.Len() > 1 {
		p := entryOf(queue.Front().Next())
		p.err = err
		close(p.head)
		queue.Remove(p.at)
	}
}

// size is how many are in the queue for name.
func (l *Line) size(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if queue := l.names[name]; queue != nil {
		return queue.Len()
	}
	return 0
}

// Waiting lists the waiters for name, the first first.
func (l *Line) Waiting(name string) [][16]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.names[name]
	if queue == nil {
		return nil
	}
	ids := make([][16]byte, 0, queue.Len())
	for e := queue.Front(); e != nil; e = e.Next() {
		ids = append(ids, entryOf(e).id)
	}
	return ids
}

// lines are those that drivers of one place share.
var lines = struct {
	sync.Mutex
	byPlace map[string]*shared
}{byPlace: map[string]*shared{}}

type shared struct {
	Line            // for locks
	turns  Line     // to change counters and sequences
	claims sync.Map // [16]byte → driver.Claim: of waiters
	refs   int
}

// borrow is the queue of a place; nobody shares the empty one.
func borrow(where string) *shared {
	lines.Lock()
	defer lines.Unlock()
	s := lines.byPlace[where]
	if s == nil || where == "" {
		s = &shared{}
		lines.byPlace[where] = s
	}
	s.refs++
	return s
}

func (s *shared) giveBack(where string) {
	lines.Lock()
	defer lines.Unlock()
	if s.refs--; s.refs == 0 && lines.byPlace[where] == s {
		delete(lines.byPlace, where)
	}
}
