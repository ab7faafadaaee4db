package remote_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/remote"
)

// A call of any kind that ends while there is no connection says why there is none, and what
// ended it: else a wrong address reads as a server that is slow.
func TestUnreachableIsTold(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancelCause(t.Context())
	late := errors.New("it took too long")
	var dialled atomic.Int64
	cfg := remote.Config{Endpoints: []string{"nobody.invalid:7420"}}
	host.Put(&cfg, &host.Host{Dial: func(context.Context, string) (net.Conn, error) {
		if dialled.Add(1) == 2 { // what the first has found out is known
			end(late)
		}
		return nil, errors.New("nobody is there")
	}})
	s, err := remote.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var calls sync.WaitGroup
	for name, call := range map[string]func() error{
		"load": func() error { _, err := s.Counter("n").Load(ctx); return err },
		"add":  func() error { _, err := s.Counter("n").Add(ctx, 1); return err },
		"put":  func() error { _, err := s.KV().Put(ctx, "k", nil); return err },
		"limit": func() error {
			_, err := s.Limiter("l", limit.Rate{Count: 1, Per: time.Second}).Allow(ctx, "x")
			return err
		},
		"next":    func() error { _, err := s.Sequence("s").Next(ctx); return err },
		"session": func() error { _, err := s.Session(ctx); return err },
		"acquire": func() error { _, err := s.Mutex("m").Acquire(ctx); return err },
		"inspect": func() error { _, err := s.Inspect(ctx, "m"); return err },
	} {
		calls.Go(func() {
			err := call()
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nobody.invalid:7420: ") || !strings.Contains(err.Error(), "nobody is there") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	calls.Wait()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Counter("n").Load(short); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("the kind of the error is that of the call's end: %v", err)
	}
}
