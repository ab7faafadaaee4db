package servers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-io/holdfast/internal/services"
)

// redis is a Redis that syncs every write: appendonly yes, appendfsync always.
type redis struct{ node *services.RedisServer }

func startRedis(t *testing.T) *redis { return &redis{services.Redis(t, services.Durable())} }

func (r *redis) meter() meter { return metering(&r.node.Process) }

// patience is how long an attempt to lock may take before it is given up. The
// default, 20 ms, is for going on to the next of several servers; with one, on a
// busy machine, it costs Redis much.
const patience = 5 * time.Second

func (r *redis) locker(t *testing.T) rueidislock.Locker {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{r.node.Addr()}}, KeyMajority: 1, NoLoopTracking: true, KeyValidity: 30 * time.Second, TryNextAfter: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func (r *redis) lockers(t *testing.T, n int) []rueidislock.Locker {
	all := make([]rueidislock.Locker, n)
	for i := range all {
		all[i] = r.locker(t)
	}
	return all
}

// rueidisLock tries until it has it: nobody else wants the name, so that it need
// not wait.
func rueidisLock(ctx context.Context, l rueidislock.Locker, name string) lock {
	return func() (func() error, error) {
		for {
			_, cancel, err := l.TryWithContext(ctx, name)
			if err == nil {
				return func() error { cancel(); return nil }, nil
			}
			if !errors.Is(err, rueidislock.ErrNotLocked) {
				return nil, err
			}
		}
	}
}

func (r *redis) pairs(t *testing.T, callers int) turn {
	lockers := r.lockers(t, connections(callers))
	return each(many(callers, func(i int) func() error {
		return pair(rueidisLock(t.Context(), lockers[i/perConnection], fmt.Sprint("pair-", i)))
	}), r.meter())
}

// counter shares one client, which has four connections by default.
func (r *redis) counter(t *testing.T, callers int) turn {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{r.node.Addr()}, DisableCache: true, AlwaysPipelining: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return each(many(callers, func(int) func() error {
		return func() error { return c.Do(t.Context(), c.B().Incr().Key("hot").Build()).Error() }
	}), r.meter())
}
