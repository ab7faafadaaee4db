package redishold_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestRestartWithoutData: a holder is told when the server has forgotten it, and
// tokens grow on.
func TestRestartWithoutData(t *testing.T) {
	server := services.Redis(t)
	s := open(t, server.URL())
	hold := soLong(t, func() (*holdfast.Hold, error) { return s.Mutex("m", holdfast.TTL(3*time.Second)).Acquire(t.Context()) })
	server.Kill()
	server.Restart()
	select {
	case <-hold.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the holder was not told")
	}
	if err := hold.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Fatalf("Err is %v", err)
	}
	eventually(t, "nothing can be acquired after the restart", func() bool {
		next, err := s.Mutex("m").TryAcquire(t.Context())
		if err != nil {
			return false
		}
		if next.Token() <= hold.Token() {
			t.Fatalf("the token %d came after %d", next.Token(), hold.Token())
		}
		return next.Release() == nil
	})
}

// TestUnsignedCounterAfterAWipe: one that the server has forgotten begins at zero.
func TestUnsignedCounterAfterAWipe(t *testing.T) {
	server := services.Redis(t)
	c := open(t, server.URL()).Counter("hits").Unsigned()
	for range 3 {
		if _, err := c.Add(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	server.Restart()
	eventually(t, "nothing can be added after the restart", func() bool {
		n, err := c.Add(t.Context(), 5)
		if err == nil && n > 20 {
			t.Fatalf("the sum is %d", n)
		}
		return err == nil
	})
}

// TestWipedWithinASecond: tokens grow on although the server was used for the
// first time a moment before it was wiped.
func TestWipedWithinASecond(t *testing.T) {
	servers := services.RedisN(t, 3)
	for name, address := range map[string]string{
		"redis":   servers[0].URL(),
		"redlock": redlockURL(servers[0].Addr(), servers[1].Addr(), servers[2].Addr()),
	} {
		t.Run(name, func(t *testing.T) {
			var last holdfast.Token
			for range 20 {
				s, err := holdfast.Open(t.Context(), address)
				if err != nil {
					t.Fatal(err)
				}
				h, err := s.Mutex("m").Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if h.Token() <= last {
					t.Fatalf("the token %d came after %d", h.Token(), last)
				}
				last = h.Token()
				if err := errors.Join(h.Release(), s.Close()); err != nil {
					t.Fatal(err)
				}
				for _, server := range servers {
					do(t, admin(t, server.URL()), "FLUSHALL")
				}
			}
		})
	}
}

// TestRestartWithData: a restart in the middle loses nothing that the server
// has kept.
func TestRestartWithData(t *testing.T) {
	server := services.Redis(t, services.Durable())
	s := open(t, server.URL())
	hold, err := s.Mutex("m").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiter := open(t, server.URL())
	waits, granted := make(chan struct{}), make(chan error, 1)
	go func() {
		next, err := waiter.Mutex("m", holdfast.OnWait(func(int) { close(waits) })).Acquire(t.Context())
		if err == nil {
			err = next.Release()
		}
		granted <- err
	}()
	<-waits
	server.Kill()
	server.Restart()
	eventually(t, "the hold cannot be released", func() bool { return s.Ping(t.Context()) == nil })
	if err := hold.Err(); err != nil {
		t.Fatalf("the hold after a restart: %v", err)
	}
	if err := hold.Release(); err != nil {
		t.Fatalf("Release after a restart: %v", err)
	}
	if err := <-granted; err != nil {
		t.Fatalf("the waiter after a restart: %v", err)
	}
}

// TestScriptsAreForgotten: a server that lost its scripts gets them again.
func TestScriptsAreForgotten(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL()), admin(t, server.URL())
	for range 3 {
		do(t, rc, "SCRIPT", "FLUSH")
		hold, err := s.Mutex("m").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		do(t, rc, "SCRIPT", "FLUSH")
		if err := hold.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
