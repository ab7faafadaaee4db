package rpc

import (
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/session"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// From a client that does not take its answers nothing more is read, until it
// does.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
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
		o := newOutbox()
		c := slowClient{take: make(chan int)}
		ended := make(chan error)
		go func() { ended <- o.run(c) }()
		pages := 1
		page := reply(maxBehind / 2)
		var next func()
		next = func() {
			pages++
			o.add(page, next)
		}
		o.add(page, next)
		for want := 1; want <= 10; want++ {
			synctest.Wait()
			if pages != want {
				t.Fatalf("%d pages before the client took the %d.", pages, want)
			}
			if got := <-c.take; got != len(page) {
				t.Fatalf("page %d has %d bytes", want, got)
			}
		}
		synctest.Wait() // the next one is being sent
		o.end()
		<-c.take
		if err := <-ended; err != nil {
			t.Errorf("the stream ended: %v", err)
		}
	})
}

// reply is a message with so many bytes in it.
func reply(n int) []byte {
	return session.AppendMessage(nil, &session.Message{Kind: session.KindReply, Body: make([]byte, n)})
}

// A client that reads gets an answer of any size: were its stream closed, it would ask
// again, and the answer would be the same.
func TestLargeAnswerIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
		c := slowClient{take: make(chan int)}
		ended := make(chan error, 1)
		go func() { ended <- o.run(c) }()
		var data []byte
		for len(data) <= maxBehind {
			data = append(data, reply(maxPiece/3)...)
		}
		for range 3 {
			o.add(data, nil)
			for left := len(data); left > 0; {
				select {
				case n := <-c.take:
					if left -= n; n > maxPiece {
						t.Fatalf("a batch of %d bytes", n)
					}
				case err := <-ended:
					t.Fatalf("the stream of a client that reads ended: %v", err)
				}
			}
		}
		o.end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The stream of a client that does not read is closed while its sender still waits, and
// keeps nothing more.
func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, c := newOutbox(), slowClient{take: make(chan int)}
		ended := make(chan error, 1)
		go func() { ended <- o.carry(c) }()
		o.add(reply(1), nil)
		synctest.Wait() // it is being sent, and is not taken
		for range 5 {
			o.add(reply(maxBehind), nil)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, driver.ErrExhausted) {
				t.Errorf("the stream ended with %v", err)
			}
		default:
			t.Error("the stream goes on")
		}
		if len(o.data) > 0 || o.room(t.Context()) == nil {
			t.Errorf("%d bytes are kept for a stream that has ended, or more is read from it", len(o.data))
		}
		<-c.take // as the end of the stream does
	})
}
