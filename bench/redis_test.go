package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	_ "github.com/holdfast-io/holdfast/redishold"
)

const (
	many    = 64 // callers on names of their own
	waiters = 8  // callers on one name, each a program of its own
)

// redisContests are those on one Redis server.
func redisContests(t *testing.T) field {
	server := services.Redis(t)
	addr := mustURL(t, server.URL()).Host
	rc := rueidisClient(t, addr)
	ours, red, rue := redisSpace(t, addr), redsyncOn(t, addr), rueidisLocker(t, addr)
	counter := ours.Counter("counter")
	ctx := t.Context()

	oursMany, redMany, rueMany := make([]func() error, many), make([]func() error, many), make([]func() error, many)
	for i := range many {
		name := fmt.Sprint("many-", i)
		oursMany[i], redMany[i], rueMany[i] = pair(held(ctx, ours, name)), pair(redsyncLock(ctx, red, name)), pair(rueidisLock(ctx, rue, name))
	}
	oursCrowd, redCrowd := make([]lock, waiters), make([]lock, waiters)
	for i := range waiters {
		oursCrowd[i] = held(ctx, redisSpace(t, addr), "crowd")
		redCrowd[i] = redsyncLock(ctx, redsyncOn(t, addr), "crowd")
	}
	return field{
		contests: append(limitContests(t, ours, addr), []*contest{
			{what: "Redis: lock and unlock, one caller", peer: "redsync", least: 0.9, slice: 250 * time.Millisecond,
				ours: one(pair(held(ctx, ours, "one"))), theirs: one(pair(redsyncLock(ctx, red, "one")))},
			{what: "Redis: lock and unlock, 64 callers", peer: "redsync", least: 1.5, slice: 250 * time.Millisecond, ours: each(oursMany), theirs: each(redMany)},
			{what: "Redis: lock and unlock, 64 callers", peer: "rueidislock", least: 0.9, slice: 250 * time.Millisecond, ours: each(oursMany), theirs: each(rueMany)},
			{what: "Redis: changes of holder, 8 waiters", peer: "redsync", least: 3, slice: time.Second, ours: changes(oursCrowd), theirs: changes(redCrowd)},
			{what: "Redis: counting, one caller", peer: "INCR", least: 0.8, slice: 250 * time.Millisecond,
				ours:   one(func() error { _, err := counter.Add(ctx, 1); return err }),
				theirs: one(func() error { return rc.Do(ctx, rc.B().Incr().Key("counter").Build()).Error() })},
		}...),
		crowds: []crowd{{who: "holdfast on Redis", locks: oursCrowd}, {who: "redsync", locks: redCrowd}},
	}
}

// rueidisClient has the settings that [redishold] gives the one it makes of a
// URL.
func rueidisClient(t *testing.T, addr string) rueidis.Client {
	rc, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, AlwaysPipelining: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rc.Close)
	return rc
}

func redisSpace(t *testing.T, addr string) *holdfast.Space {
	s, err := holdfast.Open(t.Context(), "redis://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// held is a mutex of ours.
func held(ctx context.Context, s *holdfast.Space, name string) lock {
	m := s.Mutex(name)
	return func() (func() error, error) {
		h, err := m.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return h.Release, nil
	}
}

// redsyncOn has a connection for each caller, so that none waits for one.
func redsyncOn(t *testing.T, addr string) *redsync.Redsync {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: many})
	t.Cleanup(func() { _ = c.Close() })
	return redsync.New(goredis.NewPool(c))
}

// redsyncLock tries until it has it: by default redsync gives up after 32 tries.
func redsyncLock(ctx context.Context, rs *redsync.Redsync, name string) lock {
	return func() (func() error, error) {
		m := rs.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(1<<20))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error { _, err := m.UnlockContext(ctx); return err }, nil
	}
}

func rueidisLocker(t *testing.T, addr string) rueidislock.Locker {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1, NoLoopTracking: true, KeyValidity: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// rueidisLock asks anew after a tenth of a second: once in a while a wait for
// what the caller itself gave back is not woken.
func rueidisLock(ctx context.Context, l rueidislock.Locker, name string) lock {
	within, stop, made := ctx, context.CancelFunc(func() {}), time.Time{}
	return func() (func() error, error) {
		for {
			if time.Since(made) > 50*time.Millisecond {
				stop()
				within, stop = context.WithTimeout(ctx, 100*time.Millisecond)
				made = time.Now()
			}
			_, cancel, err := l.WithContext(within, name)
			if err == nil {
				return func() error { cancel(); return nil }, nil
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
		}
	}
}

func mustURL(t *testing.T, raw string) *url.URL {
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
