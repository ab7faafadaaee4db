package driver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// counters is a whole backend for counters. What it does not override answers
// errors.ErrUnsupported.
type counters struct {
	driver.Base
	mu     sync.Mutex
	values map[string]uint64
}

func (c *counters) Info() driver.Info {
	return driver.Info{Scheme: "counters", Features: map[driver.Feature]bool{driver.FeatureCounter: true}}
}

func (c *counters) Count(_ context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Op == driver.CountAdd {
		c.values[r.Name] += r.A
	}
	return driver.CountReply{Value: c.values[r.Name]}, nil
}

// A backend embeds Base and overrides what its engine can do.
func Example() {
	s, err := holdfast.New(&counters{values: map[string]uint64{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	ctx := context.Background()
	fmt.Println(s.Counter("orders").Add(ctx, 3))
	_, err = s.Sequence("ids").Next(ctx)
	fmt.Println(err, errors.Is(err, errors.ErrUnsupported))
	// Output:
	// 3 <nil>
	// holdfast: next "ids": unsupported operation: the counters backend has no "sequence"; open with Require("sequence") to learn it at the start true
}

// A session ends all that is tied to it, once, at its deadline or before.
func ExampleSession() {
	l := driver.NewSession(driver.SessionID{1}, driver.Spec{TTL: 30 * time.Second})
	l.Extend(driver.Now(), 30*time.Second) // the engine answered "good for 30 s"
	var hold driver.Tie
	hold.To(l, func(cause error) { fmt.Println("hold ended:", cause) })
	fmt.Println("lasts:", l.Err() == nil)
	l.End(driver.ErrClosed)
	l.Extend(driver.Now(), time.Hour) // a late answer changes nothing
	fmt.Println("now:", l.Err())
	// Output:
	// lasts: true
	// hold ended: closed
	// now: closed
}
