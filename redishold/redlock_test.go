package redishold_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

var trials = flag.Int("redishold.trials", 5, "how often the proof tests do what they do")

// fleet are servers, each behind a link.
type fleet struct {
	servers []*services.RedisServer
	links   []*services.Link
}

func newFleet(t testing.TB, n int) *fleet {
	f := &fleet{servers: services.RedisN(t, n)}
	for _, s := range f.servers {
		f.links = append(f.links, services.Proxy(t, s.Addr()))
	}
	return f
}

func (f *fleet) open(t testing.TB, opts ...holdfast.Option) *holdfast.Space {
	var urls []string
	for _, l := range f.links {
		urls = append(urls, "redis://"+l.Addr())
	}
	d, err := redishold.OpenRedLock(t.Context(), urls, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestRedLockQuorum asks n servers of which some fail: a majority of n/2+1 is
// enough, and n/2 + n%2 failures are too many.
func TestRedLockQuorum(t *testing.T) {
	t.Parallel()
	faults := map[string]func(f *fleet, i int){
		"killed": func(f *fleet, i int) { f.servers[i].Kill() },
		"hung":   func(f *fleet, i int) { f.servers[i].Stop() },
		"cut":    func(f *fleet, i int) { f.links[i].Cut() },
		"slow":   func(f *fleet, i int) { f.links[i].Delay(time.Minute) },
	}
	hopeless := map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
	for kind, fail := range faults {
		for n := 1; n <= 5; n++ {
			t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, n)
				s := f.open(t, holdfast.TTL(10*time.Second)) // a second for an answer
				for failed := 0; failed <= n; failed++ {
					if failed > 0 {
						fail(f, failed-1)
					}
					quorum(t, s, failed, hopeless[n])
				}
			})
		}
	}
}

// quorum wants a hold, or where there is no hope, a refusal before the context
// ends.
func quorum(t *testing.T, s *holdfast.Space, failed, hopeless int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := s.Mutex(fmt.Sprint("m", failed))
	if failed >= hopeless {
		if _, err := m.TryAcquire(ctx); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Fatalf("with %d servers gone: got %v; want ErrUnavailable", failed, err)
		}
		return
	}
	h, err := granted(t, ctx, m)
	if err != nil {
		t.Fatalf("with %d servers gone: %v", failed, err)
	}
	if _, err := inTime(t, ctx, m); !errors.Is(err, holdfast.ErrHeld) {
		t.Fatalf("with %d servers gone a second one got %v", failed, err)
	}
	eventually(t, "the servers that are left do not hear of the release in time", func() bool {
		err = h.Release()
		return !errors.Is(err, holdfast.ErrUnavailable)
	})
	if err != nil {
		t.Fatalf("with %d servers gone Release: %v", failed, err)
	}
}

// inTime tries until the servers that are left answer in time: on a busy machine
// they may take longer than the TTL leaves.
func inTime(t *testing.T, ctx context.Context, m *holdfast.Mutex) (h *holdfast.Hold, err error) {
	t.Helper()
	eventually(t, "the servers that are left do not answer in time", func() bool {
		h, err = m.TryAcquire(ctx)
		return !errors.Is(err, holdfast.ErrUnavailable)
	})
	return h, err
}

// granted is inTime for a mutex that is free. What a try got too late is given back,
// and the next one may meet it until the servers have heard that.
func granted(t *testing.T, ctx context.Context, m *holdfast.Mutex) (h *holdfast.Hold, err error) {
	t.Helper()
	late := false
	eventually(t, "what a try got too late is not given back", func() bool {
		h, err = m.TryAcquire(ctx)
		late = late || errors.Is(err, holdfast.ErrUnavailable)
		return !late || !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrHeld)
	})
	return h, err
}

// TestRedLockTooSlow: servers that answer after more than the TTL leaves are no
// grant, and what they took is given back.
func TestRedLockTooSlow(t *testing.T) {
	f := newFleet(t, 3)
	s := f.open(t)
	for _, l := range f.links {
		l.Delay(600 * time.Millisecond)
	}
	_, err := s.Mutex("m", holdfast.TTL(2*time.Second)).TryAcquire(t.Context())
	if !errors.Is(err, holdfast.ErrUnavailable) {
		t.Fatalf("a slow grant: got %v; want ErrUnavailable", err)
	}
	for _, l := range f.links {
		l.Heal()
	}
	deadline := time.Now().Add(time.Minute)
	for {
		h, err := s.Mutex("m").TryAcquire(t.Context())
		if err == nil {
			_ = h.Release()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("what was not granted is still taken: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestRedLockTokens grants with a random minority down each time: every token is
// greater than all before. Most of its time is waiting for links that were cut to
// come back, so that the proof has several fleets beside each other.
func TestRedLockTokens(t *testing.T) {
	t.Parallel()
	fleets, grants := 1, 120
	if *trials > 5 {
		fleets, grants = 10, 1000
	}
	ok := t.Run("fleets", func(t *testing.T) {
		for range fleets {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				tokens(t, grants)
			})
		}
	})
	if ok {
		t.Logf("proof: redlock: %d grants with random minorities of 5 servers cut, 0 tokens repeated", fleets*grants)
	}
}

// tokens has a fleet grant so often, with another minority cut for every twenty.
func tokens(t *testing.T, grants int) {
	f := newFleet(t, 5)
	s := f.open(t)
	var last holdfast.Token
	down := map[int]bool{}
	for i := range grants {
		if i%20 == 0 {
			for n := range down {
				f.links[n].Heal()
			}
			clear(down)
			for len(down) < 2 {
				down[rand.IntN(5)] = true
			}
			for n := range down {
				f.links[n].Cut()
			}
		}
		h := patient(t, s)
		if h.Token() <= last {
			t.Fatalf("grant %d has the token %d after %d", i, h.Token(), last)
		}
		last = h.Token()
		if err := h.Release(); err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Fatalf("release %d: %v", i, err)
		}
	}
}

// TestRedLockTokenOfAClockAhead: a token that one server was far ahead with is known
// to a majority when it is granted, so that the next is greater without that server.
func TestRedLockTokenOfAClockAhead(t *testing.T) {
	f := newFleet(t, 3)
	s := f.open(t, holdfast.TTL(10*time.Second)) // a second for an answer
	do(t, admin(t, f.servers[0].URL()), "SET", "{holdfast:m}:token", fmt.Sprint((time.Now().Unix()+3600)<<20))
	f.links[2].Cut() // the first one has to be of the majority
	first := patient(t, s)
	eventually(t, "the servers do not hear of the release in time", func() bool {
		err := first.Release()
		if err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	f.links[2].Heal()
	f.servers[0].Kill()
	if next := patient(t, s); next.Token() <= first.Token() {
		t.Fatalf("the token %d came after %d", next.Token(), first.Token())
	}
}

// patient acquires although servers that were cut off need a moment to come
// back.
func patient(t *testing.T, s *holdfast.Space) *holdfast.Hold {
	t.Helper()
	var h *holdfast.Hold
	eventually(t, "no majority comes back", func() bool {
		var err error
		h, err = s.Mutex("m").Acquire(t.Context())
		if err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	return h
}

// TestRedLockExcludes has two clients count up a number that nothing else
// protects.
func TestRedLockExcludes(t *testing.T) {
	f := newFleet(t, 3)
	clients := []*holdfast.Space{f.open(t), f.open(t)}
	var mu sync.Mutex
	inside, most := 0, 0
	var all sync.WaitGroup
	for _, s := range clients {
		all.Go(func() {
			for range 20 {
				err := s.Mutex("m").Do(t.Context(), func(context.Context, *holdfast.Hold) error {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d were inside at once", most)
	}
}

// TestRedLockKeepsItsHold: a hold outlives its TTL while a majority lives, and
// its loss is known when none does.
func TestRedLockKeepsItsHold(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	s := f.open(t)
	hold := soLong(t, func() (*holdfast.Hold, error) {
		return s.Mutex("m", holdfast.TTL(9*time.Second)).Acquire(t.Context()) // a busy machine renews it in that time
	})
	f.servers[0].Kill()
	first, _ := hold.Deadline()
	eventually(t, "the hold is not renewed", func() bool {
		if err := hold.Err(); err != nil {
			t.Fatalf("with a majority alive: %v", err)
		}
		renewed, _ := hold.Deadline()
		return renewed.After(first.Add(time.Second))
	})
	f.servers[1].Kill()
	eventually(t, "the loss of a majority was not noticed", func() bool { return hold.Err() != nil })
	if err := hold.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Fatalf("Err is %v", err)
	}
}

// TestRedLockDarkFromTheStart: a server that answers nothing when the program
// begins ends no hold of the others, however many ask, and does not delay Close.
func TestRedLockDarkFromTheStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.links[2].Cut()
	s := f.open(t, holdfast.TTL(10*time.Second))
	hold, err := granted(t, t.Context(), s.Mutex("m"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() {
		err := second(s.Mutex("m").Acquire(ctx))
		for errors.Is(err, holdfast.ErrUnavailable) { // on a busy machine
			err = second(s.Mutex("m").Acquire(ctx))
		}
		waited <- err
	}()
	first, _ := hold.Deadline()
	eventually(t, "the hold is not renewed", func() bool {
		if err := hold.Err(); err != nil {
			t.Fatalf("with a majority that answers: %v", err)
		}
		return time.Now().After(first)
	})
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiter got %v", err)
	}
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Close took %s", took)
	}
}

// TestRedLockRefuses what it cannot keep.
func TestRedLockRefuses(t *testing.T) {
	if _, err := redishold.NewRedLock(nil, nil); err == nil || !strings.Contains(err.Error(), "no server") {
		t.Errorf("no servers: %v", err)
	}
	f := newFleet(t, 1)
	s := f.open(t)
	for what, err := range map[string]error{
		"counter":   second(s.Counter("c").Add(t.Context(), 1)),
		"rwmutex":   second(s.RWMutex("r").Reader().Acquire(t.Context())),
		"semaphore": second(s.Semaphore("s", 1).Acquire(t.Context(), 1)),
		"kv":        second(s.KV().Put(t.Context(), "k", nil)),
	} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestRedLockSplit: attempts that came to nothing, and a release that has not
// reached every server, are no holder: a try waits for them to go, and does not say
// that the mutex is held. One that a majority names is. Nothing stays for ever.
func TestRedLockSplit(t *testing.T) {
	f := newFleet(t, 3)
	s := f.open(t)
	takes := func(server int, id string, millis int) {
		rc := admin(t, f.servers[server].URL())
		do(t, rc, "HSET", "{holdfast:m}:lock", "id", id, "owner", id, "meta", "", "at", "0")
		do(t, rc, "PEXPIRE", "{holdfast:m}:lock", fmt.Sprint(millis))
	}
	for i := range 5 {
		if i == 4 { // longer than the others are waited for
			f.links[2].Delay(100*time.Millisecond, services.ToServer)
		}
		takes(0, "an attempt", 200)
		takes(1, "the last holder", 200)
		h, err := s.Mutex("m").TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("two servers name two who do not hold it: %v", err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	}
	for _, server := range f.servers {
		for _, key := range matching(t, admin(t, server.URL()), "*") {
			if ttl := do(t, admin(t, server.URL()), "PTTL", key); ttl == "-1" {
				t.Errorf("the key %s stays for ever", key)
			}
		}
	}
	takes(0, "a holder", 60_000)
	takes(1, "a holder", 60_000)
	if _, err := s.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Fatalf("a majority names one: %v", err)
	}
}

// TestRedLockCloseBesideCalls: Close waits for what the calls beside it give back, and
// is not disturbed by it.
func TestRedLockCloseBesideCalls(t *testing.T) {
	f := newFleet(t, 3)
	for range 40 {
		s := f.open(t)
		var all sync.WaitGroup
		begun := make(chan struct{}, 8)
		for range 8 {
			all.Go(func() {
				for {
					h, err := s.Mutex("m").Acquire(t.Context())
					if errors.Is(err, holdfast.ErrClosed) {
						return
					}
					if err == nil {
						_ = h.Release()
					}
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		<-begun
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}
