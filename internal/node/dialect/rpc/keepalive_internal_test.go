package rpc

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// heldKeeper is a stream of so many messages, each of which is under way until go is closed;
// count is how many are.
func heldKeeper(messages int64, all int, let <-chan struct{}) (k *keeper, count chan struct{}) {
	count = make(chan struct{}, messages)
	n := int64(0)
	return &keeper{
		all: make(chan struct{}, all), answers: make(chan chan kept, streamKeeps),
		recv: func() (*pb.LeaseKeepAliveRequest, error) {
			if n++; n > messages {
				return nil, io.EOF
			}
			return &pb.LeaseKeepAliveRequest{Id: n}, nil
		},
		keep: func(ctx context.Context, m *pb.LeaseKeepAliveRequest) (*pb.LeaseKeepAliveResponse, error) {
			count <- struct{}{}
			select {
			case <-let:
				return &pb.LeaseKeepAliveResponse{Id: m.Id}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}, count
}

// The leases of one stream are renewed at the same time, as many as a stream and the node have
// places for, and answered in the order in which their messages came.
func TestKeepAlive_Together(t *testing.T) {
	for all, most := range map[int]int{allKeeps: streamKeeps, 20: 20} {
		synctest.Test(t, func(t *testing.T) {
			const messages = 1000
			let := make(chan struct{})
			k, count := heldKeeper(messages, all, let)
			go k.receive(t.Context())
			ended, next := make(chan error, 1), int64(0)
			go func() {
				ended <- k.run(t.Context(), func(r *pb.LeaseKeepAliveResponse) error {
					if next++; r.Id != next {
						t.Errorf("answer %d is about lease %d", next, r.Id)
					}
					return nil
				})
			}()
			synctest.Wait()
			if n := len(count); n < most || n > most+1 { // one more is being waited for
				t.Errorf("%d of %d are under way with %d places", n, messages, all)
			}
			close(let)
			if err := <-ended; err != nil || next != messages {
				t.Errorf("%d answers, then %v", next, err)
			}
		})
	}
}

// One that fails ends the stream, and with it all that are under way.
func TestKeepAlive_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := heldKeeper(100, allKeeps, nil)
		cause, held := errors.New("no leader"), k.keep
		k.keep = func(ctx context.Context, m *pb.LeaseKeepAliveRequest) (*pb.LeaseKeepAliveResponse, error) {
			if m.Id == 1 {
				return nil, cause
			}
			return held(ctx, m)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go k.receive(ctx)
		if err := k.run(ctx, nil); err != cause {
			t.Errorf("the stream ends with %v", err)
		}
		cancel()
		synctest.Wait()
		if n := len(k.all); n > 0 {
			t.Errorf("%d are under way after the end", n)
		}
	})
}
