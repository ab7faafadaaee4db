package sim

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/core"
)

// The names that clients fight over: few, so that they meet.
const (
	mutexes    = 3
	semaphores = 2
	capacity   = 5
	counters   = 2
)

// work lets a client do something now and then.
func (k *client) work() {
	k.c.after(k.c.between(10*millisecond, 250*millisecond), func() {
		if k.c.healing {
			return
		}
		k.input(k.something)
		k.work()
	})
}

// something picks an operation.
func (k *client) something() {
	if k.session == nil || !k.session.Alive() || len(k.calls) > 12 {
		return
	}
	r := k.c.rng
	switch r.IntN(16) {
	case 0, 1, 2:
		k.acquire(core.Want{Name: fmt.Sprintf("mutex-%d", r.IntN(mutexes)), Kind: core.Mutex})
	case 3, 4:
		mode := core.Mode(r.IntN(2))
		k.acquire(core.Want{Name: "rw", Kind: core.RWMutex, Mode: mode})
	case 5, 6:
		k.acquire(core.Want{Name: fmt.Sprintf("semaphore-%d", r.IntN(semaphores)), Kind: core.Semaphore, Mode: core.Shared, Weight: 1 + r.Int64N(capacity), Limit: capacity})
	case 7, 8:
		name := fmt.Sprintf("counter-%d", r.IntN(counters))
		k.submit(&op{name: name, amount: 1}, core.Command{Op: core.OpCount, Name: name, Count: core.CountAdd, Unsigned: true, A: 1})
	case 9:
		k.submit(&op{name: "ids"}, core.Command{Op: core.OpReserve, Name: "ids", A: 1 + r.Uint64N(5), B: 1})
	case 10:
		k.abandon()
	case 11:
		k.upgrade()
	case 12:
		key := fmt.Sprintf("key-%d", r.IntN(3))
		k.submit(&op{name: key}, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: key, Value: []byte("x"), Expire: r.Int64N(2) * second}}})
	case 13:
		k.force()
	case 14:
		k.read(k.c.nodes[r.IntN(len(k.c.nodes))])
	case 15:
		k.limit()
	}
}

// acquire claims a name, unless this client has or awaits it already: one claim
// a session and name keeps the checks simple.
func (k *client) acquire(w core.Want) {
	for _, o := range k.calls {
		if o.name == w.Name {
			return
		}
	}
	cmd := core.Command{Op: core.OpAcquire, Wants: []core.Want{w}}
	switch k.c.rng.IntN(6) {
	case 0:
		cmd.Flags = core.Try
	case 1:
		cmd.Wait = k.c.between(millisecond, 3*second)
	case 2:
		cmd.MaxHold = k.c.between(200*millisecond, 3*second)
	}
	k.submit(&op{name: w.Name, mode: w.Mode, weight: w.Weight}, cmd)
}

// abandon stops waiting for a claim.
func (k *client) abandon() {
	for _, o := range k.calls {
		if o.kind == core.OpAcquire && !o.held && o.s == k.session {
			_, actions := k.session.Abandon(k.now(), o.call)
			k.drop(o)
			k.do(actions)
			return
		}
	}
}

// upgrade turns a held reader into the writer, if no other upgrade is on.
func (k *client) upgrade() {
	for _, o := range k.calls {
		if o.name == "rw" && o.held && !o.busy && o.mode == core.Shared && o.s == k.session {
			o.busy = true
			k.submit(&op{name: "rw-upgrade", mode: core.Exclusive, base: o}, core.Command{Op: core.OpUpgrade, Target: o.call.Seq()})
			return
		}
	}
}

// force takes somebody's hold away, as an operator would.
func (k *client) force() {
	name := "rw"
	switch i := k.c.rng.IntN(mutexes + semaphores + 1); {
	case i < mutexes:
		name = fmt.Sprintf("mutex-%d", i)
	case i > mutexes:
		name = fmt.Sprintf("semaphore-%d", i-mutexes-1)
	}
	if r := k.c.check.names[name]; r != nil && len(r.holders) > 0 {
		k.submit(&op{name: "force"}, core.Command{Op: core.OpForce, Name: name, Token: r.holders[0].token})
	}
}
