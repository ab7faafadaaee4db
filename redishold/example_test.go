package redishold_test

import (
	"context"
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

// redisURL is REDIS_URL in a program; here it is a server of the tests.
func redisURL() (url string, stop func()) {
	if url := os.Getenv("HOLDFAST_TEST_REDIS_URL"); url != "" {
		return url, func() {}
	}
	t := &exampleTB{}
	return services.Redis(t).URL(), t.end
}

// A Space on Redis is opened by its URL.
func Example() {
	url, stop := redisURL()
	defer stop()
	ctx := context.Background()
	s, err := holdfast.Open(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	err = s.Mutex("jobs/nightly").Do(ctx, func(ctx context.Context, h *holdfast.Hold) error {
		fmt.Println("holding", h.Name(), h.Token() > 0)
		return nil
	})
	n, _ := s.Counter("runs").Add(ctx, 1)
	fmt.Println(err, n)
	// Output:
	// holding jobs/nightly true
	// <nil> 1
}

// Several independent servers grant a mutex by majority.
func ExampleOpenRedLock() {
	a, stopA := redisURL()
	defer stopA()
	b, stopB := redisURL()
	defer stopB()
	c, stopC := redisURL()
	defer stopC()
	ctx := context.Background()
	d, err := redishold.OpenRedLock(ctx, []string{a, b, c}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, _ := holdfast.New(d)
	defer s.Close()
	h, err := s.Mutex("jobs/nightly").Acquire(ctx)
	fmt.Println(err, h.Release())
	// Output:
	// <nil> <nil>
}
