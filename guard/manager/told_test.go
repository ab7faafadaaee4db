package manager_test

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/internal/backends"
)

// The seed: "build_coordination_inputs: Populate locks/semaphores state". A semaphore that the manager knows has its slots
// free before anybody has used it.
func TestGuard_UnusedSemaphore(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, _ := backends.Open(t, backend)
			m := manage(t, a)
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 3}))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for n, passes := range map[int64]bool{3: true, 4: false} {
				g := manager.Guard{ID: fmt.Sprint("g", n), Condition: guard.All(guard.SemaphoreAvailable("agents", n))}
				ok(t, m.RegisterGuard(g))
				if got, _ := m.GetGuard(g.ID); !reflect.DeepEqual(got, g) {
					t.Errorf("it is registered as %+v", got)
				}
				if !passes {
					continue
				}
				if r, err := m.WaitGuard(ctx, g.ID); err != nil || r.Outcome != guard.Passed {
					t.Errorf("%d slots: %s, %v", n, r, err)
				}
			}
		})
	}
}

// However long the names of its leaves are, what a guard waits for is told; a guard of which nothing could be told is
// refused.
func TestGuard_LongTexts(t *testing.T) {
	a, b := backends.Open(t, "node")
	m := manage(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next, stop := iter.Pull2(manage(t, b).Events(ctx))
	defer stop()
	next()
	var leaves []guard.Condition
	for i := range 20 {
		leaves = append(leaves, guard.FileExists(fmt.Sprint(i, strings.Repeat("/é", 1360))))
	}
	ok(t, m.RegisterGuard(manager.Guard{ID: "long", Condition: guard.Any(leaves...)}))
	for _, want := range []string{"guard:evaluating", "guard:failed"} {
		if e, err, _ := next(); err != nil || e.String() != want {
			t.Fatalf("the event is %s (%v), want %s", e.String(), err, want)
		}
	}
	many := slices.Repeat([]string{"lock:" + strings.Repeat("x", 500) + ":*"}, 100)
	refused(t, m.RegisterGuard(manager.Guard{ID: "many", Condition: leaves[0], WakeOn: many}), fs.ErrInvalid)
}
