package redishold_test

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/internal/kthtrip"
	"github.com/holdfast-io/holdfast/internal/services"
)

var kthBudget = flag.Duration("redishold.kth", 10*time.Second, "how long operations are disturbed at their k-th round trip; 0: until all have been")

// TestKthTrip: whatever happens to a round trip to the server, promises are kept.
func TestKthTrip(t *testing.T) { kthtrip.Run(t, kthEngine(t), *kthBudget) }

// TestGivenUpInSilence: so is what a request says that is given up when nothing is heard of the server any more.
func TestGivenUpInSilence(t *testing.T) { kthtrip.GivenUp(t, kthEngine(t)) }

func kthEngine(t *testing.T) kthtrip.Engine {
	server := services.Redis(t)
	rc, looker := admin(t, server.URL()), open(t, server.URL())
	left := func(t testing.TB, prefix string) []string {
		_, _ = looker.Inspect(t.Context(), "nothing") // the next call of anybody ends what is past its deadline
		return keysLeft(t, rc, prefix)
	}
	return kthtrip.Engine{
		URL:    server.URL(),
		Proxy:  func(t testing.TB) kthtrip.Proxy { return kthtrip.NewPath(t, resp, server.URL(), server.Addr()) },
		Faults: faults(),
		Left:   left,
	}
}

func faults() []kthtrip.Fault {
	all := append([]kthtrip.Fault{kthtrip.CutBefore, kthtrip.CutAfter, kthtrip.Delay}, slices.Sorted(maps.Keys(refusals))...)
	return append(all, slices.Sorted(maps.Keys(endings))...)
}

// TestRedLockKthTrip is the same over three servers.
func TestRedLockKthTrip(t *testing.T) { kthtrip.Run(t, redlockKthEngine(t), *kthBudget/2) }

func TestRedLockGivenUpInSilence(t *testing.T) { kthtrip.GivenUp(t, redlockKthEngine(t)) }

func redlockKthEngine(t *testing.T) kthtrip.Engine {
	var addrs []string
	var clients []rueidis.Client
	for _, s := range services.RedisN(t, 3) {
		addrs, clients = append(addrs, s.Addr()), append(clients, admin(t, s.URL()))
	}
	return kthtrip.Engine{
		URL:    redlockURL(addrs...),
		Proxy:  func(t testing.TB) kthtrip.Proxy { return kthtrip.NewPath(t, resp, redlockURL(addrs...), addrs...) },
		Faults: faults(),
		Left: func(t testing.TB, prefix string) (left []string) {
			for _, rc := range clients {
				left = append(left, matching(t, rc, "*:"+prefix+"*:lock")...)
			}
			return left
		},
	}
}

// keysLeft are the keys and the indexed names with a prefix; "": all but what
// stays on purpose, or is forgotten ten minutes later.
func keysLeft(t testing.TB, rc rueidis.Client, prefix string) (left []string) {
	t.Helper()
	const p = "{holdfast}:"
	stays := map[string]bool{p + "rev": true, p + "version": true, p + "watch": true, p + "due": true}
	for _, d := range members(t, rc, p+"due") {
		switch d[0] {
		case 'w':
			stays[p+"w:"+d[1:]] = true
		case 'z':
			stays[p+"c:"+d[1:]] = true
		case 'g':
			stays[p+d[1:]] = true
		default:
			delete(stays, p+"due")
		}
	}
	for _, key := range append(matching(t, rc, p+"*"+prefix+"*"), append(members(t, rc, p+"names"), members(t, rc, p+"keys")...)...) {
		if strings.HasPrefix(key, p+"U:") && do(t, rc, "PTTL", key) != "-1" {
			continue // what a key of a limiter used ends by itself
		}
		if !stays[key] && strings.Contains(key, prefix) {
			left = append(left, key)
		}
	}
	return left
}

// members are those of a sorted set.
func members(t testing.TB, rc rueidis.Client, key string) []string {
	t.Helper()
	list, err := rc.Do(context.Background(), rc.B().Zrange().Key(key).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// matching are the keys like a pattern.
func matching(t testing.TB, rc rueidis.Client, pattern string) (keys []string) {
	t.Helper()
	for cursor := uint64(0); ; {
		page, err := rc.Do(context.Background(), rc.B().Scan().Cursor(cursor).Match(pattern).Count(1000).Build()).AsScanEntry()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, page.Elements...)
		if cursor = page.Cursor; cursor == 0 {
			return keys
		}
	}
}
