package memhold_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/memhold"
)

func Example() {
	ctx := context.Background()
	s := memhold.Open(holdfast.Owner("alice"))
	defer s.Close()

	hold, err := s.Mutex("jobs/nightly").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Release()

	_, err = s.Mutex("jobs/nightly").TryAcquire(ctx)
	fmt.Println(errors.Is(err, holdfast.ErrHeld), hold.Err())
	// Output: true <nil>
}

// A URL with a name is shared by everybody in the process who opens it.
func Example_shared() {
	ctx := context.Background()
	a, _ := holdfast.Open(ctx, "mem://orders")
	b, _ := holdfast.Open(ctx, "mem://orders")
	defer a.Close()
	defer b.Close()

	_, _ = a.Counter("orders").Add(ctx, 2)
	n, err := b.Counter("orders").Add(ctx, 1)
	fmt.Println(n, err)
	// Output: 3 <nil>
}
