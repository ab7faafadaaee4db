package filehold_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/filehold"
)

func Example() {
	dir, err := os.MkdirTemp("", "filehold")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := filehold.Open(filepath.Join(dir, "locks"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	ctx := context.Background()
	hold, err := s.Mutex("jobs/nightly").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = s.Mutex("jobs/nightly").TryAcquire(ctx)
	fmt.Println("somebody else:", err != nil)
	fmt.Println("released:", hold.Release() == nil)
	n, err := s.Counter("runs").Add(ctx, 1)
	fmt.Println("runs:", n, err)
	// Output:
	// somebody else: true
	// released: true
	// runs: 1 <nil>
}

func ExampleFileName() {
	fmt.Println(filehold.FileName("orders/42"))
	// Output: orders_42U35THF2GKJOASEXJOTUNVMNHFCCYD4ML.lock
}
