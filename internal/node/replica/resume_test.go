package replica_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// holdersWait is how many ticks go by until nobody believes any more in a session of 30 s.
const holdersWait = 310

// The state of a node that differs is given up, and with it the grants that it has made: no token
// of those comes again, whether it led or not.
func TestCheck_TokensGoOnBeyondWhatIsGivenUp(t *testing.T) {
	for _, id := range []uint64{1, 3} {
		x := checking(t)
		wrong := x.nodes[id].Machine()
		ahead := wrong.Revision() + 1000
		wrong.Raise(ahead)
		for i := 0; !x.nodes[id].Status().Healing; i++ {
			if x.tickAll(1); i > 200 {
				t.Fatalf("node %d does not heal", id)
			}
		}
		x.until(replica.CheckAgrees)
		for n := range x.nodes {
			if is := x.nodes[n].Status().Revision; is < ahead || is > ahead+100 {
				t.Errorf("node %d had %d, and in the end node %d has %d", id, ahead, n, is)
			}
		}
	}
}

// A leader that differs tells how far its tokens have come before it hands over: the next one grants nothing below.
func TestCheck_TheNextLeaderGrantsBeyond(t *testing.T) {
	x := checking(t)
	ahead := x.nodes[1].Machine().Revision() + 1000
	x.nodes[1].Machine().Raise(ahead)
	for i := 0; !x.nodes[2].Status().Serving && !x.nodes[3].Status().Serving; i++ {
		if x.tickAll(1); i > 400 {
			t.Fatal("no other node leads")
		}
	}
	lead := x.nodes[x.nodes[2].Status().Leader]
	if is := lead.Status().Revision; is < ahead {
		t.Errorf("it begins to serve at %d, below %d", is, ahead)
	}
}

// A revision that is ahead of all that can have been granted is the fault itself, and is not taken over.
func TestCheck_WildRevisionIsNotTakenOver(t *testing.T) {
	for _, id := range []uint64{1, 3} {
		x := checking(t)
		x.nodes[id].Machine().Raise(1 << 52)
		for i := 0; !x.nodes[id].Status().Healing; i++ {
			if x.tickAll(1); i > 200 {
				t.Fatalf("node %d does not heal", id)
			}
		}
		x.until(replica.CheckAgrees)
		if is := x.nodes[2].Status().Revision; is > 1<<51 {
			t.Errorf("the revision is %d", is)
		}
	}
}

// What an operator has given up may have granted anything, and a node of it may be gone: tokens go on
// beyond all that it can have had, and grants when nobody believes any more in what it granted.
func TestCheck_UnfreezeGivesUpWhatWasGranted(t *testing.T) {
	x := checking(t)
	x.damage(2, 5)
	x.damage(3, 6)
	x.until(replica.CheckNoRule)
	before := x.nodes[1].Status().Revision
	x.nodes[1].Unfreeze(x.now, 11, 2)
	x.settle()
	ends, told, waited := x.nodes[2].Status().Frozen, "", 0
	for ; ends; waited++ {
		x.tickAll(1)
		if notice := x.out[x.nodes[2].Status().Leader].Notice; notice != nil && strings.Contains(notice.Error(), "grants go on in") {
			told = notice.Error()
		}
		ends = x.nodes[2].Status().Frozen && waited < 1000
	}
	if waited < holdersWait-10 || waited > holdersWait+100 {
		t.Errorf("grants go on after %d ticks", waited)
	}
	if !strings.Contains(told, "node 2 is right") || !strings.Contains(told, "grants go on in 30s") {
		t.Errorf("an operator is told %q", told)
	}
	if is := x.nodes[2].Status().Revision; is < before+1<<40 || is > before+1<<41 {
		t.Errorf("the revision was %d, and is %d", before, is)
	}
}

// A group of before raises nothing.
func TestCheck_NothingIsRaisedBefore(t *testing.T) {
	x := checkingFrom(t, newTrioOf(t, replica.Config{CheckEvery: 1e10, Newest: 5}))
	x.nodes[1].Machine().Raise(x.nodes[1].Machine().Revision() + 1000)
	x.tickAll(400)
	for id, n := range x.nodes {
		if st := n.Status(); st.Revision > 1000 || st.Healing || st.Version != 5 {
			t.Errorf("node %d has revision %d, version %d", id, st.Revision, st.Version)
		}
	}
}
