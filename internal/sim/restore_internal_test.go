package sim

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Promise: "A client that sees another cluster id loses its holds at once", and
// no token comes again, although the wall clock was set back to before the
// cluster began.
func TestHoldersLoseOverRestore(t *testing.T) {
	for _, wait := range []time.Duration{0, restoreWait} {
		c := story(t, 3, 2, 8*time.Second)
		lock := core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "jobs", Kind: core.Mutex}}}
		first := c.clients[0].ask(lock)
		c.await(t, "the lock", answered(first))
		old := c.clients[0].session
		l := c.leader()
		l.input(func() { l.replica.WantSnapshot(l.now()) })
		c.await(t, "a snapshot", func() bool { return l.replica.Status().SnapshotIndex > 1 })
		c.save(l)
		c.wallOff = -100 * 86400
		c.restoreFrom(c.backups[0], wait)
		c.await(t, "the loss", func() bool { return !old.Alive() })
		if d, _ := old.Deadline(); c.clients[0].now() >= d {
			t.Errorf("wait %s: the holder lost only at its deadline", wait)
		}
		from := c.now
		other := c.clients[1]
		c.await(t, "a session in the new cluster", func() bool { return other.sessions > 1 && other.session.Opened() })
		var token uint64
		c.await(t, "the lock for another", func() bool {
			call := other.ask(lock)
			c.await(t, "an answer", answered(call))
			token = call.Result.Token
			return call.Result.Code == core.CodeOK
		})
		if token <= first.Result.Token || token >= 1<<53 {
			t.Errorf("wait %s: token %d after %d", wait, token, first.Result.Token)
		}
		if waited := time.Duration(c.now - from); waited < wait*8/10 {
			t.Errorf("granted after %s, want to wait for %s", waited, wait)
		}
		if wait == 0 {
			c.await(t, "three voters", func() bool {
				n := c.leader()
				return n != nil && len(n.replica.Status().Members.Conf.GetVoters()) == 3
			})
		}
	}
}
