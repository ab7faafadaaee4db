package edge

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// TestWatch: a change tells once for all since the last receive, wherever it was made.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a, b := open(t, Config{Actor: "a", Link: hub.Link("a")}), open(t, Config{Actor: "b", Link: hub.Link("b")})
		c, err := a.Counter("x")
		if err != nil {
			t.Fatal(err)
		}
		changes, stop := c.Watch()
		c.Add(1)
		c.Add(1)
		<-changes
		pass(time.Minute)
		if len(changes) != 0 {
			t.Fatal("a change was told twice, or a message without news was")
		}
		add(t, b, "x", 3)
		<-changes
		if c.Value() != 5 {
			t.Fatalf("%d, not 5", c.Value())
		}
		stop()
		c.Add(1)
		if len(changes) != 0 {
			t.Fatal("told after stop")
		}
	})
}

// TestWatch_Limiter: what is taken is told, on every node, also what comes late for its window; what is
// refused, looked at, or told again is not.
func TestWatch_Limiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a, b := open(t, Config{Actor: "a", Link: hub.Link("a")}), open(t, Config{Actor: "b", Link: hub.Link("b"), State: time.Second / 2})
		la, lb := limiter(t, a, LimiterConfig{Rate: ten}), limiter(t, b, LimiterConfig{Rate: ten})
		next := func() time.Duration { return time.Until(time.Now().Truncate(ten.Per).Add(ten.Per)) }
		pass(next())
		changes, stop := la.Watch()
		told := func() {
			t.Helper()
			pass(time.Second / 2)
			select {
			case <-changes:
			default:
				t.Fatal("not told")
			}
		}
		quiet := func(why string) {
			t.Helper()
			pass(time.Second)
			if len(changes) != 0 {
				t.Fatal("told of " + why)
			}
		}
		take(t, la, "k", 3)
		told()
		take(t, la, "k", 0)
		quiet("a look, or of what the other repeats")
		take(t, lb, "k", 6)
		told()
		take(t, la, "k", 2)
		quiet("a refusal")
		hub.Down("b", true)
		pass(next() - time.Second/2)
		take(t, lb, "k", 1) // of the window that is about to end
		quiet("what it cannot know")
		take(t, la, "k", 1)
		told()
		hub.Down("b", false)
		told()
		stop()
		take(t, la, "k", 1)
		quiet("a change after stop")
	})
}

// TestWatch_Debt: what is owed for windows that a node has not heard of is told, once.
func TestWatch_Debt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		rate := limit.Rate{Count: 10, Per: time.Minute, Algorithm: limit.FixedWindow}
		_, ls := cluster(t, hub, 2, LimiterConfig{Rate: rate, MaxDebt: 40})
		hub.Partition("n00")
		if err := ls[0].Charge("k", time.Now(), 50); err != nil {
			t.Fatal(err)
		}
		changes, stop := ls[1].Watch()
		defer stop()
		pass(2 * rate.Per)
		take(t, ls[0], "k", 0) // its entry is of the third window, which has no counts
		if len(changes) != 0 {
			t.Fatal("told of what it cannot know")
		}
		hub.Heal()
		pass(20 * time.Second)
		if d := take(t, ls[1], "k", 1); d.Allowed {
			t.Fatalf("nothing is owed: %+v", d)
		}
		select {
		case <-changes:
		default:
			t.Error("not told")
		}
		pass(20 * time.Second)
		if len(changes) != 0 {
			t.Error("told of what the other repeats")
		}
	})
}
