package deadline_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/deadline"
)

func TestMap(t *testing.T) {
	const s, ms = int64(time.Second), int64(time.Millisecond)
	tests := map[string]struct {
		sent, n, x int64
		ttl        time.Duration
		want       int64
	}{
		// 10.1 s · 99/101 = 9.9 s, less the margin.
		"a small TTL has the least margin": {0, 0, 101 * s / 10, time.Second, 99*s/10 - 50*ms},
		"a large TTL has one percent":      {0, 0, 101 * s / 10, time.Minute, 99*s/10 - 600*ms},
		"it counts from the send":          {7 * s, 0, 101 * s / 10, time.Second, 7*s + 99*s/10 - 50*ms},
		"it counts from the apply":         {0, 100 * s, 100*s + 101*s/10, time.Second, 99*s/10 - 50*ms},
		"it rounds down":                   {0, 0, 102, time.Second, 99 - 50*ms},
		"now is already late":              {0, 5 * s, 5 * s, time.Second, -50 * ms},
		"the past stays past":              {0, 5 * s, 0, time.Second, -4900990099 - 50*ms},
		"the end of time":                  {math.MaxInt64 - 5, 0, math.MaxInt64, time.Second, math.MaxInt64 - 50*ms},
		"from the beginning of time":       {0, math.MinInt64, math.MaxInt64, time.Second, math.MaxInt64/101*99 + math.MaxInt64%101*99/101 - 50*ms},
		"long ago":                         {math.MinInt64 + 5, math.MaxInt64, 0, time.Second, math.MinInt64},
	}
	for name, tt := range tests {
		if got := deadline.Map(tt.sent, tt.n, tt.x, tt.ttl); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		0: 50 * time.Millisecond, 5 * time.Second: 50 * time.Millisecond, 5*time.Second + 100: 50*time.Millisecond + 1, 24 * time.Hour: 864 * time.Second,
	} {
		if got := deadline.Margin(ttl); got != want {
			t.Errorf("Margin(%s) is %s, want %s", ttl, got, want)
		}
	}
}

// Promise: "never late: whoever stops at it has stopped before the server can
// act on its own". The client sends at real time 0, the server applies after
// delay and acts when its clock has counted span more. Rates are in percent of
// real time, at the bounds of ρ and between.
func TestMap_NeverLate(t *testing.T) {
	rates := []int64{100 - deadline.Rho, 100, 100 + deadline.Rho}
	spans := []time.Duration{0, 1, 99, 100, 101, 102, time.Second, 5 * time.Second, 30 * time.Second, 24 * time.Hour, 1000 * time.Hour, 200 * 365 * 24 * time.Hour}
	delays := []time.Duration{0, 1, time.Millisecond, time.Second, time.Hour}
	for _, server := range rates {
		for _, client := range rates {
			for _, span := range spans {
				for _, delay := range delays {
					for _, sent := range []int64{0, 12345, 1 << 60} {
						for _, ttl := range []time.Duration{time.Second, 30 * time.Second, 24 * time.Hour} {
							checkNeverLate(t, server, client, span, delay, sent, ttl)
						}
					}
				}
			}
		}
	}
}

func checkNeverLate(t *testing.T, server, client int64, span, delay time.Duration, sent int64, ttl time.Duration) {
	t.Helper()
	const n = 777
	counted := deadline.Map(sent, n, n+int64(span), ttl) - sent
	margin := int64(deadline.Margin(ttl))
	// Real times: the client stops margin before counted/client, at the latest
	// when it has slept through its margin; the server acts at delay+span/server.
	stops := ratio(counted+margin, client)
	acts := new(big.Rat).Add(new(big.Rat).SetInt64(int64(delay)), ratio(int64(span), server))
	if stops.Cmp(acts) > 0 {
		t.Errorf("server %d%%, client %d%%, span %s, delay %s: stops at %s, the server acts at %s", server, client, span, delay, stops.FloatString(3), acts.FloatString(3))
	}
	if least := int64(span)/101*99 - margin - 1; counted < least {
		t.Errorf("span %s: only %s are used", span, time.Duration(counted))
	}
}

// ratio is how long a clock of that rate takes to count ns.
func ratio(ns, percent int64) *big.Rat {
	return new(big.Rat).Mul(new(big.Rat).SetInt64(ns), big.NewRat(100, percent))
}

func Example() {
	// A session of 30 s, renewed by a request that was sent at 12 s on our
	// clock and applied at 1000 s on the server's.
	second := int64(time.Second)
	d := deadline.Map(12*second, 1000*second, 1030*second, 30*time.Second)
	fmt.Println(time.Duration(d).Round(time.Millisecond))
	// Output: 41.106s
}
