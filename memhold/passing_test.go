package memhold_test

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/memhold"
)

// What has passed a latch or a barrier is gone, whatever the Space has set for holds.
func TestPassingHoldsNothing(t *testing.T) {
	space := memhold.Open()
	defer space.Close()
	s := space.With(holdfast.MinHold(time.Hour), holdfast.Delay(time.Hour), holdfast.MaxHold(time.Hour))
	latch, barrier := s.Latch("latch", 1), s.Barrier("barrier", 2)
	if _, err := latch.CountDown(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := barrier.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := latch.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"latch", "barrier"} {
		if r, err := s.Inspect(t.Context(), name); err != nil || r.Holding != 0 {
			t.Errorf("%s: %d hold it, %v", name, r.Holding, err)
		}
	}
	if err := latch.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if err := barrier.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}
