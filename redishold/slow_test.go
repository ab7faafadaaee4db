package redishold_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestDeadlineFromBeforeTheSend: a hold's deadline is counted from before it was
// asked for, however long the answer takes.
func TestDeadlineFromBeforeTheSend(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	const ttl = 9 * time.Second // which no pause of the machine takes
	s := open(t, link.URL(server.URL())+"?holdfast_min_validity=500ms", holdfast.TTL(ttl))
	for i := range 3 {
		before := driver.Now()
		h, err := s.RWMutex(fmt.Sprint(name, i)).Writer().Acquire(t.Context()) // extends the session
		if err != nil {
			t.Fatal(err)
		}
		d, _ := h.Deadline()
		if i > 0 && d.After(before.Add(ttl)) { // the first also opened the session
			t.Errorf("the deadline is %s after the call, beyond the TTL of %s", d.Sub(before), ttl)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		link.Delay(800*time.Millisecond, services.ToClient)
	}
}

// TestTooSlow: a server that always answers too late for the validity that a
// hold is to have is ErrUnavailable, and what it granted is given back.
func TestTooSlow(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	s, other := open(t, link.URL(server.URL()), holdfast.TTL(4*time.Second)), open(t, server.URL())
	eventually(t, "the server does not answer in time", func() bool { // on a busy machine it may need another try
		h, err := s.Mutex(name + "/warm").Acquire(t.Context())
		return err == nil && h.Release() == nil
	})
	link.Delay(700*time.Millisecond, services.ToClient)
	if _, err := s.Mutex(name).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Fatalf("a slow grant: got %v; want ErrUnavailable", err)
	}
	link.Heal()
	eventually(t, "what was not granted stays taken", func() bool {
		h, err := other.Mutex(name).TryAcquire(t.Context())
		return err == nil && h.Release() == nil
	})
}

// TestSlowerThanTheTTL: a client of a server that takes longer than the TTL has lost
// nothing: it is ErrUnavailable, not done, and worth another try.
func TestSlowerThanTheTTL(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	s := open(t, link.URL(server.URL()), holdfast.TTL(time.Second))
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrLost) || !holdfast.NotDone(err) || holdfast.RetryAfter(err) == 0 {
			t.Errorf("%s: %v; want ErrUnavailable, not done, with a time to come again", what, err)
		}
	}
	link.Delay(1050*time.Millisecond, services.ToClient)
	check("the first hold, with the session that is opened for it", second(s.Mutex(name).Acquire(t.Context())))
	check("a session", second(s.Session(t.Context())))
	link.Heal()
	eventually(t, "what was not granted stays taken", func() bool {
		h, err := s.Mutex(name).TryAcquire(t.Context())
		return err == nil && h.Release() == nil
	})
}
