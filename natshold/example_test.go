package natshold_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/natshold"
)

// natsURL is NATS_URL in a program; here it is a server of the tests.
func natsURL() (url string, stop func()) {
	if url := os.Getenv("HOLDFAST_TEST_NATS_URL"); url != "" {
		return url, func() {}
	}
	t := &exampleTB{}
	return services.NATS(t).URL(), t.end
}

// A Space on NATS is opened by its URL.
func Example() {
	url, stop := natsURL()
	defer stop()
	ctx := context.Background()
	s, err := holdfast.Open(ctx, url+"/example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	err = s.Mutex("jobs/nightly").Do(ctx, func(ctx context.Context, h *holdfast.Hold) error {
		fmt.Println("holding", h.Name(), h.Token() > 0)
		return nil
	})
	n, _ := s.Sequence("runs").Next(ctx)
	fmt.Println(err, n > 0)
	// Output:
	// holding jobs/nightly true
	// <nil> true
}

// A program that has a connection to NATS uses it.
func ExampleNew() {
	url, stop := natsURL()
	defer stop()
	ctx := context.Background()
	nc, err := nats.Connect(url, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	d, err := natshold.New(ctx, nc, &natshold.Options{Bucket: "mine", History: 16})
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
