//go:build unix

package natslink_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/natslink"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
)

// listened is how often a link has handed on each message, of so many.
type listened struct {
	mu   sync.Mutex
	of   int
	seen map[string]int
}

func (l *listened) receive(m []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[string(m)]++; len(l.seen)%16 == 0 {
		time.Sleep(time.Millisecond) // more slowly than the server sends
	}
}

// times is how often each message came.
func (l *listened) times() (least, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.seen) == l.of {
		least = slices.Min(slices.Collect(maps.Values(l.seen)))
	}
	for _, n := range l.seen {
		most = max(most, n)
	}
	return least, most
}

func (l *listened) String() string {
	least, most := l.times()
	return fmt.Sprintf("of %d messages each came %d to %d times", l.of, least, most)
}

// TestFeedOfMany: more than a connection has room for is read without a loss, once, and
// once more if it is asked for; nobody is told that something was missed.
func TestFeedOfMany(t *testing.T) {
	const many = 5000
	nc := connect(t, services.SharedNATS(t).URL(), nats.SyncQueueLen(1000))
	l, err := natslink.New(t.Context(), nc, &natslink.Options{Stream: "FEED", Subject: "feed", OnError: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		m := make([]byte, 1000) // all of it is more than the server sends without an answer
		rand.Read(m)
		if err := l.Keep(edge.Place{Actor: crdt.Actor{Node: "a"}, Kind: "counters", Part: i}, 0, m); err != nil {
			t.Fatal(err)
		}
	}
	js := stream(t, nc.ConnectedUrl())
	eventually(t, func() bool { return len(kept(t, js, "FEED", "feed.s.>")) == many }, func() string { return "not all is kept" })
	var missed atomic.Int64
	l.Missed(func() { missed.Add(1) })
	got := &listened{of: many, seen: map[string]int{}}
	stop, err := l.Listen(got.receive)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for times := 1; times <= 2; times++ {
		eventually(t, func() bool { least, _ := got.times(); return least == times }, got.String)
		if _, most := got.times(); most != times {
			t.Fatalf("round %d: %s", times, got)
		}
		l.Replay()
	}
	if missed.Load() > 0 {
		t.Errorf("%d times something was missed", missed.Load())
	}
}

// TestWindowsAreForgotten: of nodes that are gone the stream forgets windows soon, and
// counters not.
func TestWindowsAreForgotten(t *testing.T) {
	t.Parallel() // it mostly waits
	url := services.SharedNATS(t).URL()
	for i := range 3 {
		n := node(t, fmt.Sprint(i), link(t, url, nil))
		counter(t, n, "x").Add(1)
		l, err := n.Limiter("l", edge.LimiterConfig{Rate: limit.Rate{Count: 10, Per: time.Second, Algorithm: limit.FixedWindow}})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := l.Take("k", time.Now(), 1); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		n.Close()
	}
	js := stream(t, url)
	all := func() map[string]bool { return kept(t, js, t.Name(), ">") }
	counters := func() int { return len(kept(t, js, t.Name(), "test."+t.Name()+".s.*.*.counters.*")) }
	eventually(t, func() bool { return counters() == 3 && len(all()) == 3 }, func() string { return fmt.Sprint(all()) })
}

// TestStreamWithoutTimes: a stream that does not forget messages one by one keeps them all
// the same.
func TestStreamWithoutTimes(t *testing.T) {
	url := services.SharedNATS(t).URL()
	if _, err := stream(t, url).AddStream(&nats.StreamConfig{Name: t.Name(), Subjects: []string{"test." + t.Name() + ".s.>"}, MaxMsgsPerSubject: 1}); err != nil {
		t.Fatal(err)
	}
	n := node(t, "a", link(t, url, nil))
	counter(t, n, "x").Add(1)
	n.Close()
	js := stream(t, url)
	eventually(t, func() bool { return len(kept(t, js, t.Name(), ">")) == 2 }, func() string { return fmt.Sprint(kept(t, js, t.Name(), ">")) })
	agree(t, 1, node(t, "b", link(t, url, nil)))
}

// TestAllHear: each of several nodes has every message that another sends.
func TestAllHear(t *testing.T) {
	const many = 20
	url := services.SharedNATS(t).URL()
	heard := make([]*listened, 3)
	for i := range heard {
		heard[i] = &listened{of: many, seen: map[string]int{}}
		l := link(t, url, nil)
		stop, err := l.Listen(heard[i].receive)
		if err == nil {
			err = l.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	sender := link(t, url, nil)
	for i := range many {
		if err := sender.Send(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range heard {
		eventually(t, func() bool { least, _ := l.times(); return least == 1 }, l.String)
	}
}

// TestNothingAfterStop: when a link does not listen any more it does not hand on what came
// before either.
func TestNothingAfterStop(t *testing.T) {
	url := services.SharedNATS(t).URL()
	sender := link(t, url, nil)
	for range 20 {
		var running atomic.Int64
		l := link(t, url, nil)
		came := make(chan struct{}, 100)
		stop, err := l.Listen(func([]byte) {
			running.Add(1)
			defer running.Add(-1)
			came <- struct{}{}
			time.Sleep(time.Millisecond)
		})
		if err == nil {
			err = l.Flush()
		}
		for range 10 {
			if err == nil {
				err = sender.Send([]byte("m"))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		<-came
		stop()
		if running.Load() > 0 {
			t.Fatal("a message is still being handed on")
		}
		l.Close()
	}
}
