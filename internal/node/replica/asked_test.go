package replica_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// A change counts on those that answer after it was asked for, not on one that was heard just before: its directory
// may be what is lost.
func TestChangeCountsOnThoseThatAnswerNow(t *testing.T) {
	moving := replica.Change{Update: []replica.Endpoint{{ID: 2, Peer: "elsewhere", Client: "client-2"}}}
	for text, change := range map[string]replica.Change{"3 did not answer within 1s": removing(2), "those that answer now are no majority": moving} {
		c := grown(t)
		c.silent = 3
		if a := c.change(change); a.Outcome != replica.NotDone || a.Code != core.CodeConflict || !strings.Contains(a.Text, text) {
			t.Errorf("%+v is answered %+v; want %q", change, a, text)
		}
		c.silent = 0
		c.ticks(1)
		c.done(change)
		c.put(1)
	}
}

// What depends on nobody does not wait: a node that does not vote, and the last voter that stays.
func TestChangeThatDependsOnNobodyIsMadeAtOnce(t *testing.T) {
	c := grown(t)
	c.done(removing(3))
	for _, change := range []replica.Change{adding(4), removing(2)} {
		c.told = nil
		c.nodes[1].ChangeMembers(c.now, 9, change)
		if c.settle(); len(c.told) != 1 || c.told[0].Outcome != replica.Done {
			t.Errorf("%+v is answered %+v at once", change, c.told)
		}
	}
}

// A leader that hands over while a change waits answers that it was not made, and makes no other one meanwhile.
func TestChangeOfAnOldLeaderIsNotMade(t *testing.T) {
	c := grown(t)
	c.silent = 2
	c.told = nil
	c.nodes[1].ChangeMembers(c.now, 9, removing(3))
	c.nodes[1].ChangeMembers(c.now, 8, adding(4))
	c.settle()
	if len(c.told) != 1 || c.told[0].Caller != 8 || c.told[0].Code != core.CodeConflict {
		t.Fatalf("another change is answered %+v while one waits", c.told)
	}
	c.nodes[1].Transfer(c.now, 3)
	c.settle()
	if a := c.told[1:]; !c.nodes[3].Status().Serving || len(a) != 1 || a[0].Caller != 9 || a[0].Outcome != replica.NotDone || a[0].Code != core.CodeOK {
		t.Errorf("node %d leads, and the change is answered %+v", c.nodes[1].Status().Leader, a)
	}
}
