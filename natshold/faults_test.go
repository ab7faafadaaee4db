package natshold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/natsconn"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/natshold"
)

// told is a watch that runs beside the test. The channel is closed when it ends;
// why is its error then.
type told struct {
	events chan holdfast.Event
	why    error
}

// watch begins one, and returns when it is ready.
func watch(t *testing.T, s *holdfast.Space, prefix string) *told {
	t.Helper()
	w := &told{events: make(chan holdfast.Event, 10000)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		defer close(w.events)
		for ev, err := range s.Watch(ctx, prefix, 0) {
			if w.why = err; err == nil {
				w.events <- ev
			}
		}
	}()
	if ev := <-w.events; ev.Verb != driver.VerbReady {
		t.Fatalf("the first event is %s, %v", ev.String(), w.why)
	}
	return w
}

// TestRestart: a restart in the middle of everything, orderly or not, loses
// nothing.
func TestRestart(t *testing.T) {
	for name, end := range map[string]func(*services.NATSServer){"killed": func(s *services.NATSServer) { s.Kill() }, "in order": func(*services.NATSServer) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := services.NATS(t)
			s, waiter := open(t, server.URL()), open(t, server.URL())
			events := watch(t, open(t, server.URL()), "c")
			h := must(s.Mutex("m").Acquire(t.Context()))(t)
			must(s.Counter("c").Add(t.Context(), 7))(t)
			waits, granted := make(chan struct{}), make(chan error, 1)
			go func() {
				next, err := waiter.Mutex("m", holdfast.OnWait(func(int) { close(waits) })).Acquire(t.Context())
				if err == nil && next.Token() <= h.Token() {
					err = fmt.Errorf("the token %d came after %d", next.Token(), h.Token())
				}
				if err == nil {
					err = next.Release()
				}
				granted <- err
			}()
			<-waits
			end(server)
			server.Restart()
			eventually(t, "the server does not come back", func() bool { return s.Ping(t.Context()) == nil })
			check(t, h.Err())
			check(t, h.Release())
			check(t, <-granted)
			if n := must(s.Counter("c").Add(t.Context(), 1))(t); n != 8 {
				t.Errorf("the counter is %d", n)
			}
			for _, want := range []uint64{7, 8} {
				if ev := <-events.events; ev.Name != "c" || ev.Number != want {
					t.Errorf("the watch tells %s of %q with %d; want %d", ev.String(), ev.Name, ev.Number, want)
				}
			}
		})
	}
}

// TestServerIsAway: what cannot be sent is certainly not done, and is not sent
// later.
func TestServerIsAway(t *testing.T) {
	t.Parallel()
	server := services.NATS(t)
	s := open(t, server.URL())
	must(s.Counter("c").Add(t.Context(), 1))(t)
	server.Kill()
	eventually(t, "the connection lasts", func() bool { return s.Ping(t.Context()) != nil })
	var all sync.WaitGroup
	for what, call := range map[string]func() error{
		"add":  func() error { return second(s.Counter("c").Add(t.Context(), 1)) },
		"put":  func() error { return second(s.KV().Put(t.Context(), "k", nil)) },
		"try":  func() error { return second(s.Mutex("m").TryAcquire(t.Context())) },
		"list": func() error { return second(s.KV().Page(t.Context(), "")) },
		"ping": func() error { return s.Ping(t.Context()) },
	} {
		all.Go(func() {
			if err := call(); !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
				t.Errorf("%s without a server: %v", what, err)
			}
		})
	}
	all.Wait()
	server.Restart()
	eventually(t, "the server does not come back", func() bool { return s.Ping(t.Context()) == nil })
	if n := must(s.Counter("c").Load(t.Context()))(t); n != 1 {
		t.Errorf("the counter is %d", n)
	}
	if err := second(s.KV().Get(t.Context(), "k")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a put that was not done: %v", err)
	}
}

// TestFrozenServer: one that does not answer is given up, and the caller's own
// end is at once.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	server := services.NATS(t)
	s := open(t, server.URL())
	must(s.Counter("c").Add(t.Context(), 1))(t)
	server.Stop()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Counter("c").Add(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's time is over: %v", err)
	}
	if _, err := s.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("try: %v", err)
	}
	server.Cont()
	eventually(t, "the server does not come back", func() bool { return s.Ping(t.Context()) == nil })
}

// consumers is how many feeds the server has of a bucket, and of what.
func consumers(js nats.JetStreamContext, bucket string) (filters []string) {
	for info := range js.Consumers("KV_" + bucket) {
		filters = append(filters, info.Config.FilterSubject)
	}
	return filters
}

// TestWaiterIsToldByTheServer: a waiter has the key's changes pushed to it,
// only one in a process, and nothing of it is left.
func TestWaiterIsToldByTheServer(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	s := open(t, server.URL()+"/b")
	h := must(s.Mutex("a/b.c").Acquire(t.Context()))(t)
	waiting, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	for range 5 {
		go func() { _, err := s.Mutex("a/b.c").Acquire(waiting); over <- err }()
	}
	eventually(t, "not all wait", func() bool { return must(s.Inspect(t.Context(), "a/b.c"))(t).Waiting == 5 })
	var of []string
	eventually(t, "the server tells no waiter", func() bool { of = consumers(js, "b"); return len(of) > 0 })
	if got := fmt.Sprint(of); got != "[$KV.b.l.a/b=2Ec]" {
		t.Errorf("five waiters of a process are told of %s", got)
	}
	cancel()
	for range 5 {
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	eventually(t, "a waiter that left is told", func() bool { return len(consumers(js, "b")) == 0 })
	check(t, h.Release())
}

// TestOpen_SlowServer: Open waits for a server that answers late, for longer than calls
// wait on a link that is open.
func TestOpen_SlowServer(t *testing.T) {
	server := services.NATS(t)
	nc := connect(t, server.URL())
	opened := make(chan error, 1)
	server.Stop()
	go func() {
		d, err := natshold.New(t.Context(), nc, &natshold.Options{Bucket: "b"})
		if err == nil {
			err = d.Close(t.Context())
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Errorf("Open gives up before its server answers: %v", err)
	case <-time.After(natsconn.Patience + time.Second):
	}
	server.Cont()
	check(t, <-opened)
}

// TestWaiterLeavesEarly: a waiter that leaves before the server has answered that it will
// push the changes has none pushed any more.
func TestWaiterLeavesEarly(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	link := services.Proxy(t, server.Addr())
	url := server.URL() + "/b"
	must(open(t, url).Mutex("m").Acquire(t.Context()))(t)
	s := open(t, link.URL(url))
	link.Delay(time.Second, services.ToClient)
	waiting, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { _, err := s.Mutex("m").Acquire(waiting); over <- err }()
	eventually(t, "the server tells no waiter", func() bool { return len(consumers(js, "b")) > 0 })
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "a waiter that left is told", func() bool { return len(consumers(js, "b")) == 0 })
}

// TestWatchEndsAsItBegins: a watch that is cancelled at its first event leaves
// nothing at the server that would be pushed to it.
func TestWatchEndsAsItBegins(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	s := open(t, server.URL()+"/b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range s.Watch(ctx, "", 0) {
		cancel()
	}
	eventually(t, "a watch that ended is told", func() bool { return len(consumers(js, "b")) == 0 })
}

// TestLeavesNothing: a closed Space has no goroutine left, and the server
// nothing that would be sent to it.
func TestLeavesNothing(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	must(js.AccountInfo())(t) // the connection begins to listen
	before := goleak.IgnoreCurrent()
	s := must(answered(func() (*holdfast.Space, error) { return holdfast.Open(t.Context(), server.URL()+"/b") }))(t)
	h := must(s.Mutex("m").Acquire(t.Context()))(t)
	waiting := make(chan error, 1)
	go func() { waiting <- second(s.Mutex("m").Acquire(context.Background())) }()
	watching := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		var last error
		for ev, err := range s.Watch(context.Background(), "", 0) {
			if last = err; err == nil && ev.Verb == driver.VerbReady {
				close(ready)
			}
		}
		watching <- last
	}()
	<-ready
	must(s.KV().Page(t.Context(), ""))(t)
	eventually(t, "nobody waits", func() bool { return len(consumers(js, "b")) == 2 })
	check(t, s.Close())
	if err := <-watching; !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("the watch: %v", err)
	}
	if err := <-waiting; !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("the wait: %v", err)
	}
	_ = h.Release()
	// goleak itself waits for less than half a second, in which a busy machine may not
	// have run what is about to end.
	eventually(t, "goroutines are left", func() bool { return goleak.Find(before) == nil })
	eventually(t, "feeds are left", func() bool { return len(consumers(js, "b")) == 0 })
	other := open(t, server.URL()+"/b")
	check(t, must(other.Mutex("m").TryAcquire(t.Context()))(t).Release())
}

// TestGap: what was overwritten while a watcher was away is a watch:resync, and
// what comes after is told.
func TestGap(t *testing.T) {
	server := services.NATS(t)
	link := services.Proxy(t, server.Addr())
	url := server.URL() + "/b?history=1"
	writer, reader := open(t, url), open(t, link.URL(url))
	w := watch(t, reader, "k")
	put := func(v string) { must(writer.KV().Put(t.Context(), "k", []byte(v)))(t) }
	put("one")
	if ev := <-w.events; ev.String() != "kv:put" {
		t.Fatalf("told %s", ev.String())
	}
	link.Cut()
	link.Break()
	for range 5 {
		put("overwritten")
	}
	put("left")
	link.Heal()
	if ev := <-w.events; ev.String() != "watch:resync" {
		t.Fatalf("after a gap came %s, %v", ev.String(), w.why)
	}
	put("end")
	for ev := range w.events {
		if ev.KV != nil && string(ev.KV.Value) == "end" {
			return
		}
	}
	t.Errorf("the watch ended: %v", w.why)
}

// TestBacklogIsOneResync: a watch that was away while other names were changed more often than
// their history is long is told one resync, whatever is missing in what it is behind with, and
// then what comes.
func TestBacklogIsOneResync(t *testing.T) {
	server := services.NATS(t)
	link := services.Proxy(t, server.Addr())
	url := server.URL() + "/b?history=2"
	writer, reader := open(t, url), open(t, link.URL(url))
	w := watch(t, reader, "w/")
	link.Cut()
	link.Break()
	for i := range 200 { // the history of the first ones is over at different times
		must(writer.Counter(fmt.Sprint("c", i*i%(7+i/4))).Add(t.Context(), 1))(t)
	}
	must(writer.KV().Put(t.Context(), "w/missed", nil))(t)
	link.Heal()
	if ev := <-w.events; ev.String() != "watch:resync" {
		t.Fatalf("after a backlog came %s, %v", ev.String(), w.why)
	}
	for i := range 20 {
		name := fmt.Sprint("w/", i)
		must(writer.KV().Put(t.Context(), name, nil))(t)
		if ev := <-w.events; ev.Name != name {
			t.Fatalf("after the resync and a put of %s came %s of %q, %v", name, ev.String(), ev.Name, w.why)
		}
	}
}

// TestBrokenLinks: a watcher whose link breaks again and again is told every
// change in order, or that some are missing.
func TestBrokenLinks(t *testing.T) {
	server := services.NATS(t)
	link := services.Proxy(t, server.Addr())
	writer, reader := open(t, server.URL()), open(t, link.URL(server.URL()))
	w := watch(t, reader, "k")
	const n = 300
	var writing sync.WaitGroup
	defer writing.Wait() // the last answer can come after its event
	writing.Go(func() {
		for i := range n {
			if i%30 == 17 {
				link.Break()
			}
			if _, err := writer.KV().Put(t.Context(), "k", nil); err != nil {
				t.Error(err)
				return
			}
		}
	})
	version, resyncs := uint64(0), 0
	for version < n {
		ev, ok := <-w.events
		switch {
		case !ok:
			t.Fatalf("the watch ended after version %d: %v", version, w.why)
		case ev.Verb == driver.VerbResync:
			resyncs++
			e := must(writer.KV().Get(t.Context(), "k"))(t)
			version = e.Version
		case ev.KV.Version > version+1:
			t.Fatalf("version %d came after %d, and no resync", ev.KV.Version, version)
		default:
			version = max(version, ev.KV.Version)
		}
	}
	t.Logf("%d resyncs", resyncs)
}

// TestWatchOfADeletedBucket ends with what is wrong.
func TestWatchOfADeletedBucket(t *testing.T) {
	t.Parallel()
	server := services.NATS(t)
	s := open(t, server.URL()+"/b")
	w := watch(t, s, "")
	check(t, streams(t, connect(t, server.URL())).DeleteStream("KV_b"))
	for ev := range w.events {
		t.Errorf("told %s", ev.String())
	}
	if !errors.Is(w.why, holdfast.ErrUnavailable) || errors.Is(w.why, holdfast.ErrNotFound) {
		t.Errorf("the watch ended with %v", w.why)
	}
}
