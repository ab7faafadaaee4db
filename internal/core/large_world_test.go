package core_test

import (
	"flag"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core/coretest/gen"
)

var largeWorld = flag.Int("core.large", 250, "how many claims and keys the large histories have")

// TestLargeWorlds: machine and twin agree where few sessions have very much, and it
// ends at once.
func TestLargeWorlds(t *testing.T) {
	seeds(t, max(6, 15_000/uint64(*largeWorld)), func(t *testing.T, seed uint64) {
		if err := sameAsTwin(seed, gen.Large(seed, *largeWorld)); err != nil {
			t.Error(err)
		}
	})
}
