package twin_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/check"
	"github.com/holdfast-io/holdfast/internal/core/coretest/gen"
	"github.com/holdfast-io/holdfast/internal/core/coretest/script"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// TestPromises: the twin keeps every promise itself, or it would be no measure.
func TestPromises(t *testing.T) {
	for seed := range uint64(300) {
		g := gen.New(seed)
		budget := 10_000
		if seed%3 == 0 {
			budget = 1 + int(seed)%4 // leaves a rest of the dead
		}
		tw := twin.New(twin.Config{Budget: budget, Window: 1024, Waiters: 10_000})
		k := check.Checker{Rest: budget < 100}
		for i := range 120 {
			e := g.Next()
			out := tw.Apply(e)
			g.Observe(out)
			if err := k.Entry(e, out); err != nil {
				t.Fatalf("seed %d, entry %d: %v\n%s----\n%s", seed, i, err, script.Lines(e), script.Print(out))
			}
		}
	}
}

func ExampleTwin() {
	tw := twin.New(twin.Config{Budget: 10, Window: 8})
	a := core.SessionID{'A'}
	out := tw.Apply(twin.Entry{Frames: []core.Frame{{Session: a, Commands: []core.Command{
		{Op: core.OpOpen, TTL: 30e9},
		{Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "jobs", Kind: core.Mutex}}},
	}}}})
	fmt.Println(out.Replies[0].Results[1].Token, out.Events[1].Kind, out.Events[1].Verb)
	// Output: 2 lock acquired
}

// TestNoDeadlock: the twin lets well-behaved clients finish.
func TestNoDeadlock(t *testing.T) {
	for seed := range uint64(100) {
		tw := twin.New(twin.Config{Budget: 10_000, Window: 1024, Waiters: 10_000})
		err := gen.Crowd(seed, func(e twin.Entry) (twin.Output, error) { return tw.Apply(e), nil })
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
