package replica

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// All events of an output are told, in order, up to a bound; beyond it watchers
// are told that some are missing.
func TestKeepEvents(t *testing.T) {
	n := &Node{}
	const step = maxEvents / 4
	for k := range uint64(5) {
		var out core.Output
		for i := range uint64(step) {
			out.Events = append(out.Events, core.Event{Revision: k*step + i})
		}
		n.keepEvents(&out)
	}
	if n.out.Jumped || len(n.out.Events) != 5*step || n.out.Events[5*step-1].Revision != 5*step-1 {
		t.Fatalf("%d events are kept, missing: %v", len(n.out.Events), n.out.Jumped)
	}
	n.keepEvents(&core.Output{Events: []core.Event{{Revision: 7}}})
	if !n.out.Jumped || len(n.out.Events) != 1 || n.out.Events[0].Revision != 7 {
		t.Errorf("%d events are kept, missing: %v; want the newest, and that others are missing", len(n.out.Events), n.out.Jumped)
	}
}

// Clients are sent to where the leader was found, as long as that is not where the group has it.
func TestLeaderIsElsewhere(t *testing.T) {
	n := &Node{leader: 2, members: Membership{Endpoints: []Endpoint{{ID: 2, Client: "group"}}}}
	for at, want := range map[string]string{"": "group", "flags": "flags"} {
		n.Elsewhere(map[uint64]string{2: at, 3: "another"})
		_, told := n.Leader()
		if sent := n.noLeader(core.SessionID{1}, 1, 1).Endpoint; told != want || sent != want {
			t.Errorf("found at %q: clients are told %q, sessions %q", at, told, sent)
		}
	}
}

// A node does not go on with a membership that it could not read.
func TestNoteEndpoints_CutOff(t *testing.T) {
	for _, dirs := range []bool{true, false} {
		n := &Node{}
		n.noteEndpoints([]byte{1, 2, 3}, dirs)
		if n.Err() == nil {
			t.Errorf("with directories: %v: three bytes were taken for an endpoint", dirs)
		}
	}
}
