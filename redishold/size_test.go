package redishold_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

// longest is how many commands a script may run: some milliseconds' worth. Before
// there were pages, each of these tests had one with hundreds of thousands. How long
// they take would tell more of the machine than of the script.
const longest = 4000

// slow looks at what a server does, again and again; the result is about how many
// commands the longest script has run since then.
func slow(t testing.TB, server *services.RedisServer) func() int {
	t.Helper()
	rc, most := admin(t, server.URL()), 0
	scripts, commands := ran(t, rc)
	end := meanwhile(t, func(context.Context) {
		s, c := ran(t, rc)
		most = max(most, (c-commands)/max(s-scripts, 1))
		scripts, commands = s, c
	})
	return func() int {
		end()
		return most
	}
}

var (
	ranScripts  = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)
	ranCommands = regexp.MustCompile(`cmdstat_[^:]*:calls=(\d+)`)
)

// ran is how many scripts a server has run, and how many commands, those of scripts
// too.
func ran(t testing.TB, rc rueidis.Client) (scripts, commands int) {
	stats, err := rc.Do(context.Background(), rc.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Error(err)
	}
	sum := func(r *regexp.Regexp) (n int) {
		for _, m := range r.FindAllStringSubmatch(stats, -1) {
			calls, _ := strconv.Atoi(m[1])
			n += calls
		}
		return n
	}
	return sum(ranScripts), sum(ranCommands)
}

// crowd does something n times, many at once, and again where the server is too slow for
// it: that is what the error asks for.
func crowd(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !t.Failed(); i = int(next.Add(1)) - 1 {
				err := f(i)
				for errors.Is(err, holdfast.ErrUnavailable) && t.Context().Err() == nil {
					err = f(i)
				}
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

var ladenWith = flag.Int("redishold.laden", 10_000, "how much the session has that expires in TestLadenSessionEnds")

// long is a TTL that no slow machine uses up.
const long = time.Minute

// expire moves a session's deadline into the past.
func expire(t *testing.T, rc rueidis.Client, session *holdfast.Session) {
	t.Helper()
	do(t, rc, "ZADD", "{holdfast}:due", "XX", "1", "s"+session.ID().String())
}

// laden is a session of its own with many holds and keys.
func laden(t *testing.T, s *holdfast.Space, many int) *holdfast.Session {
	t.Helper()
	session, err := s.Session(t.Context(), holdfast.TTL(long), holdfast.ManualRenew())
	if err != nil {
		t.Fatal(err)
	}
	crowd(t, many, func(i int) error {
		if i%10 == 0 {
			_, err := s.KV().Put(t.Context(), fmt.Sprint("k", i), nil, holdfast.Under(session))
			return err
		}
		if i%10 == 1 {
			_, err := s.RWMutex(fmt.Sprint("r", i%1000), holdfast.Under(session)).Reader().Acquire(t.Context())
			return err
		}
		_, err := s.Mutex(fmt.Sprint("m", i), holdfast.Under(session)).Acquire(t.Context())
		return err
	})
	return session
}

// TestLadenSessionEnds: the end of a session with many holds and keys keeps nobody
// waiting: what it had is free at once, others' holds stay, and nothing is left of it
// a moment later.
func TestLadenSessionEnds(t *testing.T) {
	for how, c := range map[string]struct {
		many int
		end  func(s *holdfast.Space, session *holdfast.Session, rc rueidis.Client)
	}{
		"expires": {*ladenWith, func(_ *holdfast.Space, session *holdfast.Session, rc rueidis.Client) { expire(t, rc, session) }},
		"is revoked": {5000, func(_ *holdfast.Space, session *holdfast.Session, _ rueidis.Client) {
			if err := session.Revoke(); err != nil {
				t.Errorf("Revoke: %v", err)
			}
		}},
		"is closed": {5000, func(s *holdfast.Space, _ *holdfast.Session, _ rueidis.Client) { _ = s.Close() }},
	} {
		t.Run(how, func(t *testing.T) {
			server := services.Redis(t)
			s, other, rc := open(t, server.URL()), open(t, server.URL()), admin(t, server.URL())
			session := laden(t, s, c.many)
			stays := soLong(t, func() (*holdfast.Hold, error) {
				return other.Mutex("stays", holdfast.TTL(10*time.Second)).Acquire(t.Context())
			})
			worst := slow(t, server)
			watched(t, server, other, func() {
				c.end(s, session, rc)
				eventually(t, "the session does not end", func() bool { return do(t, rc, "EXISTS", "{holdfast}:s:"+session.ID().String()) == "0" })
				freeAtOnce(t, other, c.many)
				eventually(t, "something of the session is left", func() bool { return len(laid(t, rc)) == 0 })
			})
			n := worst()
			t.Logf("the longest script ran about %d commands", n)
			if n > longest {
				t.Errorf("one script ran %d commands", n)
			}
			if err := stays.Err(); err != nil {
				t.Errorf("another's hold was lost: %v", err)
			}
			if err := stays.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// freeAtOnce: names and keys of a session that has ended are nobody's, although it
// may not have been cleared away.
func freeAtOnce(t *testing.T, s *holdfast.Space, many int) {
	t.Helper()
	for i := 0; i < many; i += many / 50 {
		h, err := s.Mutex(fmt.Sprint("m", i+2)).TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("a mutex of a session that has ended: %v", err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		if h, err = s.RWMutex(fmt.Sprint("r", (i+1)%1000)).Writer().TryAcquire(t.Context()); err != nil {
			t.Fatalf("a reader-writer lock of a session that has ended: %v", err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.KV().Get(t.Context(), fmt.Sprint("k", i)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("a key of a session that has ended: %v", err)
		}
		if _, err := s.KV().Create(t.Context(), fmt.Sprint("k", i), nil); err != nil {
			t.Fatalf("a key of a session that has ended: %v", err)
		}
		if _, err := s.KV().Delete(t.Context(), fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// laid is what is there of sessions that have ended.
func laid(t *testing.T, rc rueidis.Client) []string {
	t.Helper()
	return append(matching(t, rc, "{holdfast}:e:*"), append(members(t, rc, "{holdfast}:ended"), matching(t, rc, "{holdfast}:todo")...)...)
}

// TestManyWait: thousands of waiters are granted in pages when they may be, in order,
// each of them once.
func TestManyWait(t *testing.T) {
	const waiters = 3000
	for what, start := range map[string]func(s, other *holdfast.Space) (wait func() error, free func() error){
		"readers": func(s, other *holdfast.Space) (func() error, func() error) {
			h, err := other.RWMutex("r").Writer().Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return func() error {
				h, err := s.RWMutex("r").Reader().Acquire(t.Context())
				if err != nil {
					return err
				}
				return h.Release()
			}, h.Release
		},
		"semaphore": func(s, other *holdfast.Space) (func() error, func() error) {
			h, err := other.Semaphore("s", waiters).Acquire(t.Context(), waiters)
			if err != nil {
				t.Fatal(err)
			}
			var keep sync.Map // nobody gives back what is reachable
			t.Cleanup(keep.Clear)
			return func() error {
				h, err := s.Semaphore("s", 0).Acquire(t.Context(), 1)
				keep.Store(h, true)
				return err
			}, func() error { return h.Release() }
		},
		"latch": func(s, other *holdfast.Space) (func() error, func() error) {
			if _, err := other.Latch("l", 2).CountDown(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			return func() error { return s.Latch("l", 0).Wait(t.Context()) }, func() error { return second(other.Latch("l", 0).CountDown(t.Context(), 1)) }
		},
		"barrier": func(s, other *holdfast.Space) (func() error, func() error) {
			return func() error { return s.Barrier("b", waiters+1).Wait(t.Context()) }, func() error { return other.Barrier("b", waiters+1).Wait(t.Context()) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			server := services.Redis(t)
			s, other, rc := open(t, server.URL()), open(t, server.URL()), admin(t, server.URL())
			wait, free := start(s, other)
			name := what[:1]
			errs := make(chan error, waiters)
			for range waiters {
				go func() { errs <- wait() }()
			}
			eventually(t, "not all wait", func() bool { return do(t, rc, "ZCARD", "{holdfast}:q:"+name) == fmt.Sprint(waiters) })
			worst := slow(t, server)
			if err := free(); err != nil {
				t.Fatal(err)
			}
			late := time.After(30 * time.Second)
			for i := range waiters {
				select {
				case err := <-errs:
					if err != nil {
						t.Fatal(err)
					}
				case <-late:
					t.Fatalf("%d of %d are granted", i, waiters)
				}
			}
			n := worst()
			t.Logf("the longest script ran about %d commands", n)
			if n > longest {
				t.Errorf("one script ran %d commands", n)
			}
		})
	}
}

// TestManyDie: thousands of holders of parts of a semaphore, and waiters for it, end with their
// session. A waiter behind them is granted what they had.
func TestManyDie(t *testing.T) {
	const holders, waiters = 3000, 3000
	server := services.Redis(t)
	s, other, rc := open(t, server.URL()), open(t, server.URL()), admin(t, server.URL())
	session, err := s.Session(t.Context(), holdfast.TTL(long), holdfast.ManualRenew())
	if err != nil {
		t.Fatal(err)
	}
	sem := s.Semaphore("s", holders, holdfast.Under(session))
	crowd(t, holders, func(int) error { return second(sem.Acquire(t.Context(), 1)) })
	for range waiters {
		go func() { _, _ = sem.Acquire(t.Context(), holders) }()
	}
	waiting := func(n int) {
		eventually(t, "not all wait", func() bool { return do(t, rc, "ZCARD", "{holdfast}:q:s") == fmt.Sprint(n) })
	}
	waiting(waiters)
	all := make(chan error, 1)
	go func() { all <- second(other.Semaphore("s", 0).Acquire(t.Context(), holders)) }()
	waiting(waiters + 1)
	worst := slow(t, server)
	watched(t, server, other, func() {
		expire(t, rc, session)
		if err := <-all; err != nil {
			t.Error(err)
		}
	})
	n := worst()
	t.Logf("the longest script ran about %d commands", n)
	if n > longest {
		t.Errorf("one script ran %d commands", n)
	}
}

// TestBarrierServesAgain: those who come while a barrier still lets its last parties
// go are of the next round.
func TestBarrierServesAgain(t *testing.T) {
	const parties, rounds = 700, 3
	s := open(t, services.Redis(t).URL())
	errs := make(chan error, parties)
	for range parties {
		go func() {
			var err error
			for range rounds {
				err = errors.Join(err, s.Barrier("b", parties).Wait(t.Context()))
			}
			errs <- err
		}()
	}
	for range parties {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// TestHandOverToTheLast: a leader finds its successor among thousands of candidates.
func TestHandOverToTheLast(t *testing.T) {
	const candidates = 3000
	server := services.Redis(t)
	s, rc := open(t, server.URL()), admin(t, server.URL())
	l, err := s.Election("e").Campaign(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := func(n int) {
		eventually(t, "not all wait", func() bool { return do(t, rc, "ZCARD", "{holdfast}:q:e") == fmt.Sprint(n) })
	}
	for range candidates {
		go func() { _, _ = s.Election("e").Campaign(ctx, nil) }()
	}
	wait(candidates)
	elected := make(chan error, 1)
	go func() {
		_, err := s.Election("e", holdfast.Owner("successor")).Campaign(t.Context(), nil)
		elected <- err
	}()
	wait(candidates + 1)
	worst := slow(t, server)
	if err := l.HandOver(t.Context(), "nobody"); err == nil || l.Err() != nil {
		t.Fatalf("nobody of that name waits: %v, %v", err, l.Err())
	}
	if err := l.HandOver(t.Context(), "successor"); err != nil {
		t.Fatal(err)
	}
	if err := <-elected; err != nil {
		t.Error(err)
	}
	n := worst()
	t.Logf("the longest script ran about %d commands", n)
	if n > longest {
		t.Errorf("one script ran %d commands", n)
	}
}

// deafTo is a client that no message reaches.
type deafTo struct{ plain }

func (deafTo) Subscribe(ctx context.Context, _ string, ready func(), _ func(string)) error {
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// TestManyAreForced: losses that no message told are told by renewals, however many
// there are, before the session lasts longer.
func TestManyAreForced(t *testing.T) {
	const forced = 700
	server := services.Redis(t)
	hears := make(chan struct{})
	close(hears)
	d, err := redishold.NewWith(deafTo{plain{admin(t, server.URL()), hears}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d, holdfast.TTL(9*time.Second)) // a busy machine renews it in that time
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	other := open(t, server.URL())
	stays := soLong(t, func() (*holdfast.Hold, error) { return s.Mutex("stays").Acquire(t.Context()) })
	holds := make([]*holdfast.Hold, forced)
	crowd(t, forced, func(i int) (err error) {
		holds[i], err = s.Mutex(fmt.Sprint("m", i)).Acquire(t.Context())
		return err
	})
	known := make([]time.Time, forced)
	crowd(t, forced, func(i int) error {
		until, err := other.ForceRelease(t.Context(), fmt.Sprint("m", i), holds[i].Token())
		known[i] = time.Now().Add(until)
		return err
	})
	for i, h := range holds {
		time.Sleep(time.Until(known[i]))
		if h.Err() == nil {
			t.Fatalf("hold %d was forced, and does not know although it is free now", i)
		}
	}
	before, _ := stays.Deadline()
	eventually(t, "the session is not renewed", func() bool {
		after, _ := stays.Deadline()
		return after.After(before) || stays.Err() != nil
	})
	if err := stays.Err(); err != nil {
		t.Errorf("the hold that nobody forced: %v", err)
	}
}

// TestForcedBeforeAnAcquire: a session is not extended by an Acquire either before the
// losses that no message told are.
func TestForcedBeforeAnAcquire(t *testing.T) {
	server := services.Redis(t)
	hears := make(chan struct{})
	close(hears)
	d, err := redishold.NewWith(deafTo{plain{admin(t, server.URL()), hears}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	session, err := s.Session(t.Context(), holdfast.TTL(20*time.Second), holdfast.ManualRenew())
	if err != nil {
		t.Fatal(err)
	}
	forced, err := s.Mutex("forced", holdfast.Under(session)).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, server.URL()).ForceRelease(t.Context(), "forced", forced.Token()); err != nil {
		t.Fatal(err)
	}
	before, _ := forced.Deadline()
	eventually(t, "the loss is never told", func() bool { // once the session has to be extended
		h, err := s.RWMutex("other", holdfast.Under(session)).Writer().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		after, _ := h.Deadline()
		if forced.Err() == nil && after.After(before) {
			t.Fatalf("the session was extended by %s, and the hold that was forced does not know", after.Sub(before))
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		return forced.Err() != nil
	})
	if err := session.Err(); err != nil {
		t.Errorf("the session: %v", err)
	}
}

// TestSweepLimits: idle semaphores and barriers, however many, leave nothing after a
// sweep with limits, and those in use stay.
func TestSweepLimits(t *testing.T) {
	const names = 1500
	server := services.Redis(t)
	s, d, rc := open(t, server.URL()), raw(t, server.URL()), admin(t, server.URL())
	used, err := s.Semaphore("used", 2).Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	crowd(t, names, func(i int) error {
		h, err := s.Semaphore(fmt.Sprint("s", i), 2).Acquire(t.Context(), 1)
		if err != nil {
			return err
		}
		return h.Release()
	})
	worst := slow(t, server)
	for i, removed := range []int64{0, names, 0} {
		r, err := d.Sweep(t.Context(), &driver.SweepRequest{Limits: i > 0})
		if err != nil || r.Removed != removed {
			t.Errorf("sweep %d removed %d, %v; want %d", i+1, r.Removed, err, removed)
		}
	}
	n := worst()
	t.Logf("the longest script ran about %d commands", n)
	if n > longest {
		t.Errorf("one script ran %d commands", n)
	}
	if left := matching(t, rc, "{holdfast}:r:*"); len(left) != 1 {
		t.Errorf("%d names are left", len(left))
	}
	if err := used.Release(); err != nil {
		t.Error(err)
	}
	if r, err := d.Sweep(t.Context(), &driver.SweepRequest{Limits: true}); err != nil || r.Removed != 1 {
		t.Errorf("the last one: %d, %v", r.Removed, err)
	}
}
