package gateway

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A gateway with all its leases in use looks at all of them now and then, not with each
// call; those that nobody uses go.
func TestLeasesInUse(t *testing.T) {
	g := &Gateway{leases: map[core.SessionID]*lease{}}
	add := func(n int) (l *lease) {
		for range n {
			g.ids++
			l = g.remember(&lease{g: g, number: int64(g.ids), id: sessionOf("default", int64(g.ids))})
		}
		return l
	}
	add(keepLeases + 1) // the last one has them looked at
	idle := add(1)
	g.release(idle)
	add(keepLeases - 3)
	if g.known(idle.id) == nil {
		t.Fatalf("%d leases in use were looked at again, for %d that came", keepLeases, keepLeases)
	}
	g.release(idle)
	add(2)
	if g.known(idle.id) != nil {
		t.Error("a lease that nobody uses is kept when there are twice as many")
	}
}
