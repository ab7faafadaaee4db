package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
	_ "github.com/holdfast-io/holdfast/remote"
)

// plenty is a rate that refuses nothing: what is measured is the decision.
const plenty = 1 << 30

// limitContests are decisions of a strict limiter, each of which asks the server, on the
// Redis server at addr; and on a node of ours, which has each on disk before it answers.
func limitContests(t *testing.T, ours *holdfast.Space, addr string) []*contest {
	ctx := t.Context()
	l, peer, node := limiterOn(ours), rateOn(t, addr), limiterOn(nodeSpace(t))
	var oursMany, peerMany, oursHot, peerHot, nodeHot []func() error
	for i := range many {
		key := fmt.Sprint("many-", i)
		oursMany, peerMany = append(oursMany, allowed(ctx, l, key)), append(peerMany, allowedByPeer(ctx, peer, key))
		oursHot, peerHot, nodeHot = append(oursHot, allowed(ctx, l, "hot")), append(peerHot, allowedByPeer(ctx, peer, "hot")), append(nodeHot, allowed(ctx, node, "hot"))
	}
	const slice = 250 * time.Millisecond
	return []*contest{
		{what: "Redis: decisions of a limiter, one caller", peer: "redis_rate", least: 1, slice: slice, ours: one(allowed(ctx, l, "one")), theirs: one(allowedByPeer(ctx, peer, "one"))},
		{what: "Redis: decisions of a limiter, 64 callers", peer: "redis_rate", least: 1, slice: slice, ours: each(oursMany), theirs: each(peerMany)},
		{what: "Redis: decisions of a limiter, 64 callers on one key", peer: "redis_rate", least: 1, slice: slice, ours: each(oursHot), theirs: each(peerHot)},
		{what: "one node of ours: decisions of a limiter, 64 callers on one key", peer: "redis_rate", slice: slice, ours: each(nodeHot), theirs: each(peerHot)},
	}
}

func limiterOn(s *holdfast.Space) *holdfast.Limiter {
	return s.Limiter("limiter", limit.Rate{Count: plenty, Per: time.Second, Burst: plenty})
}

func allowed(ctx context.Context, l *holdfast.Limiter, key string) func() error {
	return func() error {
		d, err := l.Allow(ctx, key)
		if err == nil && !d.Allowed {
			err = fmt.Errorf("%s was refused", key)
		}
		return err
	}
}

// rateOn has a connection for each caller, so that none waits for one.
func rateOn(t *testing.T, addr string) *redis_rate.Limiter {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: many})
	t.Cleanup(func() { _ = c.Close() })
	return redis_rate.NewLimiter(c)
}

func allowedByPeer(ctx context.Context, l *redis_rate.Limiter, key string) func() error {
	// Its script counts in seconds of a float: a larger rate would leave no digits.
	rate := redis_rate.Limit{Rate: 1 << 20, Burst: 1 << 20, Period: time.Second}
	return func() error {
		r, err := l.Allow(ctx, key, rate)
		if err == nil && r.Allowed == 0 {
			err = fmt.Errorf("%s was refused", key)
		}
		return err
	}
}

// nodeSpace is a space on one node of ours, a process as an operator starts it.
func nodeSpace(t *testing.T) *holdfast.Space {
	program := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-o", program, "./cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	listen := services.Addr(t)
	services.Start(t, "holdfast", listen, func(dir string) *exec.Cmd {
		cmd := exec.Command(program, "serve", "--data", filepath.Join(dir, "data"), "--listen", listen)
		cmd.Env = []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "PATH=" + os.Getenv("PATH")}
		return cmd
	})
	s, err := holdfast.Open(t.Context(), "holdfast://"+listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
