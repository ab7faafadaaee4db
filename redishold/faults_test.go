package redishold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/redishold"
)

// admin is a plain client of a server.
func admin(t testing.TB, url string) rueidis.Client {
	t.Helper()
	opt := rueidis.MustParseURL(url)
	opt.DisableCache, opt.AlwaysPipelining, opt.ForceSingleClient = true, true, true
	rc, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rc.Close)
	return rc
}

func do(t testing.TB, rc rueidis.Client, words ...string) string {
	t.Helper()
	m, err := rc.Do(context.Background(), rc.B().Arbitrary(words...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatal(err)
	}
	if n, err := m.ToInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	s, err := m.ToString()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func eventually(t testing.TB, missing string, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !look(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(missing)
		}
	}
}

// TestServersThatCannotServe are ErrUnavailable, and certainly not done, with
// advice.
func TestServersThatCannotServe(t *testing.T) {
	primary := services.Redis(t)
	for name, c := range map[string]struct {
		server *services.RedisServer
		advice string
	}{
		"replica":       {services.Redis(t, services.ReplicaOf(primary)), "connect to the primary"},
		"out of memory": {services.Redis(t, services.Setting("maxmemory", "100kb")), "raise maxmemory"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c.server.URL())
			for what, err := range map[string]error{
				"acquire": second(s.Mutex("m").TryAcquire(t.Context())),
				"count":   second(s.Counter("c").Add(t.Context(), 1)),
				"put":     second(s.KV().Put(t.Context(), "k", nil)),
			} {
				if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), c.advice) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// TestNothingListens: what was not sent, since there is no connection, is certainly not done.
func TestNothingListens(t *testing.T) {
	server := services.Redis(t)
	s := open(t, server.URL())
	calls := map[string]func() error{
		"acquire": func() error { return second(s.Mutex("m").TryAcquire(t.Context())) },
		"count":   func() error { return second(s.Counter("c").Add(t.Context(), 1)) },
		"put":     func() error { return second(s.KV().Put(t.Context(), "k", nil)) },
		"limit": func() error {
			return second(s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour}).Allow(t.Context(), "k"))
		},
	}
	if err := calls["count"](); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for what, call := range calls {
		var err error
		eventually(t, what+" never finds that nothing listens", func() bool {
			err = call()
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || strings.Contains(err.Error(), "nobody knows") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWrongPasswordIsNeverShown(t *testing.T) {
	server := services.Redis(t, services.Password("correct-horse"))
	wrong := strings.Replace(server.URL(), "correct-horse", "battery-staple", 1)
	_, err := holdfast.Open(t.Context(), wrong)
	if !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("a wrong password: %v", err)
	}
	if strings.Contains(err.Error(), "staple") || strings.Contains(err.Error(), "horse") {
		t.Errorf("the text shows a password: %v", err)
	}
	open(t, server.URL())
}

func TestUnreachable(t *testing.T) {
	_, err := holdfast.Open(t.Context(), "redis://user:secret@127.0.0.1:1")
	if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
		t.Fatalf("nobody there: %v", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the text shows a password: %v", err)
	}
}

func TestBadURLs(t *testing.T) {
	for _, url := range []string{
		"redis://h?holdfast_prefix={x}", "redis://h?holdfast_max_name=513", "redis://h?holdfast_max_name=x", "redis://h?holdfast_nonsense=1",
		"redis://h?holdfast_busy_wait_min=1s&holdfast_busy_wait_max=1ms", "redis://h?holdfast_extension=9s&holdfast_min_validity=8s",
		"redis://h/notanumber", "redis://h?dial_timeout=soon",
	} {
		if _, err := driver.Open(t.Context(), url); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, why := range map[string]string{
		"redis://h?holdfast_extension=soon": `holdfast_extension="soon": time: invalid duration "soon"`,
		"redis://h?holdfast_max_name=x":     `holdfast_max_name="x": invalid syntax`,
	} {
		if _, err := driver.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v; want %s", url, err, why)
		}
	}
	if _, err := redishold.New(nil, nil); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}

// TestRestartWithoutData: a holder is told when the server has forgotten it, and
// tokens grow on.
func TestRestartWithoutData(t *testing.T) {
	server := services.Redis(t)
	s := open(t, server.URL())
	hold, err := s.Mutex("m", holdfast.TTL(3*time.Second)).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
	goleak.VerifyNone(t, ignore)
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
	s, rc := open(t, server.URL(), holdfast.TTL(3*time.Second)), admin(t, server.URL())
	var holds []*holdfast.Hold
	for i := range 200 {
		h, err := s.Mutex(fmt.Sprint("m", i)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
	}
	before := calls(t, rc)
	first, _ := holds[0].Deadline()
	eventually(t, "the holds are not renewed", func() bool {
		d, _ := holds[0].Deadline()
		return d.After(first.Add(2 * time.Second))
	})
	if n := calls(t, rc) - before; n > 10 {
		t.Errorf("two renewals of 200 holds took %d scripts", n)
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

// TestRepeatedRequestsCountOnce: a request whose answer was lost is repeated,
// and counts once.
func TestRepeatedRequestsCountOnce(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	d := raw(t, link.URL(server.URL()))
	lock, start := mutex(name), driver.ReserveRequest{ID: newID(), Name: name + "s", N: 5, Start: 1}
	add := driver.CountRequest{ID: newID(), Name: name + "c", Op: driver.CountAdd, A: 5}
	down := driver.CountDownRequest{ID: newID(), Name: name + "l", Count: 9, By: 2}
	put := driver.TxnRequest{ID: newID(), Then: []driver.Op{{Kind: driver.OpPut, Key: name, Previous: true}}}
	warm(t, d, name+"/warm")
	for what, ask := range map[string]func(context.Context) (uint64, error){
		"add 5":     func(ctx context.Context) (uint64, error) { r, err := d.Count(ctx, &add); return r.Value, err },
		"reserve 5": func(ctx context.Context) (uint64, error) { r, err := d.Reserve(ctx, &start); return r.First + 4, err },
		"count 7 left": func(ctx context.Context) (uint64, error) {
			r, err := d.CountDown(ctx, &down)
			return uint64(r.Left) - 2, err
		},
		"put": func(ctx context.Context) (uint64, error) {
			r, err := d.Txn(ctx, &put)
			if err != nil {
				return 0, err
			}
			return 5 + uint64(len(r.Results[0].KVs)), nil
		},
	} {
		link.Cut(services.ToClient)
		eventually(t, what+" is never sent", func() bool {
			short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := ask(short)
			if err == nil {
				t.Fatalf("%s was answered by nobody", what)
			}
			return !holdfast.NotDone(err)
		})
		link.Heal()
		if n, err := ask(t.Context()); err != nil || n != 5 {
			t.Errorf("%s, repeated: %d, %v", what, n, err)
		}
	}
	first, err := d.Acquire(t.Context(), lock)
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Acquire(t.Context(), lock)
	if err != nil || again.Token != first.Token {
		t.Errorf("the same request got the token %d after %d: %v", again.Token, first.Token, err)
	}
}

// warm makes each of the calls once, so that the server knows their scripts: the
// first one of a kind may have to be sent twice.
func warm(t *testing.T, d driver.Driver, name string) {
	t.Helper()
	_, add := d.Count(t.Context(), &driver.CountRequest{ID: newID(), Name: name + "c", Op: driver.CountAdd, A: 1})
	_, reserve := d.Reserve(t.Context(), &driver.ReserveRequest{ID: newID(), Name: name + "s", N: 1, Start: 1})
	_, down := d.CountDown(t.Context(), &driver.CountDownRequest{ID: newID(), Name: name + "l", Count: 9, By: 1})
	_, put := d.Txn(t.Context(), &driver.TxnRequest{ID: newID(), Then: []driver.Op{{Kind: driver.OpPut, Key: name}}})
	if err := errors.Join(add, reserve, down, put); err != nil {
		t.Fatal(err)
	}
}

// TestCancelledOnItsWay: an Acquire whose caller gave up before the server heard
// of it leaves nothing taken.
func TestCancelledOnItsWay(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	d, other := raw(t, link.URL(server.URL())), open(t, server.URL())
	if _, err := d.Acquire(t.Context(), mutex(name+"/warm")); err != nil {
		t.Fatal(err)
	}
	link.Cut()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.Acquire(short, mutex(name)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("through a cut link: %v", err)
	}
	link.Heal()
	eventually(t, "the name stays taken", func() bool {
		h, err := other.Mutex(name).TryAcquire(t.Context())
		return err == nil && h.Release() == nil
	})
}

// TestDeadlineFromBeforeTheSend: a hold's deadline is counted from before it was
// asked for, however long the answer takes.
func TestDeadlineFromBeforeTheSend(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	s := open(t, link.URL(server.URL())+"?holdfast_min_validity=500ms", holdfast.TTL(3*time.Second))
	for i := range 3 {
		before := driver.Now()
		h, err := s.RWMutex(fmt.Sprint(name, i)).Writer().Acquire(t.Context()) // extends the session
		if err != nil {
			t.Fatal(err)
		}
		d, _ := h.Deadline()
		if i > 0 && d.After(before.Add(3*time.Second)) { // the first also opened the session
			t.Errorf("the deadline is %s after the call, beyond the TTL of 3 s", d.Sub(before))
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		link.Delay(400*time.Millisecond, services.ToClient)
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
	check("the first hold, whose session is opened for it", second(s.Mutex(name).Acquire(t.Context())))
	check("a session", second(s.Session(t.Context())))
	link.Heal()
	eventually(t, "what was not granted stays taken", func() bool {
		h, err := s.Mutex(name).TryAcquire(t.Context())
		return err == nil && h.Release() == nil
	})
}

// TestDeadReaderLeaves: each reader ends on its own; one that died does not stay
// as long as others read.
func TestDeadReaderLeaves(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	dying, living := open(t, link.URL(server.URL())), open(t, server.URL())
	if _, err := dying.RWMutex(name, holdfast.TTL(time.Second)).Reader().Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold, err := living.RWMutex(name).Reader().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Release()
	link.Cut()
	defer link.Heal()
	eventually(t, "the dead reader stays", func() bool {
		r, err := living.Inspect(t.Context(), name)
		return err == nil && len(r.Holders) == 1
	})
	if err := hold.Err(); err != nil {
		t.Errorf("the living reader: %v", err)
	}
}

// TestExpiredTicketIsFree: what a dead holder had of a semaphore is not counted
// as used.
func TestExpiredTicketIsFree(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	dying, living := open(t, link.URL(server.URL())), open(t, server.URL())
	if _, err := dying.Semaphore(name, 3, holdfast.TTL(time.Second)).Acquire(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	link.Cut()
	defer link.Heal()
	eventually(t, "an expired ticket is counted", func() bool {
		r, err := living.Inspect(t.Context(), name)
		return err == nil && r.Used == 0 && r.Limit == 3
	})
	h, err := living.Semaphore(name, 3).TryAcquire(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Release()
}
