package redishold

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// debts are the locks that a server has yet to be told to free. One goroutine a
// server, running while there are some, tells it.
type debts struct {
	mu      sync.Mutex
	owed    []debt
	running bool
}

type debt struct {
	task
	until time.Time // then the server has forgotten the lock by itself
}

// owe has a server told that a lock is not wanted, until it has heard.
func (r *redlock) owe(i int, k *lock) {
	n := r.nodes[i]
	d := debt{task{r.keys(k.name, k.id), k.freeArgs()}, driver.Now().Add(2 * k.session.Spec.TTL)}
	n.debts.mu.Lock()
	defer n.debts.mu.Unlock()
	n.debts.owed = append(n.debts.owed, d)
	if !n.debts.running {
		n.debts.running = r.spawn(func() { r.pay(n) })
	}
}

// pay tells a server what it is owed until there is nothing left.
func (r *redlock) pay(n *node) {
	for n.debts.due() > 0 {
		r.tell(n)
		select {
		case <-time.After(r.opts.BusyWaitMin):
		case <-r.life.Done():
			return
		}
	}
}

// due is how many debts there are; with none, pay ends.
func (d *debts) due() int {
	now := driver.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.owed) > 0 && d.owed[0].until.Before(now) {
		d.owed = d.owed[1:]
	}
	d.running = len(d.owed) > 0
	return len(d.owed)
}

// tell sends what is owed in one pipeline and keeps what was not heard.
func (r *redlock) tell(n *node) {
	ctx, cancel := context.WithTimeout(r.life, patience)
	defer cancel()
	rc, err := n.client(ctx)
	if err != nil {
		return
	}
	n.debts.mu.Lock()
	list := n.debts.owed
	n.debts.owed = nil
	n.debts.mu.Unlock()
	tasks := make([]task, len(list))
	for i := range list {
		tasks[i] = list[i].task
	}
	var left []debt
	for i, result := range freeScript.runAll(ctx, rc, tasks) {
		if result.Error() != nil {
			left = append(left, list[i])
		}
	}
	n.debts.mu.Lock()
	defer n.debts.mu.Unlock()
	n.debts.owed = append(left, n.debts.owed...)
}
