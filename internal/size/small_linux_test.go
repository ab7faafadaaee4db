package size

import (
	"testing"
	"time"
)

// TestSmall: what make bench-sizes measures works in small.
func TestSmall(t *testing.T) {
	small := size{nodes: 1, items: 2000, clients: 10, waits: 80, lasts: 20 * time.Millisecond, outage: 20 * time.Millisecond}
	for name, want := range map[string]struct {
		try     trial
		figures int
	}{
		"keys":    {besideKeys, 16},
		"holds":   {besideHolds, 14},
		"limited": {limited, 6},
		"attach":  {attach, 5},
		"herd":    {herd, 7},
		"waits":   {tooMany, 7},
		"load":    {load, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			seen := want.try(t, small)
			if len(seen) != want.figures {
				t.Errorf("it tells %d figures, want %d: %v", len(seen), want.figures, seen)
			}
			if seen["stream-unnamed"] != 0 || seen["wait-unnamed"] != 0 { // a busy machine can miss the others
				t.Errorf("refused without the name of the limit: %v", seen)
			}
		})
	}
}
