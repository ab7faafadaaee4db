package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

func next(t *testing.T, q *holdfast.Sequence) uint64 {
	t.Helper()
	n, err := q.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Promise: "sequences start at 1 in blocks of 100".
func TestSequence_Defaults(t *testing.T) {
	s, toy := open(t)
	for want := range uint64(250) {
		if n := next(t, s.Sequence("ids")); n != want+1 {
			t.Fatalf("got %d, want %d", n, want+1)
		}
	}
	if toy.called("reserve") != 3 {
		t.Errorf("%d calls for 250 numbers", toy.called("reserve"))
	}
	if n, err := s.Sequence("ids").Current(t.Context()); n != 301 || err != nil {
		t.Errorf("current %d, %v", n, err)
	}
}

func TestSequence_StartBlockReserve(t *testing.T) {
	s, toy := open(t)
	q := s.Sequence("ids", holdfast.StartAt(1000), holdfast.BlockSize(10))
	if n := next(t, q); n != 1000 {
		t.Errorf("began at %d", n)
	}
	if n, err := q.Reserve(t.Context(), 5); n != 1010 || err != nil {
		t.Errorf("reserved from %d, %v", n, err)
	}
	if n := next(t, q); n != 1001 {
		t.Errorf("then %d", n)
	}
	_, err := q.Reserve(t.Context(), 0)
	wantInvalid(t, err, "0 numbers")
	_, err = s.Sequence("ids", holdfast.BlockSize(0)).Next(t.Context())
	wantInvalid(t, err, "BlockSize(0)")
	_, err = s.Sequence("ids", holdfast.StartAt(0)).Next(t.Context())
	wantInvalid(t, err, "StartAt(0)")
	if err := q.Delete(t.Context()); err != nil || toy.next["ids"] != 0 {
		t.Errorf("Delete: %v", err)
	}
	if n := next(t, q); n != 1000 {
		t.Errorf("after Delete %d", n)
	}
}

// "growing for each client": all values of one name in a Space share a block.
func TestSequence_GrowsForEachSpace(t *testing.T) {
	s, _ := open(t)
	a, b := s.Sequence("t/ids"), s.Sub("t/").Sequence("ids")
	last := uint64(0)
	for i := range 300 {
		q := a
		if i%2 == 1 {
			q = b
		}
		n := next(t, q)
		if n <= last {
			t.Fatalf("%d after %d", n, last)
		}
		last = n
	}
}

// Seed 000: two Nexts overwrite each other's block. Here one refill serves all.
func TestSequence_OneRefillAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		release := make(chan struct{})
		toy.onReserve = func(context.Context, *driver.ReserveRequest) error { <-release; return nil }
		var mu sync.Mutex
		var got []uint64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				n, err := s.Sequence("ids").Next(t.Context())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, n)
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		slices.Sort(got)
		if len(slices.Compact(got)) != 100 || got[99] != 100 {
			t.Errorf("got %v", got)
		}
		if toy.called("reserve") != 1 {
			t.Errorf("%d refills", toy.called("reserve"))
		}
	})
}

// A failure is shared too; a caller that goes away fails only itself.
func TestSequence_SharedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		broken := errors.New("broken")
		release := make(chan struct{})
		toy.onReserve = func(ctx context.Context, _ *driver.ReserveRequest) error {
			select {
			case <-release:
				return broken
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		errs := make(chan error, 3)
		ask := func(ctx context.Context) {
			go func() {
				_, err := s.Sequence("ids").Next(ctx)
				errs <- err
			}()
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		ask(leaving)
		ask(t.Context())
		ask(t.Context())
		leave()
		synctest.Wait()
		wantErr(t, <-errs, context.Canceled)
		if len(errs) != 0 {
			t.Fatal("who stayed failed with who left")
		}
		close(release)
		wantErr(t, <-errs, broken)
		wantErr(t, <-errs, broken)
		if toy.called("reserve") != 2 {
			t.Errorf("%d refills, want one for each of the failures", toy.called("reserve"))
		}
	})
}

func TestSequence_WaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		release := make(chan struct{})
		toy.onReserve = func(context.Context, *driver.ReserveRequest) error { <-release; return nil }
		done := make(chan error, 1)
		go func() { _, err := s.Sequence("ids").Next(t.Context()); done <- err }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Sequence("ids").Next(ctx)
		wantErr(t, err, context.Canceled)
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Promise: "ErrExhausted, never wraps".
func TestSequence_Exhausted(t *testing.T) {
	s, _ := open(t)
	q := s.Sequence("ids", holdfast.StartAt(math.MaxUint64-3))
	for i := range uint64(3) {
		if n := next(t, q); n != math.MaxUint64-3+i {
			t.Errorf("got %d", n)
		}
	}
	for range 3 {
		n, err := q.Next(t.Context())
		wantErr(t, err, holdfast.ErrExhausted)
		if n != 0 {
			t.Errorf("wrapped to %d", n)
		}
	}
	_, err := q.Reserve(t.Context(), 10)
	wantErr(t, err, holdfast.ErrExhausted)
}

// Names of sequences leave nothing when they have no numbers left, and lose none.
func TestSequence_ManyNames(t *testing.T) {
	s, toy := open(t)
	for i := range 5000 {
		name := fmt.Sprint("invoice/", i)
		s.Sequence(name + "/named")
		if n := next(t, s.Sequence(name, holdfast.BlockSize(1))); n != 1 {
			t.Fatalf("%s: %d", name, n)
		}
	}
	toy.set(func() {
		toy.onReserve = func(context.Context, *driver.ReserveRequest) error { return driver.ErrUnavailable }
	})
	if _, err := s.Sequence("fails").Next(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Error(err)
	}
	if n := holdfast.SequenceBlocks(s); n != 0 {
		t.Errorf("%d blocks are kept", n)
	}
	toy.set(func() { toy.onReserve = nil })
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint64]bool{}
	for range 20 {
		all.Go(func() {
			for range 100 {
				n, err := s.Sequence("shared", holdfast.BlockSize(7)).Next(t.Context())
				mu.Lock()
				if err != nil || seen[n] {
					t.Errorf("%d, %v", n, err)
				}
				seen[n] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for n := range uint64(2000) {
		if !seen[n+1] {
			t.Fatalf("%d was skipped", n+1)
		}
	}
}

// lateSequence has answers of Reserve come when the test says so, and those of Delete get lost.
type lateSequence struct {
	driver.Driver
	answer    chan struct{}
	loseReply bool
}

func (d *lateSequence) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	reply, err := d.Driver.Reserve(ctx, r)
	<-d.answer
	return reply, err
}

func (d *lateSequence) Delete(ctx context.Context, kind driver.ResourceKind, name string) error {
	err := d.Driver.Delete(ctx, kind, name)
	if err == nil && d.loseReply {
		err = &driver.Error{Kind: driver.ErrUnavailable}
	}
	return err
}

// The numbers of a block that was on its way when the sequence was deleted are nobody's: the new one gives
// them to others.
func TestSequence_DeletedDuringARefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, toy := open(t)
		late := &lateSequence{Driver: toy, answer: make(chan struct{})}
		s, err := holdfast.New(late)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan uint64, 1)
		go func() { got <- next(t, s.Sequence("ids")) }()
		synctest.Wait()
		if err := s.Sequence("ids").Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := next(t, other.Sequence("ids"))
		close(late.answer)
		if n := <-got; n <= first {
			t.Errorf("%d was given to two, after Delete", n)
		}
	})
}

// A Delete that may have been done is taken as done: the block is of the sequence that was.
func TestSequence_DeletedPerhaps(t *testing.T) {
	_, toy := open(t)
	late := &lateSequence{Driver: toy, answer: make(chan struct{}), loseReply: true}
	close(late.answer)
	s, err := holdfast.New(late)
	if err != nil {
		t.Fatal(err)
	}
	q := s.Sequence("ids")
	next(t, q)
	wantErr(t, q.Delete(t.Context()), holdfast.ErrUnavailable)
	if n := next(t, q); n != 1 {
		t.Errorf("a new sequence begins with %d", n)
	}
}
