package gateway

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
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
	if g.known(idle.id, 0) == nil {
		t.Fatalf("%d leases in use were looked at again, for %d that came", keepLeases, keepLeases)
	}
	g.release(idle)
	add(2)
	if g.known(idle.id, 0) != nil {
		t.Error("a lease that nobody uses is kept when there are twice as many")
	}
}

// A call that opens a lease for itself under a number that is in use takes the next one: it neither
// gets what the other holds nor ends its lease.
func TestLeaseOfAHold_NumberInUse(t *testing.T) {
	g := alone(t)
	first, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.ids--
	g.mu.Unlock()
	second, err := g.hold(t.Context(), core.Want{Name: "y", Kind: core.Mutex}, &pb.Terms{})
	if err != nil || second.lease == first.lease || second.token == first.token {
		t.Fatalf("%+v, %v beside %+v", second, err, first)
	}
	for name, token := range map[string]uint64{"x": first.token, "y": second.token} {
		if _, err := g.GiveBack(t.Context(), name, token, core.Mutex); err != nil {
			t.Error(err)
		}
	}
}

// Two calls about one hold that come at the same time, after a restart, are both done, or one of them
// is told that it has to come again: neither gets the answer of the other.
func TestTakeOver_TwoCalls(t *testing.T) {
	g := alone(t)
	h, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Election}, &pb.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	const mark = 1 << 45 // as an earlier process has left it: more than this one has given
	if _, err := g.submit(t.Context(), &core.Frame{Session: sessionOf("default", h.lease), Mark: mark}); err != nil {
		t.Fatal(err)
	}
	var calls [2]*lease
	var hold core.ClaimInfo
	for i := range calls {
		if calls[i], hold, err = g.owner(t.Context(), "x", h.token, core.Election); err != nil {
			t.Fatal(err)
		}
	}
	for i, value := range []string{"a", "b"} {
		_, results, err := calls[i].run(t.Context(), core.Command{Op: core.OpProclaim, Target: hold.Seq, Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(queue(t, g).Holders[0].Value); results[0].Code == core.CodeOK && got != value {
			t.Errorf("%q was proclaimed, and %q is told", value, got)
		}
	}
}

// A release that another call about the same hold has overtaken is done, and says so.
func TestRelease_Overtaken(t *testing.T) {
	g := alone(t)
	h, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Election}, &pb.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	overtake := func() {
		if _, err := (Elections{Gateway: g}).Proclaim(t.Context(), &pb.ProclaimRequest{Name: "x", Token: h.token, Value: []byte("a")}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = g.alter(t.Context(), "x", h.token, func(core.ClaimInfo) core.Command {
		overtake()
		return core.Command{Op: core.OpRelease, Name: "x", Token: h.token}
	}, core.Election)
	if n := len(queue(t, g).Holders); err != nil || n > 0 {
		t.Errorf("%d hold it after the release, which says %v", n, err)
	}
}
