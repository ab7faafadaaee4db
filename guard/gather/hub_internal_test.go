package gather

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/memhold"
)

// A subscription costs as much beside thousands of others as alone.
func TestSubscribe_Many(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	g := New(Config{Space: s})
	subscribe := func(from, n int) {
		for i := range n {
			stop := g.Subscribe(Interest{
				Inputs:  []guard.Input{{Source: guard.SourceKey, Name: fmt.Sprint("app/run/", from+i)}},
				Events:  []Pattern{{Kind: "election", Verb: "*", Glob: "app/*"}},
				Changed: func(...guard.Input) {},
			})
			t.Cleanup(stop)
		}
	}
	const many, more = 10_000, 100
	began := time.Now()
	subscribe(0, many)
	t.Logf("%d subscriptions in %s", many, time.Since(began).Round(time.Millisecond))
	least := uint64(math.MaxUint64) // the hub allocates beside, when its watch begins
	for i := range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		subscribe(many+i*more, more)
		runtime.ReadMemStats(&after)
		least = min(least, (after.TotalAlloc-before.TotalAlloc)/more)
	}
	if least > 32<<10 {
		t.Errorf("one subscription beside %d others takes %d bytes to make", many, least)
	}
}
