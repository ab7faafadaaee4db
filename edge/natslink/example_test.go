//go:build unix

package natslink_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/natslink"
)

func Example() {
	ctx := context.Background()
	// A server that cannot be reached is no error: nodes count on without it.
	link, err := natslink.Open(ctx, "nats://127.0.0.1:1?subject=shop.edge&retention=24h", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
	node, err := edge.Open(edge.Config{Actor: "pod-7f3a", Link: link})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	views, err := node.Counter("views")
	if err != nil {
		log.Fatal(err)
	}
	views.Add(42)
	fmt.Println(views.Value(), link.Err() != nil)
	// Output:
	// 42 true
}
