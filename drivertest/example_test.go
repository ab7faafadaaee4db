package drivertest_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/drivertest"
	_ "github.com/holdfast-io/holdfast/memhold"
)

// The promises of counters, checked against whatever a URL names.
func ExampleCheck() {
	h := drivertest.URL("mem://example")
	h.Select = func(c drivertest.Case) bool { return strings.HasPrefix(c.Name, "Counter/Store") }
	err := drivertest.Check(context.Background(), h, func(c drivertest.Case, err error, took time.Duration) {
		fmt.Println(c.Name, err)
		fmt.Println(c.Promise)
	})
	fmt.Println(err)
	// Output:
	// Counter/Store <nil>
	// Store sets the value for everybody, also to 0 and below.
	// <nil>
}
