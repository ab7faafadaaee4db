package redishold_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/services"
)

// TestMain also checks that nothing is left running when the tests have ended. Tests
// that only wait run beside each other, more of them than there are processors.
// After a dial that failed rueidis sleeps for up to a second, and five before it closes the
// connections of a node that has left a cluster, also if it was closed.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // -parallel, which is read later, counts more
	goleak.VerifyTestMain(services.Main(m), goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}
