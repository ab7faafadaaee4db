package onstore

import (
	"context"
	"slices"
	"sync"
)

// Line lets the goroutines of a process take turns by name in the order of their
// arrival, so that one at a time asks the engine. The zero Line is ready.
type Line struct {
	mu    sync.Mutex
	names map[string][]*queueEntry
}

type queueEntry struct {
	head chan struct{} // closed when it is the first, or sent away
	id   [16]byte
	err  error // why it was sent away; when head is closed
}

// Wait joins the line for name and returns when everybody before has left, or
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
		l.names = map[string][]*queueEntry{}
	}
	l.names[name] = append(l.names[name], p)
	if len(l.names[name]) == 1 {
		close(p.head)
	}
	return len(l.names[name])
}

// part leaves the line; if that was the first, the next one is.
func (l *Line) part(name string, p *queueEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.names[name]
	i := slices.Index(line, p)
	if i < 0 {
		return
	}
	line = slices.Delete(line, i, i+1)
	if len(line) == 0 {
		delete(l.names, name)
		return
	}
	l.names[name] = line
	if i == 0 {
		close(line[0].head)
	}
}

// sendAway ends the waits behind the first with err: each of them would only find out the same,
// one after the other.
func (l *Line) sendAway(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.names[name]
	if len(line) < 2 {
		return
	}
	for _, p := range line[1:] {
		p.err = err
		close(p.head)
	}
	clear(line[1:])
	l.names[name] = line[:1]
}

// size is how many are in line for name.
func (l *Line) size(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.names[name])
}

// Waiting lists the waiters for name, the first first.
func (l *Line) Waiting(name string) [][16]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids [][16]byte
	for _, p := range l.names[name] {
		ids = append(ids, p.id)
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

// borrow is the line of a place; nobody shares the empty one.
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
