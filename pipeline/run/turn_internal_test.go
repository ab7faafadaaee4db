package run

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/pipeline"
)

// A change of a queue costs the runs of this program that wait one look together; one that is woken while somebody looks
// does not take that look for its own: it may be older than the change.
func TestLook_Shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocked(t)
		a := &active{p: c.Pipelines, view: c.run("p"), ctx: t.Context()}
		const name = "p/look/1/"
		old, _ := c.enterTurns(name) // somebody looks
		leave, err := c.awaitTurn(t.Context(), old, name)
		c.ok(err)
		old.begun, old.last = 1, &look{q: &queue{}}
		var all sync.WaitGroup
		var mu sync.Mutex
		looks := map[*look]int{}
		for range 50 {
			all.Go(func() {
				l, err := a.lookAtQueue()
				mu.Lock()
				defer mu.Unlock()
				if looks[l]++; err != nil || l.q.find(a.ID) < 0 {
					t.Errorf("it saw %+v, %v", l, err)
				}
			})
		}
		synctest.Wait()
		leave()
		all.Wait()
		if len(looks) != 1 || old.begun != 2 || len(c.turns) != 0 {
			t.Errorf("%d looks, %d begun, %d names left", len(looks), old.begun, len(c.turns))
		}
	})
}

// A run that has to stop while it looks ends with the cause of that. What it has seen until then is not shared: the
// others would take a run without a runner for one that has its turn.
func TestLook_Stopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocked(t)
		c.run("p") // nobody runs it
		v := c.run("p")
		c.later.Store(int64(time.Minute))
		stopped := errors.New("stopped")
		ctx, stop := context.WithCancelCause(t.Context())
		now := c.now
		c.now = func() time.Time { stop(stopped); return now() } // asked for in the middle of a look
		leave, err := c.turn(t.Context(), "p/look/1/")
		c.ok(err)
		var all sync.WaitGroup
		all.Go(func() {
			if l, err := (&active{p: c.Pipelines, view: v, ctx: ctx}).lookAtQueue(); !errors.Is(err, stopped) {
				t.Errorf("the one that was stopped saw %+v, %v", l, err)
			}
		})
		synctest.Wait() // it is the first to look
		all.Go(func() {
			if l, err := (&active{p: c.Pipelines, view: v, ctx: t.Context()}).lookAtQueue(); err != nil || l.next != v.ID {
				t.Errorf("another saw %+v, %v", l, err)
			}
		})
		synctest.Wait()
		leave()
		all.Wait()
	})
}

// Runs of a pipeline that was changed meanwhile look each by the policy that it was submitted with.
func TestLook_Policies(t *testing.T) {
	c := newClocked(t)
	v := c.run("p")
	other := *v
	other.plan = plan{Definition: &pipeline.Definition{Places: 1, Policy: "none"}}
	t1, _ := c.enterTurns("p/look/1/") // which keeps what is found for longer
	defer c.leaveTurns(t1, "p/look/1/")
	if l, err := (&active{p: c.Pipelines, view: v, ctx: t.Context()}).lookAtQueue(); err != nil || l.err != nil || l.next != v.ID {
		t.Errorf("by its policy: %+v, %v", l, err)
	}
	if l, err := (&active{p: c.Pipelines, view: &other, ctx: t.Context()}).lookAtQueue(); err != nil || l.err == nil {
		t.Errorf("by a policy that there is not: %+v, %v", l, err)
	}
}
