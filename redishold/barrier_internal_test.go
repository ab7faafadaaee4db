package redishold

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// arrival is one of two parties.
func arrival(id byte, waiting func(int)) *driver.Request {
	return &driver.Request{
		ID: [16]byte{id}, Wants: []driver.Want{{Name: "b", Kind: driver.Barrier, Mode: driver.Shared, Weight: 1, Limit: 2}},
		Spec: driver.Spec{TTL: time.Minute}, Lost: func(error) {}, Waiting: waiting,
	}
}

// TestPartyPassesWhileItLeaves: a party that leaves when all have come, and does not know it yet, has
// passed; without the last party it has left.
func TestPartyPassesWhileItLeaves(t *testing.T) {
	c, _ := aSpace(t, services.Redis(t).URL())
	for i, comes := range []bool{true, false} {
		ctx, leave := context.WithCancel(t.Context())
		_, err := c.Acquire(ctx, arrival(byte(i), func(int) {
			c.mu.Lock()
			clear(c.claims) // the word of its grant does not come
			c.mu.Unlock()
			if comes {
				if _, err := c.Acquire(t.Context(), arrival(9, nil)); err != nil {
					t.Error(err)
				}
			}
			leave()
		}))
		if comes != (err == nil) || !comes && !errors.Is(err, context.Canceled) {
			t.Errorf("the last party comes, %v: the one that left says %v", comes, err)
		}
	}
}

// TestPassedIsReleased: what has passed a latch or a barrier is given back without an error.
func TestPassedIsReleased(t *testing.T) {
	c, _ := aSpace(t, services.Redis(t).URL())
	if _, err := c.CountDown(t.Context(), &driver.CountDownRequest{ID: [16]byte{1}, Name: "l", Count: 1, By: 1}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []driver.Want{
		{Name: "l", Kind: driver.Latch, Mode: driver.Shared, Limit: 1}, {Name: "b", Kind: driver.Barrier, Mode: driver.Shared, Weight: 1, Limit: 1},
	} {
		r := arrival(byte(i), nil)
		r.Wants[0] = want
		g, err := c.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Handle.Release(t.Context()); err != nil {
			t.Errorf("%s: %v", want.Kind, err)
		}
	}
}
