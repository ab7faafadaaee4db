package remote_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/holdfast-io/holdfast/remote"
	"github.com/holdfast-io/holdfast/server"
	"github.com/holdfast-io/holdfast/server/api"
)

// A server and a program that takes a lock on it.
func Example() {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node, err := server.New(server.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go api.Serve(ctx, ln, node, api.Config{})

	s, err := remote.Open(remote.Config{Endpoints: []string{ln.Addr().String()}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	hold, err := s.Mutex("jobs/nightly").Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hold.Err(), hold.Token() > 0)
	fmt.Println(hold.Release())
	// Output:
	// <nil> true
	// <nil>
}
