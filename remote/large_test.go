package remote_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Many large reads at once are all answered, over the stream that keeps the Space's holds:
// together they are more than a stream may leave unread.
func TestManyLargeReads(t *testing.T) {
	s := openAt(t, newGroup(t, 1, steady).cfgs[0].Founders[0].Client)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hold, err := s.Mutex("m").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		if _, err := s.KV().Put(ctx, fmt.Sprintf("p/%02d", i), make([]byte, 60_000)); err != nil {
			t.Fatal(err)
		}
	}
	resume := stall(s) // so that they travel together
	var readers sync.WaitGroup
	for range 40 {
		readers.Go(func() {
			n, err := readAll(ctx, s, "p/")
			if n != 16 || err != nil {
				t.Errorf("%d of 16 keys: %v", n, err)
			}
		})
	}
	resume()
	readers.Wait()
	if err := hold.Err(); err != nil {
		t.Errorf("the hold beside them is lost: %v", err)
	}
}

// readAll counts the keys with a prefix.
func readAll(ctx context.Context, s *holdfast.Space, prefix string) (n int, err error) {
	for _, err := range s.KV().Range(ctx, prefix) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
