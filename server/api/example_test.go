package api_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
	"github.com/holdfast-io/holdfast/server/api"
)

// A node on a port, and a client of one of its services.
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
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, ln, node, api.Config{}) }()

	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	r, err := pb.NewInspectServiceClient(conn).Inspect(context.Background(), &pb.InspectRequest{Name: "jobs/nightly"})
	fmt.Println(r.GetResource() == nil, err)
	stop()
	fmt.Println(<-served)
	// Output:
	// true <nil>
	// <nil>
}
