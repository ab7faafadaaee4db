package natshold

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/internal/natsconn"
	"github.com/holdfast-io/holdfast/internal/services"
)

// beginnings is a server that counts the feeds that begin, and does not answer the first ones.
type beginnings struct {
	nats.JetStreamContext
	asked  atomic.Int32
	silent int32
	begun  func(n int32) // if any, called after each that has begun
}

func (b *beginnings) UpdateConsumer(stream string, cfg *nats.ConsumerConfig, opts ...nats.JSOpt) (*nats.ConsumerInfo, error) {
	n := b.asked.Add(1)
	if n <= b.silent {
		return nil, errors.New("no answer")
	}
	info, err := b.JetStreamContext.UpdateConsumer(stream, cfg, opts...)
	if b.begun != nil {
		b.begun(n)
	}
	return info, err
}

// counted is a bucket at such a server.
func counted(t *testing.T) (*store, *beginnings) {
	t.Helper()
	nc, err := nats.Connect(services.NATS(t).URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	opts, err := (&Options{patience: time.Minute}).settled() // a busy machine holds the server up
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t.Context(), natsconn.Of(nc), opts)
	if err != nil {
		t.Fatal(err)
	}
	b := &beginnings{JetStreamContext: s.js}
	s.js = b
	return s, b
}

// begun is the error with which a watch begins; nil: it stands.
func begun(ctx context.Context, s *store) error {
	for _, err := range s.Changed(ctx, "") {
		return err
	}
	return ctx.Err()
}

// TestWatchesBeginInTurns: no more than so many watches begin at a time, since a server that is
// asked for hundreds at once leaves the last ones without an answer for too long.
func TestWatchesBeginInTurns(t *testing.T) {
	s, b := counted(t)
	for range beginsAtATime {
		s.begins <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := begun(ctx, s); !errors.Is(err, context.DeadlineExceeded) || b.asked.Load() != 0 {
		t.Errorf("a watch beside %d that begin: %v, asked for %d times", beginsAtATime, err, b.asked.Load())
	}
	<-s.begins
	for range 2 {
		if err := begun(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
}

// TestWatchBeginsLater: a watch that the server does not answer for a moment begins when it does.
func TestWatchBeginsLater(t *testing.T) {
	s, b := counted(t)
	b.silent = 2
	if err := begun(t.Context(), s); err != nil {
		t.Error(err)
	}
}
