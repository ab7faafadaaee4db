package gen_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/gen"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// TestSameSeed: a seed is its history.
func TestSameSeed(t *testing.T) {
	for seed := range uint64(20) {
		one, two := gen.New(seed), gen.New(seed)
		for i := range 50 {
			if e1, e2 := one.Next(), two.Next(); !reflect.DeepEqual(e1, e2) {
				t.Fatalf("seed %d, entry %d: %+v, then %+v", seed, i, e1, e2)
			}
		}
	}
}

// TestReaches: the histories get to where it matters: every code, every verb,
// every state.
func TestReaches(t *testing.T) {
	codes, verbs, states := map[core.Code]int{}, map[core.Verb]int{}, map[core.ClaimState]int{}
	for seed := range uint64(400) {
		g, tw := gen.New(seed), twin.New(twin.Config{Budget: 10_000, Window: 1024, Waiters: 3})
		for range 100 {
			out := tw.Apply(g.Next())
			g.Observe(out)
			for _, r := range out.Replies {
				for _, res := range r.Results {
					codes[res.Code]++
				}
			}
			for _, p := range out.Pushes {
				codes[p.Code]++
				states[p.State]++
			}
			for _, e := range out.Events {
				verbs[e.Verb]++
			}
		}
	}
	for c := core.CodeOK; c <= core.CodeUnavailable; c++ {
		if codes[c] < 5 {
			t.Errorf("code %d is reached %d times", c, codes[c])
		}
	}
	for v := core.VerbAcquired; v <= core.VerbDelete; v++ {
		if verbs[v] < 20 {
			t.Errorf("%s is reached %d times", v, verbs[v])
		}
	}
	for s := core.ClaimGranted; s <= core.ClaimGone; s++ {
		if states[s] < 50 {
			t.Errorf("state %d is pushed %d times", s, states[s])
		}
	}
}

func ExampleGen() {
	g, tw := gen.New(1), twin.New(twin.Config{Budget: 100, Window: 100, Waiters: 100})
	for range 3 {
		g.Observe(tw.Apply(g.Next()))
	}
	fmt.Println(tw.Revision() > 0)
	// Output: true
}
