package onstore_test

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
	"github.com/holdfast-io/holdfast/limit"
)

// An engine that does not answer is given up by calls that wait for nobody.
func TestEngineThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		s.set(func(string, string) fault { return fault{hang: true} })
		start := time.Now()
		_, try := sp.Mutex("m").TryAcquire(t.Context())
		_, add := sp.Counter("c").Add(t.Context(), 1)
		_, put := sp.KV().Put(t.Context(), "k", nil)
		_, look := sp.Inspect(t.Context(), "m")
		_, allow := sp.Limiter("l", limit.Rate{Count: 1, Per: time.Second}).Allow(t.Context(), "k")
		for what, err := range map[string]error{"allow": allow, "try": try, "add": add, "put": put, "inspect": look, "ping": sp.Ping(t.Context())} {
			if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if took := time.Since(start); took > 48*time.Second {
			t.Errorf("six calls took %s", took)
		}
		s.set(func(string, string) fault { return fault{} })
	})
}

// The engine's last word is not asked for again.
func TestLastWord(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		s.set(func(string, string) fault { return fault{before: driver.Errorf("", "", fs.ErrPermission, "no right")} })
		_, try := sp.Mutex("m").Acquire(t.Context())
		_, add := sp.Counter("c").Add(t.Context(), 1)
		_, put := sp.KV().Put(t.Context(), "k", nil)
		_, list := sp.KV().Page(t.Context(), "")
		for what, err := range map[string]error{"acquire": try, "add": add, "put": put, "range": list} {
			if !errors.Is(err, fs.ErrPermission) || !holdfast.NotDone(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := s.asked("get"); n != 3 {
			t.Errorf("%d requests for three calls", n)
		}
		s.set(func(string, string) fault { return fault{} })
	})
}

// A last word about what watches see of a reset does not say that the key was not reset.
func TestLastWordAfterAReset(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		l := open(t, s).Limiter("l", limit.Rate{Count: 10, Per: time.Hour})
		if _, err := l.AllowN(t.Context(), "key", 4); err != nil {
			t.Fatal(err)
		}
		s.set(func(op, key string) fault {
			if op == "swap" && strings.HasPrefix(key, "r/") {
				return fault{before: driver.Errorf("", "", driver.ErrExhausted, "no room")}
			}
			return fault{}
		})
		err := l.Reset(t.Context(), "key")
		if n, look := l.Available(t.Context(), "key"); look != nil || n != 10 || err == nil || holdfast.NotDone(err) {
			t.Errorf("%d are left after a reset that says %v, %v", n, err, look)
		}
	})
}

// A last word after a request that may have been done leaves that unknown.
func TestLastWordAfterALostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		sent := false
		s.set(func(op, _ string) fault {
			if sent {
				return fault{before: driver.Errorf("", "", fs.ErrPermission, "no right")}
			}
			sent = op == "swap"
			return fault{after: map[bool]error{true: errLink}[sent]}
		})
		if _, err := sp.Counter("c").Add(t.Context(), 1); !errors.Is(err, fs.ErrPermission) || holdfast.NotDone(err) {
			t.Errorf("Add: %v", err)
		}
	})
}

// A grant whose answer was lost is not believed in for longer than others keep
// to it, however late it is found.
func TestLostGrantFoundLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		ctx := t.Context()
		const ttl = 10 * time.Second
		a, b := open(t, s), open(t, s)
		var lost, found atomic.Bool
		s.set(func(op, _ string) fault {
			if op == "swap" && !lost.Swap(true) {
				return fault{after: errLink}
			}
			if lost.Load() && !found.Load() {
				return fault{before: errLink}
			}
			return fault{}
		})
		held := make(chan *holdfast.Hold)
		go func() {
			h, err := a.Mutex("m", holdfast.TTL(ttl)).Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			held <- h
		}()
		time.Sleep(ttl * 8 / 10)
		found.Store(true)
		h := <-held
		other, err := b.Mutex("m").TryAcquire(ctx)
		if err == nil {
			t.Fatalf("granted to two: %d and %d", h.Token(), other.Token())
		}
		at, _ := h.Deadline()
		e := &holdfast.Error{}
		if !errors.As(err, &e) || len(e.Holders) != 1 || e.Holders[0].ExpiresIn < driver.Until(at) {
			t.Errorf("believed in for %s; others are told %v", driver.Until(at), e.Holders)
		}
		if token := holdfast.Token(e.Holders[0].Token); token != h.Token() {
			t.Errorf("the holder's token is %d, others are told %d", h.Token(), token)
		}
	})
}

// Release does not wait for a renewal that gets no answer.
func TestReleaseDuringRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		h, err := sp.Mutex("m", holdfast.TTL(time.Hour)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var hangs atomic.Bool
		s.set(func(op, _ string) fault { return fault{hang: op == "swap" && !hangs.Swap(true)} })
		for !hangs.Load() {
			time.Sleep(100 * time.Millisecond)
		}
		start := time.Now()
		if err := h.Release(); err != nil || time.Since(start) > time.Second {
			t.Errorf("Release of a hold whose renewal hangs: %v after %s", err, time.Since(start))
		}
	})
}

// gaps is a store whose watch misses what was done while it was blind.
type gaps struct {
	*memoryStore
	blind atomic.Bool
}

func (g *gaps) Changed(ctx context.Context, key string) iter.Seq2[driver.Item, error] {
	return func(yield func(driver.Item, error) bool) {
		missed := uint64(0)
		for item, err := range g.memoryStore.Changed(ctx, key) {
			if g.blind.Load() {
				missed = uint64(item.Revision)
				continue
			}
			if missed > 0 && !yield(driver.Item{Revision: driver.Revision(missed)}, nil) {
				return
			}
			if missed = 0; !yield(item, err) {
				return
			}
		}
	}
}

// A gap in what an engine tells is a resync, with the state as it is afterwards.
func TestGapIsResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		g := &gaps{memoryStore: newStore(true)}
		sp := open(t, g)
		var told []string
		watching, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			for ev := range sp.Watch(watching, "", 0, holdfast.WithPrevious()) {
				text := ev.String()
				if ev.Prev != nil {
					text += " after " + string(ev.Prev.Value)
				}
				told = append(told, text)
			}
		}()
		for _, step := range []struct {
			value string
			blind bool
		}{{"one", false}, {"two", true}, {"three", true}, {"four", false}, {"five", false}} {
			synctest.Wait()
			g.blind.Store(step.blind)
			if _, err := sp.KV().Put(ctx, "k", []byte(step.value)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		want := "watch:ready, kv:put, watch:resync, kv:put after four"
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("told: %s; want: %s", got, want)
		}
	})
}

// What is there is read again after a gap until the engine answers, however long
// that takes: a watch outlives a broken link, and the hooks learn of it.
func TestGapWhileTheLinkIsDown(t *testing.T) { synctest.Test(t, gapWhileTheLinkIsDown) }

func gapWhileTheLinkIsDown(t *testing.T) {
	ctx := t.Context()
	g := &gaps{memoryStore: newStore(true)}
	var faults atomic.Int64
	sp, err := holdfast.New(onstore.New(g, onstore.Options{Info: driver.Info{Scheme: "cas"}}),
		holdfast.Hooks{Fault: func(string, string, error) { faults.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	var why error
	go func() {
		for ev, err := range sp.Watch(ctx, "", 0) {
			if why = err; err == nil {
				told = append(told, ev.String())
			}
		}
	}()
	writer := open(t, g.memoryStore)
	gap := func() {
		t.Helper()
		for _, blind := range []bool{true, false} {
			synctest.Wait()
			g.blind.Store(blind)
			if _, err := writer.KV().Put(ctx, "k", nil); err != nil {
				t.Fatal(err)
			}
			g.set(func(op, _ string) fault {
				if op == "list" {
					return fault{before: errLink}
				}
				return fault{}
			})
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
	}
	gap()
	if got := strings.Join(told, ", "); got != "watch:ready" || why != nil || faults.Load() < 30 || faults.Load() > 100 {
		t.Errorf("told: %s, %v, and %d faults in 10 minutes", got, why, faults.Load())
	}
	g.set(func(string, string) fault { return fault{} })
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if got := strings.Join(told, ", "); got != "watch:ready, watch:resync" {
		t.Errorf("told: %s, %v", got, why)
	}
	gap()
	if err := sp.Close(); err != nil {
		t.Error(err)
	}
	synctest.Wait()
	if !errors.Is(why, holdfast.ErrClosed) {
		t.Errorf("a watch of a closed Space ended with %v", why)
	}
}

// closes is a store whose watches end with an error when it is closed.
type closes struct {
	*memoryStore
	closed chan struct{}
}

func (c *closes) Changed(ctx context.Context, key string) iter.Seq2[driver.Item, error] {
	return func(yield func(driver.Item, error) bool) {
		yield(driver.Item{}, nil)
		<-c.closed
		yield(driver.Item{}, driver.Errorf("", "", driver.ErrUnavailable, "the connection was closed"))
	}
}

// A watch of a closed Space says so, and not what its connection says.
func TestWatchOfAClosedSpace(t *testing.T) {
	for range 200 {
		s := &closes{newStore(true), make(chan struct{})}
		sp, err := holdfast.New(onstore.New(s, onstore.Options{Info: driver.Info{Scheme: "cas"}, Close: func() error { close(s.closed); return nil }}))
		if err != nil {
			t.Fatal(err)
		}
		ready, why := make(chan struct{}), make(chan error, 1)
		go func() {
			var last error
			for ev, err := range sp.Watch(t.Context(), "", 0) {
				if last = err; ev.Verb == driver.VerbReady {
					close(ready)
				}
			}
			why <- last
		}()
		<-ready
		if err := sp.Close(); err != nil {
			t.Error(err)
		}
		if err := <-why; !errors.Is(err, holdfast.ErrClosed) {
			t.Fatalf("it ended with %v", err)
		}
	}
}

// What lists keys is tried again like everything else.
func TestListsOverABadLink(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		ctx := t.Context()
		sp := open(t, s)
		h, err := sp.Mutex("m").Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release()
		if _, err := sp.KV().Put(ctx, "k", nil); err != nil {
			t.Fatal(err)
		}
		bad := 0
		s.set(func(op, _ string) fault {
			if bad++; bad%3 != 0 {
				return fault{before: errLink}
			}
			return fault{}
		})
		if r, err := sp.KV().Page(ctx, ""); err != nil || len(r.Entries) != 1 {
			t.Errorf("Range: %v, %v", r, err)
		}
		if r, err := sp.Inspect(ctx, "m"); err != nil || len(r.Holders) != 1 {
			t.Errorf("Inspect: %v, %v", r, err)
		}
		s.set(func(string, string) fault { return fault{before: errLink} })
		if _, err := sp.KV().Page(ctx, ""); !errors.Is(err, holdfast.ErrUnavailable) || !errors.Is(err, errLink) {
			t.Errorf("Range without a link: %v", err)
		}
		word := &driver.Error{Kind: driver.ErrUnavailable, RetryAfter: time.Second, Err: errors.New("no")}
		s.set(func(string, string) fault { return fault{before: word} })
		before := s.asked("list")
		if _, err := sp.KV().Page(ctx, ""); !errors.Is(err, word.Err) || s.asked("list") != before+1 {
			t.Errorf("the engine's last word was asked for %d times: %v", s.asked("list")-before, err)
		}
	})
}

// A watch tells everything from the revision that it says it is ready from,
// also what happens while it reads what is there.
func TestReadyTellsTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(true)
		sp := open(t, s)
		writes := 0
		s.set(func(op, _ string) fault {
			if op == "list" && writes == 0 {
				writes++
				s.change(driver.Item{Key: "k/x", Value: []byte(`{"version":1}`)})
			}
			return fault{}
		})
		watching, stop := context.WithCancel(t.Context())
		for ev, err := range sp.Watch(watching, "", 0) {
			if err != nil || holdfast.Revision(ev.Revision) != 2 {
				t.Errorf("ready from %d: %v; the change at 1 is not told", ev.Revision, err)
			}
			stop()
		}
		stop()
	})
}

// A waiter is woken by the change, not by its next look.
func TestWokenByTheChange(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		a, b := open(t, s), open(t, s)
		h, err := a.Mutex("m", holdfast.TTL(time.Hour)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan time.Time, 1)
		go func() {
			next, err := b.Mutex("m").Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			granted <- time.Now()
			_ = next.Release()
		}()
		time.Sleep(10 * time.Minute)
		released := time.Now()
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		if at := <-granted; at.After(released) {
			t.Errorf("granted %s after the release", at.Sub(released))
		}
	})
}

// Changes of one counter by one process do not get in each other's way.
func TestCountersTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		done := make(chan error)
		for range 50 {
			go func() { _, err := sp.Counter("c").Add(t.Context(), 1); done <- err }()
		}
		for range 50 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := s.asked("swap"); n != 50 {
			t.Errorf("%d swaps for 50 changes", n)
		}
	})
}

// A sequence at its end says so, also to a call that wants no numbers.
func TestSequenceAtItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		q := open(t, s).Sequence("q", holdfast.StartAt(math.MaxUint64), holdfast.BlockSize(1))
		if n, err := q.Next(t.Context()); n != math.MaxUint64 || err != nil {
			t.Fatalf("the last number is %d: %v", n, err)
		}
		_, err := q.Current(t.Context())
		if !errors.Is(err, driver.ErrExhausted) || !strings.Contains(err.Error(), "all numbers of the sequence are taken") {
			t.Errorf("Current at the end says: %v", err)
		}
	})
}
