package gather

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
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

// A watch that is over is not taken for the next, which another subscription has begun: that one is begun anew when more
// is wanted than it tells of.
func TestFollow_Over(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	g := New(Config{Space: s})
	g.hub.wanted[guard.Input{Source: guard.SourceKey, Name: "app/x"}] = nil
	over, end := context.WithCancel(t.Context())
	end()
	widened := false
	g.space.begin(t.Context(), &g.hub, func() { widened = true })
	g.space.begin(over, &g.hub, func() { t.Error("a watch that is over is begun anew") })
	g.space.widen(&g.hub, &Interest{Inputs: []guard.Input{{Source: guard.SourceKey, Name: "other"}}})
	if !widened {
		t.Error("the watch still tells of app/ alone")
	}
}

// What nobody wants any more is not followed from that moment on, whatever else does not end.
func TestSubscribe_EndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		t.Cleanup(func() { close(stuck) })
		g, begun := New(Config{}), make(chan context.Context, 4)
		i := Interest{Changed: func(...guard.Input) {}}
		for n := range 4 {
			ends, hangs := guard.Source(fmt.Sprint("ends", n)), guard.Source(fmt.Sprint("hangs", n))
			g.sources[ends], g.sources[hangs] = &followed{begun}, &stuckFollow{stuck}
			i.Inputs = append(i.Inputs, guard.Input{Source: ends}, guard.Input{Source: hangs})
		}
		stop := g.Subscribe(i)
		go stop()
		synctest.Wait()
		for range 4 {
			if ctx := <-begun; ctx.Err() == nil {
				t.Error("it is followed still")
			}
		}
	})
}

// followed is a source that tells by which context it is followed.
type followed struct{ begun chan context.Context }

func (f *followed) Find(context.Context, []guard.Input) guard.Inputs { return nil }

func (f *followed) Follow(ctx context.Context, _ func() []guard.Input, _ func(...guard.Input)) {
	f.begun <- ctx
	<-ctx.Done()
}
