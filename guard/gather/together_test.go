package gather_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
)

// A wait does not pass on facts that were never true together: what was a yes a while ago is
// asked again before it counts.
func TestWait_Together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := guardtest.New()
		lock, check := guard.Input{Source: guard.SourceLock, Name: "prod"}, guard.Input{Source: guard.SourceCommand, Name: "healthy"}
		facts.Set(lock, guard.Fact{Is: true})
		facts.Set(check, guard.Fact{Is: true})
		g := gather.New(gather.Config{Sources: facts.Sources()})
		c := guard.All(guard.LockFree("prod"), guard.CustomCheck("healthy", ""))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan guard.Result, 1)
		go func() {
			r, _ := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour})
			done <- r
		}()
		synctest.Wait()
		facts.Lose(true)
		facts.Set(check, guard.Fact{}) // nobody tells
		facts.Lose(false)
		facts.Set(lock, guard.Fact{})
		if r := <-done; r.Outcome == guard.Passed {
			t.Errorf("passed: %s", r)
		}
	})
}

// A look at a source that changed nothing is not done twice: that is for backends that tell
// of a change a moment before they show it.
func TestWait_LooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := guardtest.New()
		check := guard.Input{Source: guard.SourceCommand, Name: "healthy"}
		facts.Set(check, guard.Fact{})
		g := gather.New(gather.Config{Sources: facts.Sources()})
		c := guard.CustomCheck("healthy", "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour})
			done <- err
		}()
		time.Sleep(time.Second)
		before := facts.Asked(check)
		for range 3 {
			facts.Set(check, guard.Fact{})
			time.Sleep(time.Second)
		}
		if n := facts.Asked(check) - before; n != 3 {
			t.Errorf("asked %d times after 3 events", n)
		}
		cancel()
		<-done
	})
}
