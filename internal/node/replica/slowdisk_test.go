package replica_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// ticking lets time pass, and does everything but what a stuck disk would.
func (x *trio) ticking(n int) {
	for range n {
		x.now += tick
		for id := uint64(1); id <= 3; id++ {
			x.nodes[id].Tick(x.now)
			x.pump(id)
		}
	}
}

// A leader whose disk does not write for an election timeout what the others have
// written hands over to one of them, which serves.
func TestSlowDiskHandsOver(t *testing.T) {
	x := newTrio(t)
	x.stuck = 1
	x.nodes[1].Submit(x.now, 7, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{1}, Attempt: 1, Mark: 1, Commands: []core.Command{open()}}))
	x.ticking(9)
	if !x.nodes[1].Status().Leading {
		t.Fatal("it gave up before an election timeout had passed")
	}
	x.ticking(6)
	if x.nodes[1].Status().Leading || !x.nodes[2].Status().Serving && !x.nodes[3].Status().Serving {
		t.Errorf("15 ticks after its disk got stuck: %+v", x.nodes[1].Status())
	}
}

// Where no disk is quicker, nothing changes hands.
func TestSlowDisksEverywhere(t *testing.T) {
	x := newTrio(t)
	x.nodes[1].Submit(x.now, 7, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{1}, Attempt: 1, Mark: 1, Commands: []core.Command{open()}}))
	for range 40 {
		x.now += tick
		for id := uint64(1); id <= 3; id++ {
			x.nodes[id].Tick(x.now)
		}
		for moved := true; moved; { // messages go, no disk does anything
			moved = false
			for id := uint64(1); id <= 3; id++ {
				for _, m := range x.nodes[id].Output().Messages {
					moved = true
					if err := x.nodes[m.To].Step(x.now, m.Data); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	if st := x.nodes[1].Status(); !st.Leading || st.Term != x.nodes[2].Status().Term {
		t.Errorf("the leader gave up for nobody: %+v", st)
	}
}
