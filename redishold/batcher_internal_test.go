package redishold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// busy is a batcher with all its ways taken, and its engine.
func busy(t *testing.T) (*batcher, byRueidis) {
	t.Helper()
	c, _ := aSpace(t, services.Redis(t).URL())
	e := c.rc.(byRueidis)
	e.batcher.under = minWays
	return e.batcher, e
}

func (c *batcher) waits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// freeWay ends what was under way.
func (c *batcher) freeWay(e byRueidis) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next(e.Client)
}

// until waits for a number of calls that wait.
func (c *batcher) until(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); c.waits() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d calls wait; want %d", c.waits(), n)
		}
	}
}

// TestBatch: calls that wait go together when a way is free, more than fit into
// one batch in several, and each gets its own answer.
func TestBatch(t *testing.T) {
	c, e := busy(t)
	const many = 2*maxBatch + 1
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			want := fmt.Sprint(i)
			got, err := c.do(t.Context(), e.Client, e.B().Echo().Message(want).Build()).ToString()
			if got != want || err != nil {
				t.Errorf("call %s is answered %q, %v", want, got, err)
			}
		})
	}
	c.until(t, many)
	c.freeWay(e)
	all.Wait()
	c.freeWay(e)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if c.mu.Lock(); c.under == 0 {
			break
		}
		if c.mu.Unlock(); time.Now().After(deadline) {
			t.Fatal("a way is not given back")
		}
	}
	c.mu.Unlock()
}

// TestBatchIsLeft: a call that is given up while it waits is not sent.
func TestBatchIsLeft(t *testing.T) {
	c, e := busy(t)
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() { given <- c.do(ctx, e.Client, e.B().Incr().Key("n").Build()).Error() }()
	c.until(t, 1)
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
	if n := c.waits(); n != 0 {
		t.Errorf("%d calls wait for the next batch", n)
	}
	c.freeWay(e)
	if n := e.do(t.Context(), []string{"GET", "n"})[0].reply[0]; n != "" {
		t.Errorf("it was sent: the server counted %s", n)
	}
}

// TestDistance: what is far away has more ways, by the least of the last times.
func TestDistance(t *testing.T) {
	for _, c := range []struct {
		took []time.Duration // a round of samples each
		ways int
	}{
		{nil, 2},
		{[]time.Duration{30 * time.Microsecond}, 2},
		{[]time.Duration{500 * time.Microsecond}, 10},
		{[]time.Duration{time.Second}, 64},
		{[]time.Duration{500 * time.Microsecond, time.Second}, 10},
		{[]time.Duration{time.Second, 500 * time.Microsecond}, 10},
		{[]time.Duration{500 * time.Microsecond, time.Second, time.Second}, 64},
	} {
		var d distance
		for _, took := range c.took {
			for range perRound {
				d.see(took)
			}
		}
		if ways := d.ways(); ways != c.ways {
			t.Errorf("after %v: %d ways; want %d", c.took, ways, c.ways)
		}
	}
}
