package redishold_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestProofLostFirst cuts the holder's link, freezes and kills the server, and
// looks at the holder the moment the next one is granted: it has to know of its
// end by then. The server keeps its data.
func TestProofLostFirst(t *testing.T) {
	t.Parallel()
	faults := map[string]func(server *services.RedisServer, link *services.Link){
		"the holder's link cut": func(_ *services.RedisServer, l *services.Link) { l.Cut() },
		"answers to it cut":     func(_ *services.RedisServer, l *services.Link) { l.Cut(services.ToClient) },
		"the server stopped": func(s *services.RedisServer, _ *services.Link) {
			s.Stop()
			time.Sleep(1500 * time.Millisecond)
			s.Cont()
		},
		"the server stopped a bit": func(s *services.RedisServer, _ *services.Link) { s.Stop(); time.Sleep(rand.N(time.Second)); s.Cont() },
		"the server killed":        func(s *services.RedisServer, _ *services.Link) { s.Kill(); s.Restart() },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := services.Redis(t, services.Durable())
			var seen tally
			for range *trials {
				eventually(t, "every hold ends before the fault", func() bool { return seen.trial(t, server, fault) })
			}
			t.Logf("proof: redis: %s: %d trials, %d holds lost, %d releases unanswered, %d overlaps", name, *trials, seen.lost, seen.unanswered, seen.overlaps)
			if seen.overlaps > 0 {
				t.Errorf("%d times the next was granted while the holder believed", seen.overlaps)
			}
		})
	}
}

// tally is what the trials of a fault have seen.
type tally struct {
	overlaps   int // the next was granted while the holder believed
	lost       int // holds
	unanswered int // releases
}

// trial is one fault; false: on a busy machine the hold did not last until the
// fault.
func (y *tally) trial(t *testing.T, server *services.RedisServer, fault func(*services.RedisServer, *services.Link)) (struck bool) {
	link := services.Proxy(t, server.Addr())
	a, b := open(t, link.URL(server.URL())), open(t, server.URL())
	defer a.Close()
	defer b.Close()
	defer link.Heal()
	hold, err := a.Mutex("m", holdfast.TTL(time.Second)).Acquire(t.Context())
	if errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrLost) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	waits, seen := make(chan struct{}), make(chan error, 2)
	arrived := sync.OnceFunc(func() { close(waits) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		next, err := b.Mutex("m", holdfast.OnWait(func(int) { arrived() })).Acquire(ctx)
		was := hold.Err()
		arrived()
		seen <- err
		seen <- was
		if err == nil {
			_ = next.Release()
		}
	}()
	<-waits
	if struck = hold.Err() == nil; struck {
		fault(server, link)
	}
	select {
	case <-hold.Done():
		y.lost++
	case <-time.After(1200 * time.Millisecond): // it lives on
		y.release(t, hold)
	}
	if err := <-seen; err != nil {
		t.Errorf("the next: %v", err)
	}
	if <-seen == nil {
		y.overlaps++
	}
	return struck
}

// release gives a hold back. A server that a busy machine holds up may not answer
// before the hold is over, and then it is not said to be done.
func (y *tally) release(t *testing.T, hold *holdfast.Hold) {
	err := hold.Release()
	if errors.Is(err, holdfast.ErrUnavailable) && !holdfast.NotDone(err) {
		y.unanswered++
	} else if err != nil && !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Release: %v", err)
	}
}
