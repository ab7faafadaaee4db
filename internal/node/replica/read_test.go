package replica_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// A read that the quorum has confirmed, but that waits for what is committed to be
// applied, is answered when the node leads no more.
func TestDeposedLeaderAnswersConfirmedReads(t *testing.T) {
	x := newTrio(t)
	lead := x.nodes[1]
	x.stuck = 1 // the others commit what it has not written, and so not applied
	lead.Submit(x.now, 9, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{9}, Attempt: 1, Mark: 1, Commands: []core.Command{open()}}))
	x.pump(1)
	lead.Read(x.now, 10)
	x.pump(1)
	if len(x.out[1].Reads) > 0 || len(x.out[1].Answers) > 0 {
		t.Fatalf("%v read, and %v were answered", x.out[1].Reads, x.out[1].Answers)
	}
	x.electAnother()
	if lead.Status().Leading {
		t.Fatal("node 1 still leads")
	}
	for _, a := range x.answersOf(lead) {
		if a.Caller == 10 && a.Outcome == replica.NotDone {
			return
		}
	}
	t.Errorf("the read was never answered; the answers are %+v", x.out[1].Answers)
}
