package servers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// clockMeter has servers use a quarter of the time and the program half of it.
func clockMeter() meter {
	began := time.Now()
	return func() (server, client time.Duration) { return time.Since(began) / 4, time.Since(began) / 2 }
}

// What ends while the window is open counts, and the cost is of that time.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := func() error { time.Sleep(10 * time.Millisecond); return nil }
		f, err := each([]func() error{work, work}, clockMeter())(995 * time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if f.rate < 198 || f.rate > 202 || f.p50 != 10 || f.p99 != 10 {
			t.Errorf("two callers of 10 ms each: %+v", f)
		}
		if f.server < 1240 || f.server > 1260 || f.client < 2480 || f.client > 2520 {
			t.Errorf("a quarter and a half of 5 ms: %+v", f)
		}
	})
}

// What takes longer than a turn makes the turn longer.
func TestEachWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := each([]func() error{func() error { time.Sleep(3500 * time.Millisecond); return nil }}, clockMeter())(time.Second)
		if err != nil || f.rate != 0.25 || f.p50 != 3500 { // seen in the fourth second after it opened
			t.Errorf("3.5 s in turns of 1 s: %+v, %v", f, err)
		}
	})
}

// An error ends the turn for all.
func TestEachFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		began := time.Now()
		_, err := each([]func() error{
			func() error { time.Sleep(time.Millisecond); return nil },
			func() error { time.Sleep(500 * time.Millisecond); return broken },
		}, clockMeter())(time.Second)
		if !errors.Is(err, broken) || time.Since(began) > 600*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// token is a lock that goes to whoever asked first, and takes a while to go.
type token struct {
	mu   sync.Mutex
	line []chan struct{}
	held bool
}

func (k *token) lock() (func() error, error) {
	k.mu.Lock()
	if k.held {
		turn := make(chan struct{})
		k.line = append(k.line, turn)
		k.mu.Unlock()
		<-turn
	} else {
		k.held = true
		k.mu.Unlock()
	}
	return k.unlock, nil
}

func (k *token) unlock() error {
	time.Sleep(2 * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.line) == 0 {
		k.held = false
		return nil
	}
	close(k.line[0])
	k.line = k.line[1:]
	return nil
}

func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &token{}
		f, err := handOver([]lock{k.lock, k.lock, k.lock}, clockMeter())(time.Second)
		if err != nil || f.p50 != 2 || f.p99 != 2 || f.rate < 495 || f.rate > 505 || f.uneven > 1 {
			t.Errorf("a queue that takes 2 ms: %+v, %v", f, err)
		}
	})
}

// One that takes it again and again makes no changes, and it shows.
func TestRelay(t *testing.T) {
	r, at := newRelay(2), time.Unix(0, 0)
	take := func(who int, counts bool) {
		at = at.Add(time.Second)
		r.taken(who, at, counts)
		r.leaves(at)
	}
	take(0, false)
	take(1, true)
	for range 5 {
		take(1, true)
	}
	take(0, true)
	take(1, false)
	if len(r.took) != 2 || r.took[0] != time.Second || r.uneven() != 5 {
		t.Errorf("changes %v, uneven %v", r.took, r.uneven())
	}
}

// Every event reaches every watcher, and the writer is never too far ahead.
func TestFan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers = 3
		var feeds [watchers]chan int
		var written, slowest atomic.Int64
		f := newFan(watchers)
		var all sync.WaitGroup
		for i := range feeds {
			feeds[i] = make(chan int, 2*ahead)
			all.Go(func() {
				for n := range feeds[i] {
					time.Sleep(time.Duration(i+1) * time.Millisecond)
					if i == watchers-1 {
						slowest.Store(int64(n))
					}
					f.saw(n)
				}
			})
		}
		turn := f.turn(t.Context(), func() error {
			n := written.Add(1) - 1
			if n-slowest.Load() > ahead {
				t.Errorf("write %d begins when the slowest is at %d", n, slowest.Load())
			}
			for _, feed := range feeds {
				feed <- int(n)
			}
			return nil
		}, clockMeter())
		for range 2 {
			if got, err := turn(3 * time.Second); err != nil || got.rate < 990 || got.rate > 1010 {
				t.Errorf("three watchers, the slowest of which takes 3 ms: %+v, %v", got, err)
			}
		}
		for _, feed := range feeds {
			close(feed)
		}
		all.Wait()
	})
}

// A writer that waits for watchers that failed is told why.
func TestFanFails(t *testing.T) {
	broken := errors.New("broken")
	ctx, fail := context.WithCancelCause(t.Context())
	f := newFan(1)
	fail(broken)
	for range ahead + 1 {
		if err := f.write(ctx, func() error { return nil }); err != nil {
			if !errors.Is(err, broken) {
				t.Errorf("the writer is told %v", err)
			}
			return
		}
	}
	t.Error("the writer goes on")
}
