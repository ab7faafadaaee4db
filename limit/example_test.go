package limit_test

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

func Example() {
	rate := limit.Rate{Count: 2, Per: time.Second}
	var used limit.State // of one key
	for _, now := range []time.Duration{0, 0, 0, 500 * time.Millisecond} {
		var d limit.Decision
		used, d = limit.Take(rate, used, int64(now), 1)
		fmt.Println(now, d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// 0s true 1 0s
	// 0s true 0 0s
	// 0s false 0 500ms
	// 500ms true 0 0s
}

// The price of a call to a language model is known only after it: reserve an
// estimate, and settle what it was.
func ExampleReserve() {
	rate := limit.Rate{Count: 1000, Per: time.Minute}
	state, estimate, d := limit.Reserve(rate, limit.State{}, 0, 800)
	fmt.Println(d.Allowed, d.Remaining)
	state = limit.Settle(rate, state, 0, estimate, 150)
	fmt.Println(limit.Peek(rate, state, 0, 1).Remaining)
	// Output:
	// true 200
	// 850
}
