package redishold

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// silentClient takes as long as it likes to hang up.
type silentClient struct {
	rueidis.Client
	hungUp chan struct{}
}

func (c silentClient) Close() { <-c.hungUp }

// TestRedLockClose_OfASilentServer: Close waits for connections no longer than it may take.
func TestRedLockClose_OfASilentServer(t *testing.T) {
	silent := silentClient{hungUp: make(chan struct{})}
	defer close(silent.hungUp)
	r := newRedLock([]*node{{url: "redis://silent", rc: silent}}, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- r.Close(ctx) }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("Close waits for a server that does not answer")
	}
}
