package redishold_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

// busy has somebody's script keep the server while f runs: it answers BUSY to
// almost everything then.
func busy(t *testing.T, server *services.RedisServer, f func()) {
	t.Helper()
	script, killer := admin(t, server.URL()), admin(t, server.URL())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		script.Do(context.Background(), script.B().Eval().Script("while true do end").Numkeys(0).Build())
	}()
	eventually(t, "the script does not keep the server", func() bool {
		err := killer.Do(t.Context(), killer.B().Ping().Build()).Error()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	f()
	do(t, killer, "SCRIPT", "KILL")
	<-ended
}

// rejected is how often a command was refused before it ran.
func rejected(t *testing.T, rc rueidis.Client, command string) bool {
	_, stats, _ := strings.Cut(do(t, rc, "INFO", "commandstats"), "cmdstat_"+command+":")
	stats, _, _ = strings.Cut(stats, "\n")
	_, n, found := strings.Cut(stats, "rejected_calls=")
	return found && !strings.HasPrefix(n, "0")
}

// TestBusyServer: a program outlives a script of somebody else that keeps the
// server for long, whatever breaks or is closed meanwhile: rueidis panics if such
// a server is asked to end a subscription.
func TestBusyServer(t *testing.T) {
	for name, connect := range map[string]func(t *testing.T, url string) *holdfast.Space{
		"URL":             func(t *testing.T, url string) *holdfast.Space { return open(t, url) },
		"caller's client": func(t *testing.T, url string) *holdfast.Space { return onClient(t, admin(t, url)) },
	} {
		t.Run(name, func(t *testing.T) {
			server := services.Redis(t, services.Setting("lua-time-limit", "20"))
			link, rc := services.Proxy(t, server.Addr()), admin(t, server.URL())
			s, closing := connect(t, link.URL(server.URL())), connect(t, link.URL(server.URL()))
			hold := watchAndHold(t, s, "m")
			watchAndHold(t, closing, "other")
			eventually(t, "nobody subscribed while the server was busy", func() bool {
				busy(t, server, func() {
					link.Break()
					time.Sleep(100 * time.Millisecond) // for some attempts to subscribe
				})
				return rejected(t, rc, "subscribe")
			})
			busy(t, server, func() { _ = closing.Close() })
			eventually(t, "the hold cannot be released", func() bool { return s.Ping(t.Context()) == nil })
			if err := hold.Release(); err != nil {
				t.Errorf("Release after the server was busy: %v", err)
			}
			watchAndHold(t, s, "m")
		})
	}
}

// onClient opens a Space on a client that outlives it.
func onClient(t *testing.T, rc rueidis.Client) *holdfast.Space {
	t.Helper()
	d, err := redishold.New(rc, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// watchAndHold has the Space subscribe to both of its channels.
func watchAndHold(t *testing.T, s *holdfast.Space, name string) *holdfast.Hold {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := false
	for ev := range s.Watch(ctx, "", 0) {
		if ready = ev.Verb == driver.VerbReady; ready {
			break
		}
	}
	if !ready {
		t.Fatal("the watch ended before it began")
	}
	hold, err := s.Mutex(name).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// TestSubscriptionsEnd: a Space on the caller's client leaves it no subscription
// and no connection.
func TestSubscriptionsEnd(t *testing.T) {
	server := services.Redis(t)
	rc := admin(t, server.URL())
	for range 3 {
		s := onClient(t, rc)
		watchAndHold(t, s, "m")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a subscription is left", func() bool {
		left, err := rc.Do(t.Context(), rc.B().PubsubChannels().Build()).AsStrSlice()
		return err == nil && len(left) == 0
	})
	eventually(t, "a connection that subscribed is left", func() bool { return !strings.Contains(do(t, rc, "CLIENT", "LIST"), "cmd=subscribe") })
}
