package session_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/session"
)

func TestRouteTriesEveryEndpointBeforeItPauses(t *testing.T) {
	r := session.NewRoute(7, "a", "b", "c")
	seen := map[string]bool{}
	for range 3 {
		e, at := r.Dial()
		if at > sec(1) {
			t.Fatalf("a pause before %q, the first round", e)
		}
		seen[e] = true
		r.Failed(sec(1))
	}
	if len(seen) != 3 {
		t.Fatalf("dialled %v, want all three", seen)
	}
}

func TestRoutePausesGrowAndEnd(t *testing.T) {
	r := session.NewRoute(7, "a", "b")
	var pauses []int64
	for range 40 {
		r.Failed(sec(1))
		_, at := r.Dial()
		pauses = append(pauses, at-sec(1))
	}
	if first := pauses[1]; first <= 0 || first > int64(100*time.Millisecond) {
		t.Fatalf("first pause %d", first)
	}
	for _, p := range pauses[30:] {
		if p < sec(0.2) || p > sec(0.4) {
			t.Fatalf("late pause %d, want 0.2 to 0.4 s", p)
		}
	}
	r.Worked()
	if _, at := r.Dial(); at != 0 {
		t.Fatal("a pause after it worked")
	}
}

func TestRouteFollowsAHintOnce(t *testing.T) {
	r := session.NewRoute(7, "a", "b")
	r.Hint(0, "leader")
	if e, _ := r.Dial(); e != "leader" {
		t.Fatalf("dial %q", e)
	}
	r.Failed(0)
	if e, _ := r.Dial(); e == "leader" {
		t.Fatal("a hint that failed is followed again")
	}
}

func TestRouteGoesToTheNewLeaderAtOnce(t *testing.T) {
	r := session.NewRoute(7, "a", "b")
	for range 20 {
		r.Failed(sec(1))
	}
	r.News(sec(1), "leader")
	if e, at := r.Dial(); e != "leader" || at > sec(1) {
		t.Fatalf("dial %q at %d, want the leader now", e, at)
	}
	r.Failed(sec(2))
	if e, at := r.Dial(); e == "leader" || at <= sec(2) {
		t.Fatalf("dial %q at %d: news that were wrong are believed again, or end the pauses", e, at)
	}
}

func TestRouteSpreadsClients(t *testing.T) {
	first := map[string]int{}
	for seed := range uint64(300) {
		e, _ := session.NewRoute(seed, "a", "b", "c").Dial()
		first[e]++
	}
	for e, n := range first {
		if n < 60 {
			t.Errorf("%s is the first of %d in 300", e, n)
		}
	}
}
