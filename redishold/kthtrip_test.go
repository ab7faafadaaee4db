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

var kthBudget = flag.Duration("redishold.kth", 12*time.Second, "how long operations are disturbed at their k-th round trip; 0: until all have been")

// TestKthTrip: whatever happens to a round trip to the server, promises are kept.
func TestKthTrip(t *testing.T) {
	server := services.Redis(t)
	rc, looker := admin(t, server.URL()), open(t, server.URL())
	left := func(t testing.TB, prefix string) []string {
		_, _ = looker.Inspect(t.Context(), "nothing") // the next call of anybody ends what is past its deadline
		return keysLeft(t, rc, prefix)
	}
	kthtrip.Run(t, kthtrip.Engine{
		URL:    server.URL(),
		Proxy:  func(t testing.TB) kthtrip.Proxy { return newRESPProxy(t, server.URL(), server.Addr()) },
		Faults: append([]kthtrip.Fault{kthtrip.CutBefore, kthtrip.CutAfter, kthtrip.Delay}, slices.Sorted(maps.Keys(refusals))...),
		Left:   left,
	}, *kthBudget)
}

// keysLeft are the keys and the indexed names with a prefix; "": all but what
// stays on purpose. What goes by itself is not among them.
func keysLeft(t testing.TB, rc rueidis.Client, prefix string) (left []string) {
	for cursor := uint64(0); ; {
		page, err := rc.Do(context.Background(), rc.B().Scan().Cursor(cursor).Match("{holdfast}:*"+prefix+"*").Count(1000).Build()).AsScanEntry()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range page.Elements {
			if key != "{holdfast}:rev" && do(t, rc, "PTTL", key) == "-1" {
				left = append(left, key)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			break
		}
	}
	for _, index := range []string{"{holdfast}:names", "{holdfast}:keys"} {
		names, err := rc.Do(context.Background(), rc.B().Zrange().Key(index).Min("0").Max("-1").Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) })...)
	}
	return left
}
