package rpc

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// From a client that does not take its answers nothing more is read, until it
// does.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{wake: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
		o.add(make([]byte, maxUnread), nil)
		if err := o.room(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.take(nil) // an old word that somebody has taken must not let the next pass
		o.add(make([]byte, maxUnread+1), nil)
		waits := true
		go func() {
			_ = o.room(t.Context())
			waits = false
		}()
		synctest.Wait()
		if !waits {
			t.Error("the client is read on")
		}
		o.take(nil)
		synctest.Wait()
		if waits {
			t.Error("who waited was not told")
		}
	})
}

// slowClient takes a batch when it is told to.
type slowClient struct {
	grpc.BidiStreamingServer[pb.Batch, pb.Batch]
	take chan int // how many bytes there were
}

func (c slowClient) Send(b *pb.Batch) error {
	c.take <- len(b.GetMessages())
	return nil
}

// The next page of a claim table is asked for when the client has taken the one
// before, so that no more waits for it than a page.
func TestNextPageWhenTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{wake: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
		c := slowClient{take: make(chan int)}
		ended := make(chan error)
		go func() { ended <- o.run(c) }()
		pages := 1
		var next func()
		next = func() {
			pages++
			o.add(make([]byte, maxBehind/2), next)
		}
		o.add(make([]byte, maxBehind/2), next)
		for want := 1; want <= 10; want++ {
			synctest.Wait()
			if pages != want {
				t.Fatalf("%d pages before the client took the %d.", pages, want)
			}
			if got := <-c.take; got != maxBehind/2 {
				t.Fatalf("page %d has %d bytes", want, got)
			}
		}
		o.end()
		<-c.take
		if err := <-ended; err != nil {
			t.Errorf("the stream ended: %v", err)
		}
	})
}
