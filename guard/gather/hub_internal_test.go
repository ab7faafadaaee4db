package gather

import (
	"fmt"
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
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	subscribe(many, more)
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / more; each > 32<<10 {
		t.Errorf("one subscription beside %d others takes %d bytes to make", many, each)
	}
}
