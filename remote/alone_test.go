package remote_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"

	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/server"
)

// addrEnv is the address of that server, if it is to have a certain one.
const addrEnv = "REMOTE_TEST_ADDR"

// serveAlone is what the test binary does as another process: it serves a node on a
// directory until its standard input ends.
func serveAlone(dir string) error {
	node, err := server.New(server.Config{Dir: dir})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", cmp.Or(os.Getenv(addrEnv), "127.0.0.1:0"))
	if err != nil {
		return err
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr(), admin.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		cancel()
	}()
	err = api.Serve(ctx, ln, api.New(node), api.Config{Admin: admin})
	return err
}
