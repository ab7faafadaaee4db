package redishold

import (
	"context"
	"slices"
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

// maxTold is how many debts one pipeline has: as many as are answered in time.
const maxTold = 1000

// pay tells a server what it is owed until there is nothing left. One that does not
// answer is asked less and less often, up to once a second.
func (r *redlock) pay(n *node) {
	for pause := r.opts.BusyWaitMin; n.debts.due() > 0; {
		if pause = min(2*pause, max(time.Second, r.opts.BusyWaitMin)); r.tell(n) {
			pause = r.opts.BusyWaitMin
		}
		select {
		case <-time.After(pause):
		case <-r.life.Done():
			return
		}
	}
}

// due is how many debts there are; with none, pay ends. Those that are over are
// forgotten, wherever they stand: locks have TTLs of their own.
func (d *debts) due() int {
	now := driver.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed = slices.DeleteFunc(d.owed, func(o debt) bool { return o.until.Before(now) })
	d.running = len(d.owed) > 0
	return len(d.owed)
}

// take takes some of the debts.
func (d *debts) take() []debt {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(d.owed), maxTold)
	list := slices.Clone(d.owed[:n])
	d.owed = slices.Delete(d.owed, 0, n)
	return list
}

// keep takes debts back that were not heard; others come first.
func (d *debts) keep(list []debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed = append(d.owed, list...)
}

// tell sends some of what is owed in one pipeline and keeps what was not heard. false:
// nothing was.
func (r *redlock) tell(n *node) bool {
	ctx, cancel := context.WithTimeout(r.life, patience)
	defer cancel()
	rc, err := n.client(ctx)
	if err != nil {
		return false
	}
	list := n.debts.take()
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
	n.debts.keep(left)
	return len(left) < len(list)
}
