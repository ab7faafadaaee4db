package edge_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/limit/limithttp"
)

// alone is a node without others, in place of one with a link.
func alone() *edge.Node {
	node, err := edge.Open(edge.Config{Actor: "pod-1"})
	if err != nil {
		log.Fatal(err)
	}
	return node
}

// A limit for each API key, over all nodes.
func ExampleLimiter_apiKey() {
	node := alone()
	defer node.Close()
	rate := limit.Rate{Name: "api", Count: 2, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}
	limiter, err := node.Limiter("api", edge.LimiterConfig{Rate: rate})
	if err != nil {
		log.Fatal(err)
	}
	key := func(r *http.Request) (string, error) { return r.Header.Get("X-Api-Key"), nil }
	handler := limithttp.New(limiter, limithttp.Options{Rate: rate, Key: key})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, key := range []string{"ann", "ann", "ann", "bob"} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("X-Api-Key", key)
		handler.ServeHTTP(w, r)
		fmt.Println(key, w.Code)
	}
	// Output:
	// ann 200
	// ann 200
	// ann 429
	// bob 200
}

// A limit for each address, with a burst: what one node has not heard of is owed later.
func ExampleLimiter_addresses() {
	node := alone()
	defer node.Close()
	rate := limit.Rate{Name: "addresses", Count: 100, Per: time.Minute, Burst: 2}
	limiter, err := node.Limiter("addresses", edge.LimiterConfig{Rate: rate, LocalCap: 50})
	if err != nil {
		log.Fatal(err)
	}
	now := time.Now()
	for range 3 {
		d, err := limiter.Take("192.0.2.7", now, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.RetryAfter)
	}
	// Output:
	// true 0s
	// true 0s
	// false 600ms
}

// Credits of a month that can be given back: two counters, since each only grows.
func ExampleCounter_credits() {
	node := alone()
	defer node.Close()
	const quota = 10
	month := "2026-11/ann"
	spent, err := node.Counter("spent/" + month)
	if err != nil {
		log.Fatal(err)
	}
	refunded, err := node.Counter("refunded/" + month)
	if err != nil {
		log.Fatal(err)
	}
	use := func(n uint64) {
		if spent.Value()-refunded.Value()+n > quota {
			fmt.Println(n, "are too many")
			return
		}
		spent.Add(n)
		fmt.Println(n, "spent")
	}
	use(8)
	use(3)
	refunded.Add(4) // a call that failed
	use(3)
	// Output:
	// 8 spent
	// 3 are too many
	// 3 spent
}

// A blocklist that every node adds to and removes from.
func ExampleSet() {
	node := alone()
	defer node.Close()
	blocked, err := node.Set("blocked")
	if err != nil {
		log.Fatal(err)
	}
	for _, address := range []string{"192.0.2.7", "198.51.100.1"} {
		if err := blocked.Add(address); err != nil {
			log.Fatal(err)
		}
	}
	blocked.Remove("198.51.100.1")
	fmt.Println(blocked.Has("192.0.2.7"), blocked.Elements())
	// Output:
	// true [192.0.2.7]
}
