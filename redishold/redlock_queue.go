package redishold

import "slices"

// turns are the waiters of one name in this client, the first of which asks the
// servers.
type turns struct{ waiting []*lockTurn }

// lockTurn is a place in the queue; mine is closed when it is the first. freed says that
// this client has given the mutex back since.
type lockTurn struct{ mine, freed chan struct{} }

// enqueue goes to the end of the queue of a name and tells the place, 1 being first.
func (r *redlock) enqueue(name string) (*lockTurn, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.queues[name]
	if l == nil {
		l = &turns{}
		r.queues[name] = l
	}
	t := &lockTurn{mine: make(chan struct{}), freed: make(chan struct{}, 1)}
	l.waiting = append(l.waiting, t)
	if len(l.waiting) == 1 {
		close(t.mine)
	}
	return t, len(l.waiting)
}

// stepOut goes out of the queue; the next is first then.
func (r *redlock) stepOut(name string, t *lockTurn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.queues[name]
	first := l.waiting[0] == t
	l.waiting = slices.DeleteFunc(l.waiting, func(o *lockTurn) bool { return o == t })
	switch {
	case len(l.waiting) == 0:
		delete(r.queues, name)
	case first:
		close(l.waiting[0].mine)
	}
}

// handOn tells the first in the queue of a name that the mutex was given back, so that it does
// not wait until its next look.
func (r *redlock) handOn(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.queues[name]; l != nil {
		nudge(l.waiting[0].freed)
	}
}
