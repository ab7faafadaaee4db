package replica_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// ending is a node that ends a session with 100 keys, four with each entry, and a session
// of others that stays.
func ending(t *testing.T) *replica.Node {
	t.Helper()
	n, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{Budget: 4}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	much, other := core.SessionID{1}, core.SessionID{2}
	puts := make([]core.KeyOp, 100)
	for i := range puts {
		puts[i] = core.KeyOp{Kind: core.KeyPut, Key: fmt.Sprintf("key %03d", i), Session: much}
	}
	written(n, 0)
	submit(n, 0, other, open())
	submit(n, 0, much, open(), core.Command{Op: core.OpTxn, Seq: 1, Then: puts})
	written(n, 0)
	submit(n, 0, much, core.Command{Op: core.OpEnd})
	written(n, 0)
	if !n.Machine().Behind() {
		t.Fatal("the session has ended with one entry")
	}
	return n
}

var lastCaller replica.Caller

func submit(n *replica.Node, now int64, id core.SessionID, commands ...core.Command) replica.Caller {
	lastCaller++
	n.Submit(now, lastCaller, core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: commands}))
	return lastCaller
}

// written writes until there is nothing left to do, and counts what is applied up to the answer
// of a caller.
func written(n *replica.Node, c replica.Caller) (entries int) {
	for {
		out := n.Output()
		entries += len(out.Applied)
		for _, a := range out.Answers {
			if a.Caller == c {
				return entries
			}
		}
		if len(out.Writes) == 0 {
			return entries
		}
		n.Written(0, out.Writes[len(out.Writes)-1].ID)
	}
}

// Promise: while a session with much ends, a command waits for one entry beside its own.
func TestEndsLetOthersThrough(t *testing.T) {
	n := ending(t)
	for seq := range uint64(3) {
		c := count()
		c.Seq = seq + 1
		submit(n, 0, core.SessionID{2}, c)
		n.Output() // it flies, unless it has to wait
	}
	last := count()
	last.Seq = 4
	c := submit(n, 0, core.SessionID{2}, last)
	n.Written(0, math.MaxUint64)
	if got := written(n, c); got != 2 || !n.Machine().Behind() {
		t.Errorf("a command was answered with entry %d, want the second; a rest remains: %v", got, n.Machine().Behind())
	}
}

// Promise: the end of a session goes on by itself in half of the time at most; a
// command does not wait for that.
func TestEndsPause(t *testing.T) {
	n := ending(t)
	const took = 3 * tick
	now := int64(took)
	n.Rest(0, now)
	for range 2 {
		now += tick
		n.Tick(now)
		if got := written(n, 0); got != 0 {
			t.Fatalf("%d entries after %d ns of a pause of %d", got, now-took, took)
		}
	}
	c := count()
	if got := written(n, submit(n, now, core.SessionID{2}, c)); got != 1 {
		t.Errorf("a command in the pause was answered with entry %d", got)
	}
	now += tick
	n.Tick(now)
	if got := written(n, 0); got == 0 {
		t.Error("nothing goes on after the pause")
	}
}
