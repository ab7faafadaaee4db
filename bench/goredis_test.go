package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

// goRedis is a client of go-redis as a redishold.Client: what the documentation
// of that shows.
type goRedis struct{ redis.UniversalClient }

func (c goRedis) Do(ctx context.Context, commands ...[]string) []redishold.Reply {
	replies, sent := make([]redishold.Reply, len(commands)), make([]*redis.Cmd, len(commands))
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, words := range commands {
			args := make([]any, len(words))
			for j, w := range words {
				args[j] = w
			}
			sent[i] = p.Do(ctx, args...)
		}
		return nil
	})
	for i := range sent {
		if replies[i].Value, replies[i].Err = sent[i].Result(); errors.Is(replies[i].Err, redis.Nil) {
			replies[i].Err = nil
		}
	}
	return replies
}

func (c goRedis) Subscribe(ctx context.Context, channel string, ready func(), hear func(string)) error {
	sub := c.UniversalClient.Subscribe(ctx, channel)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	for {
		switch m, err := sub.Receive(ctx); m := m.(type) {
		case *redis.Subscription:
			ready()
		case *redis.Message:
			hear(m.Payload)
		default:
			return err
		}
	}
}

// TestGoRedis runs the conformance suite by clients of go-redis, on one server
// and on a cluster.
func TestGoRedis(t *testing.T) {
	nodes := services.RedisCluster(t, 3)
	for name, addrs := range map[string][]string{
		"single":  {services.Redis(t).Addr()},
		"cluster": {nodes[0].Addr(), nodes[1].Addr(), nodes[2].Addr()},
	} {
		t.Run(name, func(t *testing.T) {
			var h drivertest.Harness
			h.Driver = func(context.Context) (driver.Driver, error) {
				c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, MaxRetries: -1})
				t.Cleanup(func() { _ = c.Close() })
				return redishold.NewWith(goRedis{c}, nil)
			}
			h.Open = func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
				d, err := h.Driver(ctx)
				if err != nil {
					return nil, err
				}
				return holdfast.New(d, opts...)
			}
			h.TTL = 3 * time.Second // a busy machine holds the server up, too, which the suite does not see
			h.Require = []driver.Feature{driver.FeatureFIFO}
			drivertest.Run(t, h)
		})
	}
}
