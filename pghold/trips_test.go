package pghold_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/pghold"
)

var allTrips = flag.Bool("pghold.trips", false, "TestTrips: every mishap at every round trip, not a share")

const (
	// tripShare is how long the share of TestTrips takes.
	tripShare = 6 * time.Second
	// tripTimeout is Keepalive and Timeout of the program that meets the mishap.
	tripTimeout = time.Second
	// tripBound is how long a name may stay taken after a mishap: the server notices a
	// connection that has ended when the slice of a wait on it is over.
	tripBound = 15 * time.Second
)

// scenario is something that a program does, on names that begin with n. b has a way of
// its own, without mishaps. It ends with everything given back, as far as it could be.
type scenario struct {
	name string
	run  func(t *testing.T, a, b *holdfast.Space, n string)
	// free takes what the scenario used, and fails if somebody has it still.
	free func(ctx context.Context, b *holdfast.Space, n string) error
}

var scenarios = []scenario{
	{"mutex", mutexTrips, freeMutex},
	{"mutex wait", mutexWaitTrips, freeMutex},
	{"cancelled wait", cancelTrips, freeMutex},
	{"readers and writer", rwTrips, func(ctx context.Context, b *holdfast.Space, n string) error {
		return released(b.RWMutex(n).Writer().Acquire(ctx))
	}},
	{"semaphore", semaphoreTrips, func(ctx context.Context, b *holdfast.Space, n string) error {
		return released(b.Semaphore(n, 2).Acquire(ctx, 2))
	}},
	{"election", electionTrips, func(ctx context.Context, b *holdfast.Space, n string) error {
		l, err := b.Election(n).Campaign(ctx, nil)
		if err != nil {
			return err
		}
		return l.Release()
	}},
	{"counter", counterTrips, func(context.Context, *holdfast.Space, string) error { return nil }},
	{"inspect, force, watch", lookTrips, freeMutex},
	{"delete", deleteTrips, func(context.Context, *holdfast.Space, string) error { return nil }},
}

func freeMutex(ctx context.Context, b *holdfast.Space, n string) error {
	return released(b.Mutex(n).Acquire(ctx))
}

func released(h *holdfast.Hold, err error) error {
	if err != nil {
		return err
	}
	return h.Release()
}

// giveBack releases a hold that may have been lost, and checks that it told so: a hold
// that believes in itself is nobody else's.
func giveBack(t *testing.T, b *holdfast.Space, n string, h *holdfast.Hold, try func() (*holdfast.Hold, error)) {
	t.Helper()
	if h == nil {
		return
	}
	if other, err := try(); err == nil {
		select { // the server frees what a broken connection had before its program can know
		case <-h.Done():
		case <-time.After(patience):
			t.Errorf("%s is held twice: by the token %d and by %d", n, h.Token(), other.Token())
		}
		if other.Token() <= h.Token() {
			t.Errorf("%s was granted with %d after %d", n, other.Token(), h.Token())
		}
		check(t, other.Release())
	} else if !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("a try by another program: %v", err)
	}
	if err := h.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("release %s: %v", n, err)
	}
}

// tolerable: what a call may answer when its round trip met a mishap.
func tolerable(err error) bool {
	return err == nil || errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrConflict) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func tolerate[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if !tolerable(err) && !strings.Contains(err.Error(), "refused by the test") {
		t.Errorf("a call that met a mishap: %v", err)
	}
	return v
}

func mutexTrips(t *testing.T, a, b *holdfast.Space, n string) {
	for range 3 {
		h, err := a.Mutex(n).Acquire(t.Context())
		giveBack(t, b, n, tolerate(t, h, err), func() (*holdfast.Hold, error) { return b.Mutex(n).TryAcquire(t.Context()) })
	}
	h, err := a.Mutex(n).Acquire(t.Context())
	if h := tolerate(t, h, err); h != nil {
		time.Sleep(15 * time.Millisecond) // so long that others are told of it
		giveBack(t, b, n, h, func() (*holdfast.Hold, error) { return b.Mutex(n).TryAcquire(t.Context()) })
	}
}

func mutexWaitTrips(t *testing.T, a, b *holdfast.Space, n string) {
	first, err := b.Mutex(n).Acquire(t.Context())
	check(t, err)
	var waits sync.WaitGroup
	for range 2 {
		waits.Go(func() {
			h, err := a.Mutex(n).Acquire(t.Context())
			giveBack(t, b, n, tolerate(t, h, err), func() (*holdfast.Hold, error) { return b.Mutex(n).TryAcquire(t.Context()) })
		})
	}
	time.Sleep(10 * time.Millisecond)
	check(t, first.Release())
	waits.Wait()
}

func cancelTrips(t *testing.T, a, b *holdfast.Space, n string) {
	first, err := b.Mutex(n).Acquire(t.Context())
	check(t, err)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		h, err := a.Mutex(n).Acquire(ctx)
		cancel()
		if h != nil {
			t.Errorf("%s was granted to two", n)
		}
		tolerate(t, h, err)
	}
	check(t, first.Release())
}

func rwTrips(t *testing.T, a, b *holdfast.Space, n string) {
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			h, err := a.RWMutex(n).Reader().Acquire(t.Context())
			giveBack(t, b, n, tolerate(t, h, err), func() (*holdfast.Hold, error) { return b.RWMutex(n).Writer().TryAcquire(t.Context()) })
		})
	}
	readers.Wait()
	h, err := a.RWMutex(n).Writer().Acquire(t.Context())
	giveBack(t, b, n, tolerate(t, h, err), func() (*holdfast.Hold, error) { return b.RWMutex(n).Reader().TryAcquire(t.Context()) })
}

func semaphoreTrips(t *testing.T, a, b *holdfast.Space, n string) {
	first, err := b.Semaphore(n, 2).Acquire(t.Context(), 2)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	h, err := a.Semaphore(n, 2).Acquire(ctx, 1)
	cancel()
	tolerate(t, h, err)
	var waits sync.WaitGroup
	waits.Go(func() {
		h, err := a.Semaphore(n, 2).Acquire(t.Context(), 2)
		giveBack(t, b, n, tolerate(t, h, err), func() (*holdfast.Hold, error) { return b.Semaphore(n, 2).TryAcquire(t.Context(), 1) })
	})
	time.Sleep(10 * time.Millisecond)
	check(t, first.Release())
	waits.Wait()
}

func electionTrips(t *testing.T, a, b *holdfast.Space, n string) {
	l, err := a.Election(n).Campaign(t.Context(), []byte("v"))
	if l := tolerate(t, l, err); l != nil {
		tolerate(t, 0, l.Proclaim(t.Context(), []byte("w")))
		giveBack(t, b, n, l.Hold, func() (*holdfast.Hold, error) {
			l, err := b.Election(n).TryCampaign(t.Context(), nil)
			if err != nil {
				return nil, err
			}
			return l.Hold, nil
		})
	}
}

// counterTrips: an Add that is told as done counted once, one that may have been done
// at most once.
func counterTrips(t *testing.T, a, b *holdfast.Space, n string) {
	var sure, perhaps int64
	for range 4 {
		_, err := a.Counter(n).Add(t.Context(), 1)
		tolerate(t, 0, err)
		switch {
		case err == nil:
			sure++
		case !holdfast.NotDone(err):
			perhaps++
		}
	}
	v, err := b.Counter(n).Load(t.Context())
	check(t, err)
	if v < sure || v > sure+perhaps {
		t.Errorf("%d Adds were done and %d perhaps; the counter is %d", sure, perhaps, v)
	}
	_, err = a.KV().Put(t.Context(), n, []byte("v"))
	tolerate(t, 0, err)
}

// deleteTrips: what was there and is deleted once is not told as missing, and a limiter
// leaves nothing of its keys, at any rate it had.
func deleteTrips(t *testing.T, a, b *holdfast.Space, n string) {
	rate := limit.Rate{Count: 10, Per: time.Hour, Initial: 1}
	l := b.Limiter(n, rate)
	for _, count := range []int64{10, 20} {
		rate.Count = count
		check(t, l.SetRate(t.Context(), rate))
		must(l.Allow(t.Context(), fmt.Sprint("key ", count)))(t)
	}
	must(b.Counter(n).Add(t.Context(), 1))(t)
	must(b.Sequence(n).Reserve(t.Context(), 1))(t)
	for i, remove := range []func(context.Context) error{a.Limiter(n, rate).Delete, a.Counter(n).Delete, a.Sequence(n).Delete} {
		if err := remove(t.Context()); !tolerable(err) && !strings.Contains(err.Error(), "refused by the test") {
			t.Errorf("delete %d: %v", i, err)
		}
	}
	if err := l.Delete(t.Context()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func lookTrips(t *testing.T, a, b *holdfast.Space, n string) {
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	ready := make(chan struct{})
	watch.Go(func() {
		var once sync.Once
		defer once.Do(func() { close(ready) })
		for _, err := range a.Watch(ctx, n, 0) {
			once.Do(func() { close(ready) })
			tolerate(t, 0, err)
		}
	})
	<-ready
	h, err := b.Mutex(n).Acquire(t.Context())
	check(t, err)
	_, err = a.Inspect(t.Context(), n)
	if !errors.Is(err, fs.ErrNotExist) {
		tolerate(t, 0, err)
	}
	cancel()
	watch.Wait()
	_, err = a.ForceRelease(t.Context(), n, h.Token(), holdfast.ForceNow())
	tolerate(t, 0, err)
	_ = h.Release() // it may have been forced
}

// tripCase is one mishap at one trip of one scenario.
type tripCase struct {
	s    scenario
	what mishap
	at   int
}

// TestTrips: whatever becomes of one round trip to the server, afterwards every name can
// be granted to anybody, nothing is left in the server, no connection leaks, and every
// hold told the truth. The share that is tried is random.
func TestTrips(t *testing.T) {
	pg := services.PostgreSQL(t, services.Setting("max_connections", "200"))
	url := pg.URL(pg.CreateDatabase(t))
	b, look := openPool(t, url, nil), connect(t, url)
	check(t, released(b.Mutex("schema").Acquire(t.Context())))
	cases, total := tripCases(t, pg, url, b, look)
	rand.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	began, tried, met := time.Now(), 0, 0
	for i, c := range cases {
		if !*allTrips && time.Since(began) > tripShare {
			break
		}
		tried++
		if runTrip(t, pg, url, b, look, c, fmt.Sprintf("trip %d", i)) {
			met++
		}
		if t.Failed() {
			t.Fatalf("%s, %s at trip %d", c.s.name, c.what.name, c.at)
		}
	}
	t.Logf("proof: pghold trips: %d of %d cases tried (%d scenarios, %d trips, %d mishaps), %d met their mishap, in %s",
		tried, len(cases), len(scenarios), total, len(mishaps), met, time.Since(began).Round(time.Second))
	if met == 0 {
		t.Error("no case met its mishap")
	}
}

// tripCases counts the trips of every scenario; what happens at later ones, after a
// mishap, is not tried.
func tripCases(t *testing.T, pg *services.PostgreSQLServer, url string, b *holdfast.Space, look *pgx.Conn) (cases []tripCase, total int) {
	for i, s := range scenarios {
		p := newTripProxy(t, pg, 0, mishap{})
		runThrough(t, p, url, b, look, s, fmt.Sprintf("count %d", i))
		trips, _ := p.seen()
		total += trips
		for at := 1; at <= trips; at++ {
			for _, m := range mishaps {
				cases = append(cases, tripCase{s, m, at})
			}
		}
	}
	return cases, total
}

func runTrip(t *testing.T, pg *services.PostgreSQLServer, url string, b *holdfast.Space, look *pgx.Conn, c tripCase, n string) bool {
	p := newTripProxy(t, pg, c.at, c.what)
	runThrough(t, p, url, b, look, c.s, n)
	_, met := p.seen()
	return met
}

// runThrough runs a scenario over a proxy, and looks at what it leaves.
func runThrough(t *testing.T, p *tripProxy, url string, b *holdfast.Space, look *pgx.Conn, s scenario, n string) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(p.URL(url) + "&pool_max_conns=4&application_name=tripping")
	check(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	check(t, err)
	var d driver.Driver
	d, err = pghold.New(pool, &pghold.Options{Keepalive: tripTimeout, Timeout: tripTimeout})
	check(t, err)
	a, err := holdfast.New(d)
	check(t, err)
	s.run(t, a, b, n)
	ctx, cancel := context.WithTimeout(t.Context(), tripBound)
	defer cancel()
	if err := s.free(ctx, b, n); err != nil {
		t.Errorf("while the program lives: %s is not free: %v", n, err)
	}
	check(t, a.Close())
	pool.Close()
	p.close()
	nothingLeft(t, look, n)
}

// nothingLeft: no connection of the program, and no row once what the dead left is swept,
// as every program does from time to time.
func nothingLeft(t *testing.T, look *pgx.Conn, n string) {
	t.Helper()
	var conns, rows int
	end := time.Now().Add(tripBound)
	for {
		scan(t, look, &conns, "select count(*) from pg_stat_activity where application_name = 'tripping'")
		_, err := look.Exec(t.Context(), "select holdfast_v10.sweep()")
		check(t, err)
		scan(t, look, &rows, "select (select count(*) from holdfast.claim where name = $1) + (select count(*) from holdfast.watcher)", n)
		if conns == 0 && rows == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%d connections and %d rows are left", conns, rows)
			return
		}
		time.Sleep(time.Millisecond)
	}
}
