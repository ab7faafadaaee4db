package edgetest_test

import (
	"fmt"
	"log"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
)

func ExampleHub() {
	hub := edgetest.NewHub(edgetest.Faults{Repeat: 100, MaxDelay: time.Millisecond})
	got := make(chan string, 2)
	stop, err := hub.Link("osaka").Listen(func(m []byte) { got <- string(m) })
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	berlin := hub.Link("berlin")

	hub.Partition("berlin")
	if err := berlin.Send([]byte("lost")); err != nil {
		log.Fatal(err)
	}
	hub.Heal()
	if err := berlin.Send([]byte("repeated")); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-got, <-got)
	// Output: repeated repeated
}
