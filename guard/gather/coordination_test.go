package gather_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/memhold"
)

// must is a call that has to succeed.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// outcomes evaluates each condition.
func outcomes(t *testing.T, g *gather.Gatherer, want map[guard.Outcome][]guard.Condition) {
	t.Helper()
	for o, list := range want {
		for _, c := range list {
			if r := g.Evaluate(t.Context(), &c); r.Outcome != o {
				t.Errorf("%+v is %s", c, r)
			}
		}
	}
}

// The seed: "GuardExecutor gathers inputs correctly", "Guards with adapter-gathered inputs", of the coordination leaves.
func TestCoordination(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			ctx := t.Context()
			defer must[*holdfast.Hold](t)(a.Mutex("held", holdfast.Owner("w1")).Acquire(ctx)).Release()
			defer must[*holdfast.Hold](t)(a.Semaphore("agents", 5).Acquire(ctx, 3)).Release()
			defer must[*holdfast.Leadership](t)(a.Election("chief", holdfast.Owner("w2")).Campaign(ctx, nil)).Resign()
			must[int64](t)(a.Counter("n").Add(ctx, 7))
			must[holdfast.Revision](t)(a.KV().Put(ctx, "k", []byte("v")))
			outcomes(t, gather.New(gather.Config{Space: b}), map[guard.Outcome][]guard.Condition{
				guard.Passed: {guard.LockFree("other"), guard.LockHeldBy("held", "w1"), guard.SemaphoreAvailable("agents", 2), guard.Leader("chief", "w2"),
					guard.Leader("chief", ""), guard.Counter("n", guard.Equal, 7), guard.Counter("none", guard.Equal, 0), guard.KeyEquals("k", "v"), guard.KeyAbsent("none"),
					guard.SemaphoreAvailable("none", 1), {Kind: guard.KindSemaphoreAvailable, Name: "none", Amount: 3, Limit: 3}},
				guard.Failed: {guard.LockFree("held"), guard.LockHeldBy("held", "w2"), guard.LockHeldBy("other", "w1"), guard.SemaphoreAvailable("agents", 3),
					guard.Leader("chief", "w1"), guard.Leader("none", ""), guard.Counter("n", guard.AtLeast, 8), guard.KeyEquals("k", "w"), guard.KeyExists("none")},
				guard.Error:      {guard.LimitAvailable("none", "k", 1), guard.SemaphoreAvailable("none", 2), guard.LockFree("agents"), guard.SemaphoreAvailable("held", 1)},
				guard.NeedsInput: {guard.CustomCheck("true", ""), guard.IssueStatus("1", "open")},
			})
		})
	}
}

// Of a lock that many read every holder is found, on every backend alike.
func TestCoordination_ManyReaders(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			for i := range 12 {
				owner := holdfast.Owner(fmt.Sprint("r", i+1))
				defer must[*holdfast.Hold](t)(a.RWMutex("docs", owner).Reader().Acquire(t.Context())).Release()
			}
			g := gather.New(gather.Config{Space: b})
			outcomes(t, g, map[guard.Outcome][]guard.Condition{
				guard.Passed: {guard.LockHeldBy("docs", "r1"), guard.LockHeldBy("docs", "r11"), guard.LockHeldBy("docs", "r12"),
					guard.All(guard.LockFree("other"), guard.LockHeldBy("docs", "r12"))},
				guard.Failed: {guard.LockFree("docs"), guard.LockHeldBy("docs", "r13"), guard.Not(guard.LockHeldBy("docs", "r12"))},
			})
			c := guard.LockHeldBy("docs", "r12")
			if r := g.Evaluate(t.Context(), &c).Reasons[0]; !strings.Contains(r.Got, "and 11 more") {
				t.Errorf("the reason: %+v", r)
			}
		})
	}
}

// Where the backend can, all names that can be held are read at one revision.
func TestCoordination_OneRevision(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, _ := backends.Open(t, backend)
			ctx := t.Context()
			defer must[*holdfast.Hold](t)(a.Mutex("x").Acquire(ctx)).Release()
			defer must[*holdfast.Hold](t)(a.Semaphore("y", 2).Acquire(ctx, 1)).Release()
			defer must[*holdfast.Hold](t)(a.Mutex("z").Acquire(ctx)).Release()
			c := guard.All(guard.LockFree("x"), guard.SemaphoreAvailable("y", 1), guard.LockFree("z"), guard.LockFree("free"))
			g := gather.New(gather.Config{Space: a})
			r := g.Evaluate(ctx, &c)
			same := r.Reasons[0].Revision == r.Reasons[1].Revision && r.Reasons[1].Revision == r.Reasons[2].Revision && r.Reasons[3].Revision == r.Reasons[0].Revision
			if own := backend == "memory" || backend == "node"; same != own {
				t.Errorf("%+v", r.Reasons)
			}
			bad := guard.All(guard.LockFree("x"), guard.LockFree(strings.Repeat("long", 1000)))
			if r := g.Evaluate(ctx, &bad); r.Reasons[0].Outcome != guard.Failed || r.Reasons[1].Outcome != guard.Error {
				t.Errorf("beside a bad name: %+v", r)
			}
		})
	}
}

// A backend that is gone is an error of each leaf, never a refusal or a hang.
func TestCoordination_Gone(t *testing.T) {
	s, _ := backends.Open(t, "memory")
	s.Close()
	outcomes(t, gather.New(gather.Config{Space: s}), map[guard.Outcome][]guard.Condition{
		guard.Error: {guard.LockFree("x"), guard.Counter("x", guard.Equal, 0), guard.KeyAbsent("x")},
	})
}

// The seed: "Guards wake on relevant events", "Event-driven wake triggers re-evaluation". Nothing but events can wake here: the
// re-check is an hour away.
func TestWait(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			g := gather.New(gather.Config{Space: b})
			lock := must[*holdfast.Hold](t)(a.Mutex("main-branch").Acquire(ctx))
			slots := must[*holdfast.Hold](t)(a.Semaphore("agents", 3).Acquire(ctx, 3))
			c := guard.All(guard.LockFree("main-branch"), guard.SemaphoreAvailable("agents", 2), guard.Leader("chief", ""),
				guard.Counter("n", guard.AtLeast, 2), guard.KeyAbsent("freeze"))
			must[holdfast.Revision](t)(a.KV().Put(ctx, "freeze", nil))
			results, done := make(chan guard.Result, 100), make(chan error, 1)
			go func() {
				_, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour, Told: func(r guard.Result) { results <- r }})
				done <- err
			}()
			open := func() (n int) {
				select {
				case r := <-results:
					for _, r := range r.Reasons {
						if r.Decides {
							n++
						}
					}
				case <-ctx.Done():
					t.Fatal("no event woke the wait")
				}
				return n
			}
			until := func(n int) {
				for open() != n {
				}
			}
			until(5)
			must[int64](t)(a.Counter("n").Add(ctx, 2))
			until(4)
			ok(t, lock.Release())
			until(3)
			must[bool](t)(a.KV().Delete(ctx, "freeze"))
			until(2)
			defer must[*holdfast.Leadership](t)(a.Election("chief").Campaign(ctx, nil)).Resign()
			until(1)
			ok(t, slots.Release())
			ok(t, <-done)
		})
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A wait for a name whose watch is not wide enough begins a wider one, and loses nothing.
func TestWait_Widens(t *testing.T) {
	a, b := backends.Open(t, "memory")
	g := gather.New(gather.Config{Space: b})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	hold := func(name string) *holdfast.Hold { return must[*holdfast.Hold](t)(a.Mutex(name).Acquire(ctx)) }
	done, told := make(chan error, 2), make(chan int, 10)
	wait := func(c guard.Condition) {
		_, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour, Told: func(r guard.Result) {
			n := 0
			for _, reason := range r.Reasons {
				if reason.Decides {
					n++
				}
			}
			told <- n
		}})
		done <- err
	}
	until := func(n int) {
		for {
			select {
			case got := <-told:
				if got == n {
					return
				}
			case <-ctx.Done():
				t.Fatal("no event woke the wait")
			}
		}
	}
	first, second, other := hold("jobs/1"), hold("jobs/10"), hold("other")
	go wait(guard.All(guard.LockFree("jobs/1"), guard.LockFree("jobs/10")))
	until(2)
	ok(t, second.Release())
	until(1) // an event came: the watch has begun, of names that begin with jobs/1
	go wait(guard.All(guard.LockFree("other"), guard.LockFree("jobs/1")))
	until(2)
	ok(t, other.Release())
	until(1)
	ok(t, first.Release())
	ok(t, <-done)
	ok(t, <-done)
}

// Only guards with an input that an event touches look again. The seed: "Integration tests with FakeAdapters pass".
func TestWait_OnlyTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		facts := guardtest.New()
		g := gather.New(gather.Config{Sources: facts.Sources()})
		const n = 200
		input := func(i int) guard.Input { return guard.Input{Source: guard.SourceFile, Name: fmt.Sprint(i)} }
		common := guard.Input{Source: guard.SourceFile, Name: "common"}
		facts.Set(common, guard.Fact{})
		passed := make(chan int, n)
		for i := range n {
			facts.Set(input(i), guard.Fact{})
			go func() {
				c := guard.All(guard.FileExists(fmt.Sprint(i)), guard.FileNotExists("common"))
				if _, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour}); err == nil {
					passed <- i
				}
			}()
		}
		synctest.Wait()
		before := make([]int, n)
		for i := range n {
			before[i] = facts.Asked(input(i))
		}
		asked := facts.Asked(common)
		facts.Set(input(8), guard.Fact{Text: "another"})
		synctest.Wait()
		before[8]++
		facts.Set(input(7), guard.Fact{Is: true})
		if i := <-passed; i != 7 {
			t.Errorf("%d passed", i)
		}
		synctest.Wait()
		for i := range n {
			if again := facts.Asked(input(i)) - before[i]; again > 0 && i != 7 || again > 1 {
				t.Errorf("%d was looked at %d times more", i, again)
			}
		}
		if again := facts.Asked(common) - asked; again != 1 { // by the wait that passed, before it does
			t.Errorf("what had not changed was asked %d times more", again)
		}
		stop()
		synctest.Wait()
	})
}

// Without events the re-check heals.
func TestWait_Recheck(t *testing.T) {
	facts := guardtest.New()
	g := gather.New(gather.Config{Sources: facts.Sources()})
	in := guard.Input{Source: guard.SourceBranch, Name: "b"}
	facts.Set(in, guard.Fact{})
	c := guard.BranchExists("b")
	_, err := g.Wait(t.Context(), &c, gather.WaitOptions{Recheck: 20 * time.Millisecond, Told: func(r guard.Result) {
		facts.Lose(true)
		if r.Outcome == guard.Failed {
			go facts.Set(in, guard.Fact{Is: true})
		}
	}})
	ok(t, err)
}

// The end of its context ends a wait with the last result.
func TestWait_Ends(t *testing.T) {
	facts := guardtest.New()
	g := gather.New(gather.Config{Sources: facts.Sources()})
	in := guard.Input{Source: guard.SourceBranch, Name: "b"}
	facts.Set(in, guard.Fact{})
	c := guard.BranchExists("b")
	ctx, cancel := context.WithCancel(t.Context())
	r, err := g.Wait(ctx, &c, gather.WaitOptions{Told: func(guard.Result) { cancel() }})
	if !errors.Is(err, context.Canceled) || r.Outcome != guard.Failed || len(r.Reasons) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	bad := guard.LockFree("")
	if _, err := g.Wait(t.Context(), &bad, gather.WaitOptions{}); err == nil {
		t.Error("a condition without a name is waited for")
	}
}

// A source that does not answer is an error of its leaf, in time; the others decide
// without it.
func TestGather_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := guardtest.New()
		slow := guard.Input{Source: guard.SourceCommand, Name: "slow"}
		facts.Slow(slow, true)
		facts.Set(guard.Input{Source: guard.SourceFile, Name: "f"}, guard.Fact{})
		g := gather.New(gather.Config{Sources: facts.Sources(), Timeout: 50 * time.Millisecond})
		c := guard.Any(guard.CustomCheck("slow", ""), guard.FileExists("f"))
		if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Error || r.Reasons[0].Outcome != guard.Error || r.Reasons[1].Outcome != guard.Failed {
			t.Errorf("%+v", r)
		}
		stuck := gather.New(gather.Config{Sources: map[guard.Source]gather.Source{guard.SourceCommand: stuckSource{t}}, Timeout: 50 * time.Millisecond})
		if r := stuck.Evaluate(t.Context(), &guard.Condition{Kind: guard.KindCustomCheck, Name: "x"}); r.Outcome != guard.Error || !strings.Contains(r.Reasons[0].Got, "no answer within 50ms") {
			t.Errorf("%+v", r)
		}
	})
}

// stuckSource does not obey its context.
type stuckSource struct{ t *testing.T }

func (s stuckSource) Find(context.Context, []guard.Input) guard.Inputs {
	<-s.t.Context().Done()
	return nil
}
func (stuckSource) Follow(context.Context, func() []guard.Input, func(...guard.Input)) {}

// A clock that is set back, or forward, while somebody waits neither opens a window nor keeps it shut for longer than a
// re-check.
func TestWait_ClockSet(t *testing.T) {
	for _, by := range []time.Duration{-2 * time.Hour, 40 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began, opens := time.Now(), time.Date(2026, 11, 16, 22, 0, 0, 0, time.UTC)
			var set atomic.Int64
			now := func() time.Time { return opens.Add(-time.Hour + time.Duration(set.Load())).Add(time.Since(began)) }
			time.AfterFunc(30*time.Minute, func() { set.Store(int64(by)) })
			g := gather.New(gather.Config{Now: now})
			c := guard.During(guard.Window{From: 22 * time.Hour, To: 6 * time.Hour})
			r, err := g.Wait(t.Context(), &c, gather.WaitOptions{Recheck: time.Minute})
			ok(t, err)
			if late := now().Sub(opens); r.Outcome != guard.Passed || late < 0 || late > 12*time.Minute {
				t.Errorf("set by %s: %s, %s after it opened", by, r, late)
			}
		})
	}
}

// A window wakes by its own instant.
func TestWait_Window(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // else the window could be open before the first look
		began := time.Now()
		opens := time.Date(2026, 11, 16, 22, 0, 0, 0, time.UTC)
		now := func() time.Time { return opens.Add(-50 * time.Millisecond).Add(time.Since(began)) }
		g := gather.New(gather.Config{Now: now})
		c := guard.During(guard.Window{From: 22 * time.Hour, To: 6 * time.Hour})
		var told []guard.Outcome
		r, err := g.Wait(t.Context(), &c, gather.WaitOptions{Recheck: time.Hour, Told: func(r guard.Result) { told = append(told, r.Outcome) }})
		ok(t, err)
		if r.Outcome != guard.Passed || !now().Equal(opens) || !slices.Equal(told, []guard.Outcome{guard.Failed, guard.Passed}) {
			t.Errorf("%v at %s after %v", r, now(), told)
		}
	})
}

func TestParsePattern(t *testing.T) {
	for text, want := range map[string]gather.Pattern{
		"lock:released":       {Kind: "lock", Verb: "released"},
		"semaphore:agents:*":  {Kind: "semaphore", Verb: "*", Glob: "agents"},
		"lock:jobs/*:expired": {Kind: "lock", Verb: "expired", Glob: "jobs/*"},
		"kv:a:b:put":          {Kind: "kv", Verb: "put", Glob: "a:b"},
		"guard:passed":        {Kind: "guard", Verb: "passed"},
		"pipeline:p/*:done":   {Kind: "pipeline", Verb: "done", Glob: "p/*"},
		"*:deleted":           {Kind: "*", Verb: "deleted"},
	} {
		if p := must[gather.Pattern](t)(gather.ParsePattern(text)); p != want || p.String() != text {
			t.Errorf("%s is %+v", text, p)
		}
	}
	for _, text := range []string{"", "lock", "lok:released", "lock:", "lock:[:released", "lock:x", "kv:changed", "kv:a:deleted", "*:gone", "guard:done", "latch:reclaimed"} {
		if p, err := gather.ParsePattern(text); err == nil {
			t.Errorf("%q is %+v", text, p)
		}
	}
	for _, tt := range []struct {
		pattern, kind, verb, name string
		is                        bool
	}{
		{"lock:released", "lock", "released", "x", true}, {"lock:released", "lock", "acquired", "x", false}, {"lock:*", "semaphore", "acquired", "x", false},
		{"semaphore:agents:*", "semaphore", "released", "agents", true}, {"semaphore:agents:*", "semaphore", "released", "agents2", false},
		{"*:*", "kv", "put", "x", true}, {"guard:passed", "kv", "put", gather.EventPrefix + "guard/passed/g1", true},
		{"guard:g1:passed", "kv", "put", gather.EventPrefix + "guard/passed/g2", false}, {"guard:passed", "kv", "put", "guard/passed/g1", false},
	} {
		if got := must[gather.Pattern](t)(gather.ParsePattern(tt.pattern)).Match(&holdfast.Event{Kind: tt.kind, Verb: tt.verb, Name: tt.name}); got != tt.is {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A pattern wakes a wait by an event of a name that no input has.
func TestWait_Events(t *testing.T) {
	a, b := backends.Open(t, "memory")
	facts := guardtest.New()
	g := gather.New(gather.Config{Space: b, Sources: map[guard.Source]gather.Source{guard.SourceBranch: facts}})
	in := guard.Input{Source: guard.SourceBranch, Name: "b"}
	facts.Set(in, guard.Fact{})
	c := guard.BranchExists("b")
	p := must[gather.Pattern](t)(gather.ParsePattern("lock:merge:released"))
	h := must[*holdfast.Hold](t)(a.Mutex("merge").Acquire(t.Context()))
	facts.Lose(true)
	_, err := g.Wait(t.Context(), &c, gather.WaitOptions{Recheck: time.Hour, Events: []gather.Pattern{p}, Told: func(r guard.Result) {
		if r.Outcome == guard.Failed {
			go func() {
				facts.Set(in, guard.Fact{Is: true})
				h.Release()
			}()
		}
	}})
	ok(t, err)
}

// A limiter is asked what it has left, and a wait is woken when it will allow the cost, and
// when its rate is set; not by anything else, the re-check is an hour away.
func TestLimit(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			fast := a.Limiter("fast", limit.Rate{Algorithm: limit.TokenBucket, Count: 10, Per: 2 * time.Second})
			slow := a.Limiter("slow", limit.Rate{Algorithm: limit.TokenBucket, Count: 1, Per: time.Hour})
			for l, n := range map[*holdfast.Limiter]int64{fast: 10, slow: 1} {
				if d := must[limit.Decision](t)(l.AllowN(ctx, "k", n)); !d.Allowed {
					t.Fatalf("%+v", d)
				}
			}
			g := gather.New(gather.Config{Space: b})
			outcomes(t, g, map[guard.Outcome][]guard.Condition{
				guard.Passed: {guard.LimitAvailable("fast", "other", 10), guard.LimitAvailable("slow", "other", 1), guard.Not(guard.LimitAvailable("slow", "k", 1))},
				guard.Failed: {guard.LimitAvailable("fast", "other", 11), guard.LimitAvailable("slow", "k", 1)},
			})
			began := time.Now()
			three := guard.LimitAvailable("fast", "k", 3)
			r, err := g.Wait(ctx, &three, gather.WaitOptions{Recheck: time.Hour})
			if after := time.Since(began); err != nil || r.Outcome != guard.Passed || after > 20*time.Second {
				t.Errorf("after %s: %s, %v", after, r, err)
			}
			five := guard.LimitAvailable("slow", "k", 5)
			looked, done := make(chan guard.Result, 10), make(chan error)
			go func() {
				_, err := g.Wait(ctx, &five, gather.WaitOptions{Recheck: time.Hour, Told: func(r guard.Result) { looked <- r }})
				done <- err
			}()
			for _, n := range []int64{2, 5} { // after the first the watch has begun, and tells the second
				if r := <-looked; r.Outcome != guard.Failed {
					t.Errorf("%s", r)
				}
				if err := slow.SetRate(ctx, limit.Rate{Algorithm: limit.TokenBucket, Count: n, Per: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				t.Errorf("its rate was set, and it goes on waiting: %v", err)
			}
		})
	}
}

// A wait for a limiter looks again when it allows the cost, and not much later.
func TestLimit_Refilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must[*holdfast.Space](t)(holdfast.New(memhold.New()))
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		must[limit.Decision](t)(s.Limiter("fast", limit.Rate{Algorithm: limit.TokenBucket, Count: 10, Per: time.Minute}).AllowN(ctx, "k", 10))
		three, began := guard.LimitAvailable("fast", "k", 3), time.Now()
		_, err := gather.New(gather.Config{Space: s}).Wait(ctx, &three, gather.WaitOptions{Recheck: time.Hour})
		if after := time.Since(began); err != nil || after < 18*time.Second || after > 20*time.Second {
			t.Errorf("after %s: %v", after, err)
		}
	})
}

// A new rate wakes a wait that rests, at once: no look is due that could see it by itself.
func TestLimit_NewRateWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must[*holdfast.Space](t)(holdfast.New(memhold.New()))
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		five, done := guard.LimitAvailable("slow", "k", 5), make(chan error, 1)
		l := s.Limiter("slow", limit.Rate{Algorithm: limit.TokenBucket, Count: 1, Per: time.Hour})
		must[limit.Decision](t)(l.Allow(ctx, "k"))
		go func() {
			_, err := gather.New(gather.Config{Space: s}).Wait(ctx, &five, gather.WaitOptions{Recheck: time.Hour})
			done <- err
		}()
		time.Sleep(time.Minute) // the looks that follow the beginning of its watch are over
		began := time.Now()
		ok(t, l.SetRate(ctx, limit.Rate{Algorithm: limit.TokenBucket, Count: 5, Per: time.Hour}))
		if err := <-done; err != nil || time.Since(began) > time.Second {
			t.Errorf("its rate was set, and it goes on waiting: %v after %s", err, time.Since(began))
		}
	})
}

// slowly is a backend that inspects one name a request, each with a way of 20 ms.
type slowly struct{ driver.Driver }

// Info lacks names in one step.
func (d slowly) Info() driver.Info {
	info := d.Driver.Info()
	info.Features = maps.Clone(info.Features)
	delete(info.Features, driver.FeatureAtomicAll)
	return info
}

// Inspect takes its time.
func (d slowly) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	select {
	case <-ctx.Done():
		return driver.InspectReply{}, context.Cause(ctx)
	case <-time.After(20 * time.Millisecond):
		return d.Driver.Inspect(ctx, r)
	}
}

// Many locks of a backend that is asked about one at a time are decided within the timeout.
func TestCoordination_ManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := holdfast.New(slowly{memhold.New()})
		ok(t, err)
		defer s.Close()
		g := gather.New(gather.Config{Space: s})
		var all []guard.Condition
		for i := range 600 {
			all = append(all, guard.LockFree(strconv.Itoa(i)))
		}
		c := guard.All(all...)
		if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Passed {
			t.Errorf("%s: %s", r.Outcome, r.Reasons[0])
		}
	})
}

// What a semaphore or a limiter never has is told as that, not as something that comes with time.
func TestCoordination_NeverEnough(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	ok(t, s.Limiter("api", limit.Rate{}).SetRate(t.Context(), limit.Rate{Count: 1, Per: time.Hour}))
	h, err := s.Semaphore("agents", 3).Acquire(t.Context(), 1)
	ok(t, err)
	defer h.Release()
	g := gather.New(gather.Config{Space: s})
	for want, c := range map[string]guard.Condition{
		"it never allows more than 1": guard.LimitAvailable("api", "", 9), "its limit is 3": guard.SemaphoreAvailable("agents", 9),
		"it is waited for": guard.SemaphoreAvailable("agents", 3),
	} {
		if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Failed || !strings.Contains(r.Reasons[0].Hint, want) {
			t.Errorf("%s; want %s", r, want)
		}
	}
}
