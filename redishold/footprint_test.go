package redishold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

// TestLeavesNothing: a closed Space has no goroutine and no connection left, and
// on the server only the revision and what goes by itself.
func TestLeavesNothing(t *testing.T) {
	server := services.Redis(t)
	rc := admin(t, server.URL())
	before := strings.Count(do(t, rc, "CLIENT", "LIST"), "\n")
	ignore := goleak.IgnoreCurrent()
	s, err := holdfast.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	hold, err := s.Mutex("m").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithCancel(t.Context())
	defer cancel()
	for ev := range s.Watch(waiting, "", 0) {
		if ev.Verb == driver.VerbReady {
			cancel()
		}
	}
	if _, err := s.Counter("c").Add(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Counter("c").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_ = hold.Release()
	eventually(t, "goroutines are left", func() bool { return goleak.Find(ignore) == nil })
	eventually(t, "connections are left", func() bool { return strings.Count(do(t, rc, "CLIENT", "LIST"), "\n") == before })
	if left := keysLeft(t, rc, ""); len(left) > 0 {
		t.Errorf("the keys %q are left", left)
	}
}

// TestCallersClient is used and never closed, with a prefix of its own.
func TestCallersClient(t *testing.T) {
	server := services.Redis(t)
	rc := admin(t, server.URL())
	d, err := redishold.New(rc, &redishold.Options{Prefix: "mine", MaxName: 20})
	if err != nil {
		t.Fatal(err)
	}
	space, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := space.Mutex(strings.Repeat("x", 21)).TryAcquire(t.Context()); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a name above MaxName: %v", err)
	}
	hold, err := space.Mutex("m").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := rc.Do(t.Context(), rc.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys: %v %v", keys, err)
	}
	for _, k := range keys {
		if !strings.HasPrefix(k, "{mine}:") {
			t.Errorf("the key %q is outside the prefix", k)
		}
	}
	if err := hold.Release(); err != nil {
		t.Fatal(err)
	}
	if err := space.Close(); err != nil {
		t.Fatal(err)
	}
	if got := do(t, rc, "PING"); got != "PONG" {
		t.Errorf("the caller's client says %q after Close", got)
	}
}

// TestOneCommandRenewsAll: any number of holds is renewed by one script a tick.
func TestOneCommandRenewsAll(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL(), holdfast.TTL(9*time.Second)), admin(t, server.URL()) // a busy machine renews it in that time
	var holds []*holdfast.Hold
	for i := range 200 {
		holds = append(holds, soLong(t, func() (*holdfast.Hold, error) { return s.Mutex(fmt.Sprint("m", i)).Acquire(t.Context()) }))
	}
	before := calls(t, rc)
	first, _ := holds[0].Deadline()
	eventually(t, "the holds are not renewed", func() bool {
		d, _ := holds[0].Deadline()
		return d.After(first.Add(time.Second))
	})
	if n := calls(t, rc) - before; n > 10 {
		t.Errorf("a renewal of 200 holds took %d scripts", n)
	}
	for _, h := range holds {
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// calls is how many scripts the server has run.
func calls(t *testing.T, rc rueidis.Client) int {
	_, rest, _ := strings.Cut(do(t, rc, "INFO", "commandstats"), "cmdstat_evalsha:calls=")
	number, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
