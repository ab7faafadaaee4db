package edge_test

import (
	"fmt"
	"log"
	"time"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

func Example() {
	hub := edgetest.NewHub(edgetest.Faults{}) // in place of a network
	perDay := edge.LimiterConfig{Rate: limit.Rate{Count: 3, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}}
	var nodes []*edge.Node
	for _, name := range []string{"berlin", "osaka"} {
		node, err := edge.Open(edge.Config{Actor: name, Link: hub.Link(name), Flush: time.Millisecond})
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close()
		nodes = append(nodes, node)
	}
	views, err := nodes[1].Counter("views")
	if err != nil {
		log.Fatal(err)
	}
	changes, stop := views.Watch()
	defer stop()
	there, err := nodes[0].Counter("views")
	if err != nil {
		log.Fatal(err)
	}
	there.Add(41)
	<-changes
	views.Add(1)
	fmt.Println(views.Value(), "views")

	limiter, err := nodes[0].Limiter("logins", perDay)
	if err != nil {
		log.Fatal(err)
	}
	now := time.Now()
	for range 4 {
		d, err := limiter.Take("10.0.0.1", now, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// 42 views
	// true 2
	// true 1
	// true 0
	// false 0
}
