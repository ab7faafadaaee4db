package onstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
)

func ExampleNew() {
	store := newStore(true) // any engine that can compare and swap
	s, err := holdfast.New(onstore.New(store, onstore.Options{Info: driver.Info{Scheme: "cas"}}))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	h, err := s.Mutex("jobs").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("token", h.Token())
	fmt.Println(h.Release())
	n, err := s.Counter("runs").Add(ctx, 5)
	fmt.Println(n, err)
	// Output:
	// token 1
	// <nil>
	// 5 <nil>
}
