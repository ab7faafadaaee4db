package fence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// dropping is a gate as document 000 has it: the check is under a lock, the
// operation is not.
type dropping struct{ fence.Gate }

func (d *dropping) Do(ctx context.Context, resource string, token fence.Token, mode fence.Mode, f func(context.Context) error) error {
	if err := d.Check(resource, token, mode); err != nil {
		return err
	}
	return f(ctx)
}

// lateWrite lets writer 20 stop inside its operation, after its token passed,
// until writer 21 is done or waits. It returns what the storage holds at the end.
func lateWrite(t *testing.T, gate fence.Doer) (stored uint64) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		wake := make(chan struct{})
		wg.Go(func() {
			gate.Do(t.Context(), "r", 20, fence.Exclusive, func(context.Context) error {
				<-wake
				stored = 20
				return nil
			})
		})
		synctest.Wait()
		wg.Go(func() {
			gate.Do(t.Context(), "r", 21, fence.Exclusive, func(context.Context) error {
				stored = 21
				return nil
			})
		})
		synctest.Wait()
		close(wake)
		wg.Wait()
	})
	return stored
}

// "FencedStorage drops its lock before the operation": the write of 20 lands on
// top of that of 21. "Gate.Do holds the resource through the operation."
func TestDoKeepsTheResourceThroughTheOperation(t *testing.T) {
	if got := lateWrite(t, &dropping{}); got != 20 {
		t.Errorf("the storage that drops its lock holds %d; this schedule shows nothing", got)
	}
	if got := lateWrite(t, &fence.Gate{}); got != 21 {
		t.Errorf("the older writer wrote last: %d", got)
	}
}

// visitor is an operation that a test keeps inside for as long as it likes.
type visitor struct {
	inside bool
	leave  chan struct{}
	done   chan error
}

func visit(ctx context.Context, gate fence.Doer, token fence.Token, mode fence.Mode) *visitor {
	v := &visitor{leave: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		v.done <- gate.Do(ctx, "r", token, mode, func(context.Context) error {
			v.inside = true
			<-v.leave
			return nil
		})
	}()
	synctest.Wait()
	return v
}

// end lets the operation return, and waits for what that sets in motion.
func (v *visitor) end() error {
	close(v.leave)
	synctest.Wait()
	return <-v.done
}

func TestReadersShareAndWritersDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		r1, r2 := visit(t.Context(), &g, 25, fence.Shared), visit(t.Context(), &g, 20, fence.Shared)
		if !r1.inside || !r2.inside {
			t.Fatal("two readers are not inside together")
		}
		w := visit(t.Context(), &g, 30, fence.Exclusive)
		r3 := visit(t.Context(), &g, 31, fence.Shared)
		if w.inside || r3.inside {
			t.Error("the writer is inside with readers, or a reader overtook it")
		}
		r1.end()
		if w.inside {
			t.Error("the writer is inside with a reader")
		}
		r2.end()
		if !w.inside || r3.inside {
			t.Error("the writer's turn did not come first")
		}
		if err := w.end(); err != nil || !r3.inside {
			t.Errorf("the last reader is not inside: %v", err)
		}
		r3.end()
	})
}

func TestStaleIsRefusedWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		w := visit(t.Context(), &g, 20, fence.Exclusive)
		old := visit(t.Context(), &g, 19, fence.Exclusive)
		select {
		case err := <-old.done:
			wantError(t, err, driver.ErrStale)
		default:
			t.Error("it waits for a turn that it can never use")
			defer old.end()
		}
		w.end()
	})
}

func TestWhatBecameStaleWhileWaitingDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		first := visit(t.Context(), &g, 20, fence.Exclusive)
		second := visit(t.Context(), &g, 30, fence.Exclusive)
		late := visit(t.Context(), &g, 25, fence.Exclusive)
		first.end()
		second.end()
		wantError(t, <-late.done, driver.ErrStale, "25", "30")
		if late.inside {
			t.Error("25 ran after 30")
		}
		last := visit(t.Context(), &g, 31, fence.Exclusive)
		if !last.inside {
			t.Error("the refused one kept the turn")
		}
		last.end()
	})
}

func TestGivingUpFreesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		reader := visit(t.Context(), &g, 20, fence.Shared)
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		writer := visit(ctx, &g, 30, fence.Exclusive)
		behind := visit(t.Context(), &g, 21, fence.Shared)
		cancel(why)
		synctest.Wait()
		err := <-writer.done
		wantError(t, err, context.Canceled, "30", "shutting down")
		if !errors.Is(err, why) || writer.inside {
			t.Errorf("inside %v, error %v", writer.inside, err)
		}
		if !behind.inside {
			t.Error("who stood behind it still waits")
		}
		if x, s := g.Last("r"); x != 0 || s != 21 {
			t.Errorf("last %d, %d: a token counts that was not used", x, s)
		}
		reader.end()
		behind.end()
	})
}

func TestAnEndedContextRunsNothing(t *testing.T) {
	var g fence.Gate
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	wantError(t, g.Do(ctx, "r", 5, fence.Exclusive, nil), context.DeadlineExceeded)
	if g.Len() != 0 {
		t.Error("its token is remembered")
	}
}

func TestDoEndsWithItsOperation(t *testing.T) {
	boom := errors.New("boom")
	ends := map[string]func(context.Context) error{
		"error":  func(context.Context) error { return boom },
		"panic":  func(context.Context) error { panic(boom) },
		"goexit": func(context.Context) error { runtime.Goexit(); return nil },
	}
	for name, f := range ends {
		t.Run(name, func(t *testing.T) {
			var g fence.Gate
			done := make(chan error)
			go func() {
				defer close(done)
				defer func() { recover() }()
				done <- g.Do(t.Context(), "r", 20, fence.Exclusive, f)
			}()
			if err := <-done; name == "error" && err != boom {
				t.Errorf("got %v, want the error as it is", err)
			}
			for range done {
			}
			if x, _ := g.Last("r"); x != 20 {
				t.Errorf("last %d: the operation may have written, and its token is not remembered", x)
			}
			if err := g.Do(t.Context(), "r", 21, fence.Exclusive, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestForgetRefusesAResourceInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		w := visit(t.Context(), &g, 20, fence.Exclusive)
		wantError(t, g.Forget("r"), driver.ErrHeld, "in progress")
		w.end()
		if err := g.Forget("r"); err != nil || g.Len() != 0 {
			t.Errorf("%v, %d left", err, g.Len())
		}
	})
}

func TestThePassTravelsInTheContext(t *testing.T) {
	want := fence.Pass{Resource: "r", Token: 5, Mode: fence.Shared}
	for _, gate := range []fence.Doer{&fence.Gate{}, &fence.Dir{Path: t.TempDir()}} {
		err := gate.Do(t.Context(), "r", 5, fence.Shared, func(ctx context.Context) error {
			if p, ok := fence.FromContext(ctx); !ok || p != want {
				t.Errorf("%T: %v, %v", gate, p, ok)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// log records writers, and whether anybody was inside with a writer.
type log struct {
	mu               sync.Mutex
	readers, writers int
	overlap          bool
	tokens           []uint64 // of writers, in order
}

func (l *log) op(token fence.Token, mode fence.Mode) func(context.Context) error {
	return func(context.Context) error {
		l.move(mode, 1)
		runtime.Gosched()
		l.mu.Lock()
		if mode == fence.Exclusive {
			l.tokens = append(l.tokens, uint64(token))
		}
		l.mu.Unlock()
		l.move(mode, -1)
		return nil
	}
}

func (l *log) move(mode fence.Mode, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mode == fence.Shared {
		l.readers += by
	} else {
		l.writers += by
	}
	l.overlap = l.overlap || l.writers > 1 || l.writers == 1 && l.readers > 0
}

// crowd sends 32 goroutines with random tokens through a gate, some of which
// give up early.
func crowd(t *testing.T, gate fence.Doer, rounds int) {
	var l log
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 2))
			for round := range rounds {
				token, mode := uint64(1+round*4+rnd.IntN(16)), fence.Exclusive
				if rnd.IntN(3) == 0 {
					mode = fence.Shared
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(4) == 0 {
					go cancel()
				}
				err := gate.Do(ctx, "r", fence.Token(token), mode, l.op(fence.Token(token), mode))
				if err != nil && !errors.Is(err, driver.ErrStale) && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if l.overlap {
		t.Error("a writer was not alone")
	}
	if len(l.tokens) == 0 || !slices.IsSorted(l.tokens) {
		t.Errorf("an older writer wrote after a newer one: %v", l.tokens)
	}
}

func TestACrowdAtAGate(t *testing.T) { crowd(t, &fence.Gate{}, 200) }

func TestACrowdAtADir(t *testing.T) { crowd(t, &fence.Dir{Path: t.TempDir()}, 5) }
