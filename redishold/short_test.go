package redishold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// acquire takes a mutex, which is held until the test ends or gives it back.
func acquire(t *testing.T, s *holdfast.Space, name string) *holdfast.Hold {
	t.Helper()
	h, err := s.Mutex(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keep(t, h)
	return h
}

func add(t *testing.T, s *holdfast.Space, name string, want int64) {
	t.Helper()
	if n, err := s.Counter(name).Add(t.Context(), 1); err != nil || n != want {
		t.Fatalf("Add: %d, %v; want %d", n, err, want)
	}
}

// events follows a watch from its ready on.
func events(t *testing.T, s *holdfast.Space, name string) <-chan holdfast.Event {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	all := make(chan holdfast.Event, 100)
	go func() {
		defer close(all)
		for ev := range s.Watch(ctx, name, 0) {
			all <- ev
		}
	}()
	if ev := next(t, all); ev.Verb != driver.VerbReady {
		t.Fatalf("a watch begins with %+v", ev)
	}
	return all
}

// next is the event that comes next.
func next(t *testing.T, all <-chan holdfast.Event) holdfast.Event {
	t.Helper()
	select {
	case ev := <-all:
		return ev
	case <-time.After(20 * time.Second):
		t.Fatal("no event comes")
		return holdfast.Event{}
	}
}

// TestShortWay: a free mutex is one key, which becomes what every hold is when
// somebody waits, looks or takes it by force.
func TestShortWay(t *testing.T) {
	server := services.Redis(t)
	rc, a, b := admin(t, server.URL()), open(t, server.URL(), holdfast.Owner("a"), holdfast.TTL(10*time.Minute)), open(t, server.URL())
	short := func(name string) bool { return do(t, rc, "EXISTS", "{holdfast}:m:"+name) == "1" }
	h := acquire(t, a, "tried")
	if !short("tried") {
		t.Error("a free mutex did not go the short way")
	}
	_, err := b.Mutex("tried").TryAcquire(t.Context())
	held, ok := errors.AsType[*holdfast.Error](err)
	if !ok || len(held.Holders) != 1 || held.Holders[0].Owner != "a" || held.Holders[0].Token != h.Token() {
		t.Errorf("who tries is told %v", err)
	}
	if short("tried") {
		t.Error("it still is one key after somebody tried it")
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
	if next := acquire(t, b, "tried"); next.Token() <= h.Token() {
		t.Errorf("the token %d follows %d", next.Token(), h.Token())
	}

	h = acquire(t, a, "listed")
	names := 0
	for r, err := range b.List(t.Context(), "list") {
		if err != nil || len(r.Holders) != 1 || r.Holders[0].Token != h.Token() {
			t.Errorf("the list has %+v, %v", r, err)
		}
		names++
	}
	if names != 1 || h.Release() != nil {
		t.Errorf("%d names are listed", names)
	}
}

// TestHeldOverASlowLink: how long a mutex is held is told by the server's clock,
// whatever its client knows of that.
func TestHeldOverASlowLink(t *testing.T) {
	server := services.Redis(t)
	link := services.Proxy(t, server.Addr())
	link.Delay(300*time.Millisecond, services.ToClient)
	a, b := open(t, link.URL(server.URL()), holdfast.TTL(10*time.Minute)), open(t, server.URL())
	start := time.Now()
	acquire(t, a, "first") // opens the session
	second := time.Now()
	acquire(t, a, "second")
	for name, start := range map[string]time.Time{"first": start, "second": second} {
		_, err := b.Mutex(name).TryAcquire(t.Context())
		held, ok := errors.AsType[*holdfast.Error](err)
		if !ok || len(held.Holders) != 1 {
			t.Fatalf("who tries is told %v", err)
		}
		if most := time.Since(start) + 50*time.Millisecond; held.Holders[0].Held < 0 || held.Holders[0].Held > most {
			t.Errorf("%s is told to be held for %s, want at most %s", name, held.Holders[0].Held, most)
		}
	}
}

// TestShortWayEndsWithItsSession: nobody is left holding, and a watcher is
// told.
func TestShortWayEndsWithItsSession(t *testing.T) {
	server := services.Redis(t)
	a, b := open(t, server.URL(), holdfast.TTL(10*time.Minute)), open(t, server.URL())
	h := acquire(t, a, "m")
	all := events(t, b, "m")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if ev := next(t, all); ev.Verb != "released" || ev.Token != h.Token() {
		t.Errorf("after the end of its session: %+v", ev)
	}
	acquire(t, b, "m")
	_ = h.Release()
}

// TestShortWayIsWatched: a watcher is told of everything from its ready on,
// also by clients that went the short way until then.
func TestShortWayIsWatched(t *testing.T) {
	server := services.Redis(t)
	a, b := open(t, server.URL()), open(t, server.URL())
	before := acquire(t, a, "before")
	add(t, a, "c", 1)
	add(t, a, "c", 2)
	all := events(t, b, "")
	add(t, a, "c", 3)
	if ev := next(t, all); ev.Kind != "counter" || ev.Verb != "changed" || ev.Number != 3 {
		t.Errorf("after Add: %+v", ev)
	}
	add(t, a, "c", 4)
	if ev := next(t, all); ev.Kind != "counter" || ev.Number != 4 {
		t.Errorf("after another Add: %+v", ev)
	}
	if err := before.Release(); err != nil {
		t.Fatal(err)
	}
	if ev := next(t, all); ev.Verb != "released" || ev.Name != "before" {
		t.Errorf("after Release: %+v", ev)
	}
	h := acquire(t, a, "m")
	if ev := next(t, all); ev.Verb != "acquired" || ev.Name != "m" || ev.Token != h.Token() {
		t.Errorf("after Acquire: %+v", ev)
	}
}

// TestForgottenWatch: a server that does not know any more that somebody
// watches has told nobody meanwhile, and a watcher learns it.
func TestForgottenWatch(t *testing.T) {
	server := services.Redis(t)
	rc, s := admin(t, server.URL()), open(t, server.URL())
	all := events(t, s, "")
	do(t, rc, "DEL", "{holdfast}:watch")
	if ev := next(t, all); ev.Verb != driver.VerbResync {
		t.Errorf("got %+v; want a resync", ev)
	}
}

// TestAddToWhatWasDeleted: a client that has added to a counter cannot make it
// again under a name that has become a mutex.
func TestAddToWhatWasDeleted(t *testing.T) {
	server := services.Redis(t)
	a, b := open(t, server.URL()), open(t, server.URL())
	add(t, a, "n", 1)
	add(t, a, "n", 2)
	if err := b.Counter("n").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Counter("n").Load(t.Context()); n != 0 || err != nil {
		t.Errorf("a deleted counter is %d, %v", n, err)
	}
	h := acquire(t, b, "n")
	if n, err := a.Counter("n").Add(t.Context(), 1); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("adding to a mutex: %d, %v", n, err)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
}

// TestUnansweredAdd: an addition that was not answered is not certainly undone,
// and one that was counted is not counted again.
func TestUnansweredAdd(t *testing.T) {
	server := services.Redis(t)
	link := services.Proxy(t, server.Addr())
	a, b := open(t, link.URL(server.URL())), open(t, server.URL())
	const all = 64 // so that every connection of the client's is there
	for i := range all {
		add(t, a, "n", int64(i)+1)
	}
	link.Delay(time.Minute, services.ToClient)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := a.Counter("n").Add(ctx, 1)
		answered <- err
	}()
	eventually(t, "the server did not count", func() bool {
		n, err := b.Counter("n").Load(t.Context())
		return n == all+1 && err == nil
	})
	cancel()
	if err := <-answered; err == nil || holdfast.NotDone(err) {
		t.Errorf("an addition without an answer: %v", err)
	}
	link.Heal()
	add(t, b, "n", all+2)
}
