package natshold_test

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/kthtrip"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/natshold"
)

var kthBudget = flag.Duration("natshold.kth", 10*time.Second, "how long operations are disturbed at their k-th round trip; 0: until all have been")

// TestKthTrip: whatever happens to a round trip to the server, promises are kept.
// What is left is what a sweep does not remove.
func TestKthTrip(t *testing.T) { kthtrip.Run(t, kthEngine(t), *kthBudget) }

// TestGivenUpInSilence: so is what a request says that is given up when nothing is heard of the server any more.
func TestGivenUpInSilence(t *testing.T) { kthtrip.GivenUp(t, kthEngine(t)) }

func kthEngine(t *testing.T) kthtrip.Engine {
	server := services.NATS(t)
	url := server.URL() + "/kth"
	d := sweeperAt(t, url)
	t.Cleanup(func() { _ = d.Close(t.Context()) })
	js := streams(t, connect(t, server.URL()))
	return kthtrip.Engine{
		URL:    url,
		Proxy:  func(t testing.TB) kthtrip.Proxy { return kthtrip.NewPath(t, natsProtocol, url, server.Addr()) },
		Faults: append([]kthtrip.Fault{kthtrip.CutBefore, kthtrip.CutAfter, kthtrip.Delay}, slices.Sorted(maps.Keys(refusals))...),
		Left: func(t testing.TB, prefix string) (left []string) {
			if _, err := d.Sweep(t.Context(), &driver.SweepRequest{Prefix: prefix}); err != nil {
				return []string{err.Error()}
			}
			info, err := js.StreamInfo("KV_kth", &nats.StreamInfoRequest{SubjectsFilter: ">"})
			if err != nil {
				return []string{err.Error()}
			}
			for subject := range info.State.Subjects {
				key, ours := natshold.FromBucket(strings.TrimPrefix(subject, "$KV.kth."))
				if strings.HasPrefix(key, "u/") {
					continue // what a key of a limiter used is swept when its rate has given it back
				}
				if ours && key != "holdfast" && strings.Contains(key, prefix) { // the mark stays
					left = append(left, key)
				}
			}
			return left
		},
	}
}
