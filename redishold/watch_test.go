package redishold_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// upTo reads up to an event, by its kind, verb and name.
func upTo(t *testing.T, all <-chan holdfast.Event, want string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-all:
			if !ok {
				t.Fatalf("the watch ended before %s", want)
			}
			if text := e.Kind + ":" + e.Verb + e.Name; text == want {
				return
			}
		case <-late:
			t.Fatalf("no %s", want)
		}
	}
}

// TestWatchOfAnOlderServer: a server that lost its newest data, and so revisions, has
// everything told that happens after the resync.
func TestWatchOfAnOlderServer(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL()), admin(t, server.URL())
	all := events(t, s, "")
	do(t, rc, "DECRBY", "{holdfast}:rev", "500")
	do(t, rc, "CLIENT", "KILL", "TYPE", "pubsub")
	upTo(t, all, "watch:"+driver.VerbResync)
	for i := range 3 {
		key := fmt.Sprint("k", i)
		if _, err := s.KV().Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
		upTo(t, all, "kv:put"+key)
	}
}

// TestForgottenWatches: when the server had forgotten that somebody watches, all that did
// are told, not only the first that comes back.
func TestForgottenWatches(t *testing.T) {
	for name, begins := range map[string]bool{"another begins": true, "another looks": false} {
		t.Run(name, func(t *testing.T) {
			server := services.Redis(t)
			absent := open(t, server.URL()+"?holdfast_busy_wait_min=1h&holdfast_busy_wait_max=1h") // it does not look
			other, rc := open(t, server.URL()), admin(t, server.URL())
			if !begins {
				events(t, other, "")
			}
			all := events(t, absent, "")
			do(t, rc, "DEL", "{holdfast}:watch")
			if begins {
				events(t, other, "")
			}
			upTo(t, all, "watch:"+driver.VerbResync)
		})
	}
}

// TestOneResyncAfterAFlush: when everything was removed, a watcher is told once to read anew.
func TestOneResyncAfterAFlush(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL()+"?holdfast_busy_wait_min=1h&holdfast_busy_wait_max=1h"), admin(t, server.URL()) // it does not look
	all := events(t, s, "")
	do(t, rc, "FLUSHALL")
	if _, err := s.KV().Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	upTo(t, all, "watch:"+driver.VerbResync)
	if _, err := s.KV().Put(t.Context(), "l", nil); err != nil {
		t.Fatal(err)
	}
	if e := next(t, all); e.Kind+":"+e.Verb+e.Name != "kv:putl" {
		t.Errorf("after the resync comes %+v", e)
	}
}

// TestWatchOutlivesARefusedResync: a server that accepts subscriptions before it serves,
// as one that loads its data, is asked again, until the watch can go on.
func TestWatchOutlivesARefusedResync(t *testing.T) {
	server := services.Redis(t, services.Setting("replica-serve-stale-data", "no"))
	s, rc := open(t, server.URL()+"?holdfast_busy_wait_min=1h&holdfast_busy_wait_max=1h"), admin(t, server.URL()) // it does not look
	all := events(t, s, "")
	do(t, rc, "REPLICAOF", "127.0.0.1", "1") // MASTERDOWN from now on
	do(t, rc, "CONFIG", "RESETSTAT")
	do(t, rc, "PUBLISH", "{holdfast}:ev", "nothing that it knows: a gap")
	eventually(t, "no resync was refused", func() bool { return strings.Contains(do(t, rc, "INFO", "errorstats"), "MASTERDOWN") })
	do(t, rc, "REPLICAOF", "NO", "ONE")
	upTo(t, all, "watch:"+driver.VerbResync)
	if _, err := s.KV().Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	upTo(t, all, "kv:putk")
}
