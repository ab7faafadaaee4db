package pghold

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// lateRow is an age at which a hold gets its row. A test that must not see the row has it come
// never: a busy machine may pause for that long at any moment.
const lateRow = 100 * time.Millisecond

// quickClients are clients of one database whose rows come late.
func quickClients(t *testing.T, n int) []*client {
	t.Helper()
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = newTestClient(t, url, time.Minute)
		clients[i].recordHoldsAfter = lateRow
	}
	return clients
}

// take acquires, and fails the test if it cannot.
func take(t *testing.T, c *client, r *driver.Request) *rowClaim {
	t.Helper()
	g, err := c.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return g.Handle.(*rowClaim)
}

func free(t *testing.T, cl *rowClaim) {
	t.Helper()
	if err := cl.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// takeQuickly takes a mutex until it is taken quickly, which it is when the last watcher's
// fast-path locks are given back and as many grants as follow a miss were taken as everybody does.
func takeQuickly(t *testing.T, c *client, name string) (cl *rowClaim) {
	t.Helper()
	within(t, name+" is not taken quickly", func() bool {
		r := mutexRequest(name)
		r.Spec.Owner = "who"
		if cl = take(t, c, r); !cl.rowless.Load() {
			free(t, cl)
		}
		return cl.rowless.Load()
	})
	return cl
}

func tryRequest(name string, kind driver.ResourceKind) *driver.Request {
	return &driver.Request{Wants: []driver.Want{{Name: name, Kind: kind, Weight: 1, Limit: 2}}, Try: true, Lost: func(error) {}}
}

// TestQuick: the second grant of a name writes no row, has a greater token and
// excludes, in its own process too.
func TestQuick(t *testing.T) {
	c := quickClients(t, 2)
	never := quickClients(t, 1)[0]
	never.recordHoldsAfter = time.Hour
	for _, name := range []string{"m", "a name that is hashed"} { // a pair of integers, and one bigint
		first := take(t, c[0], mutexRequest(name))
		if first.rowless.Load() {
			t.Fatal("the first grant is quick: nobody has looked what else the name is")
		}
		free(t, first)
		cl := takeQuickly(t, c[0], name)
		if cl.token <= first.token {
			t.Errorf("the token %d follows %d", cl.token, first.token)
		}
		for _, other := range c {
			if _, err := other.Acquire(t.Context(), tryRequest(name, driver.Mutex)); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("TryAcquire beside a quick grant: %v", err)
			}
		}
		free(t, cl)
		free(t, take(t, c[1], tryRequest(name, driver.Mutex)))

		alone := takeQuickly(t, never, name)
		var rows int
		if err := never.pool.QueryRow(t.Context(), "select count(*) from holdfast.claim").Scan(&rows); err != nil || rows != 0 {
			t.Errorf("a quick grant has %d rows, %v", rows, err)
		}
		free(t, alone)
	}
}

// TestQuickTakesTheFlagOnce: of several quick grants that go out together only one
// takes the flag, which is given back once.
func TestQuickTakesTheFlagOnce(t *testing.T) {
	c := quickClients(t, 1)[0]
	free(t, takeQuickly(t, c, "m"))
	l := c.living()
	within(t, "the flag is not given back", func() bool { return !l.flagged() })
	var asked [2]string
	<-l.start(time.Minute, func(context.Context) error {
		l.flagging = false
		for i, name := range []string{"a", "b"} {
			key := mustKey(t, name)
			q := &fastGrant{l: l, cl: &rowClaim{key: key, easy: l.newEasy(key)}}
			asked[i], _ = q.form()
		}
		return nil
	}).done
	if asked[0] == "" || asked[1] != "" {
		t.Errorf("asked %q and, before the answer, %q; want the second passed over", asked[0], asked[1])
	}
}

// TestQuickIsTold: a caller that asks about a name, or that a quick hold stands in the way of, is
// told of it although its row comes later.
func TestQuickIsTold(t *testing.T) {
	c := quickClients(t, 2)
	ctx := t.Context()
	for what, ask := range map[string]func(cl *rowClaim) []driver.Claim{
		"Inspect": func(cl *rowClaim) []driver.Claim {
			r, err := c[1].Inspect(ctx, &driver.InspectRequest{Name: cl.name})
			if err != nil || len(r.Resources) == 0 {
				t.Fatal("Inspect tells nothing", err)
			}
			return r.Resources[0].Holders
		},
		"List": func(*rowClaim) []driver.Claim {
			r, err := c[1].Inspect(ctx, &driver.InspectRequest{Prefix: true})
			if err != nil || len(r.Resources) == 0 {
				t.Fatal("List tells nothing", err)
			}
			return r.Resources[0].Holders
		},
		"ErrHeld": func(cl *rowClaim) []driver.Claim {
			_, err := c[1].Acquire(ctx, tryRequest(cl.name, driver.Mutex))
			e, _ := errors.AsType[*driver.Error](err)
			if e == nil || e.Kind != driver.ErrHeld {
				t.Fatal("TryAcquire of a held name:", err)
			}
			return e.Holders
		},
		"SessionInfo": func(cl *rowClaim) []driver.Claim {
			i, err := c[1].SessionInfo(ctx, &driver.SessionInfoRequest{ID: cl.session.ID})
			if err != nil || len(i.Names) != 1 || i.Names[0] != cl.name {
				t.Fatalf("the session is told as %+v, %v", i, err)
			}
			return []driver.Claim{{Owner: i.Owner, Token: cl.token}}
		},
	} {
		cl := takeQuickly(t, c[0], what)
		if holders := ask(cl); len(holders) != 1 || holders[0].Token != cl.token || holders[0].Owner != "who" {
			t.Fatalf("%s tells the holder as %+v", what, holders)
		}
		free(t, cl)
	}
}

// TestQuickForce: a quick hold can be taken by force before it has a row.
func TestQuickForce(t *testing.T) {
	c := quickClients(t, 2)
	cl := takeQuickly(t, c[0], "m")
	if _, err := c[1].Force(t.Context(), &driver.ForceRequest{Name: "m", Token: cl.token, Now: true}); err != nil {
		t.Fatal(err)
	}
	free(t, take(t, c[1], tryRequest("m", driver.Mutex)))
}

// TestQuickKind: a name that is held quickly cannot be used as another kind, by
// its own program or another one, in a wait or without.
func TestQuickKind(t *testing.T) {
	c := quickClients(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a caller that is not refused would wait for ever
	defer cancel()
	for i, other := range c {
		for _, kind := range []driver.ResourceKind{driver.RWMutex, driver.Semaphore, driver.Election} {
			for _, try := range []bool{true, false} {
				name := fmt.Sprint(kind, i, try)
				cl := takeQuickly(t, c[0], name)
				r := tryRequest(name, kind)
				r.Try = try
				if _, err := other.Acquire(ctx, r); !errors.Is(err, driver.ErrConflict) {
					t.Fatalf("a mutex that is held as a %s: %v", kind, err)
				}
				free(t, cl)
			}
		}
	}
	held := take(t, c[1], tryRequest("s", driver.Semaphore))
	for _, other := range c {
		if _, err := other.Acquire(t.Context(), tryRequest("s", driver.Mutex)); !errors.Is(err, driver.ErrConflict) {
			t.Fatalf("a semaphore that is held as a mutex: %v", err)
		}
	}
	free(t, held)
}

// TestQuickBecomesSemaphore: a name that was a mutex and becomes a semaphore is
// one for programs that took it quickly too, soon after if nobody holds it.
func TestQuickBecomesSemaphore(t *testing.T) {
	c := quickClients(t, 2)
	free(t, takeQuickly(t, c[0], "m"))
	held := take(t, c[1], tryRequest("m", driver.Semaphore))
	l := held.l
	free(t, held)
	within(t, "the guard is kept", func() (dropped bool) {
		<-l.start(time.Minute, func(context.Context) error { dropped = len(l.waitersLocks) == 0; return nil }).done
		return dropped
	})
	within(t, "a semaphore that nobody holds is taken as a mutex", func() bool {
		g, err := c[0].Acquire(t.Context(), tryRequest("m", driver.Mutex))
		if err == nil {
			free(t, g.Handle.(*rowClaim))
		}
		return errors.Is(err, driver.ErrConflict)
	})
}

// within looks until it sees what it wants, for a while.
func within(t *testing.T, missing string, look func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !look(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(missing)
		}
	}
}

// TestQuickGivesWay: nobody takes a name quickly for which somebody waits, also
// not in the moment in which the lock itself is free.
func TestQuickGivesWay(t *testing.T) {
	c := quickClients(t, 3)
	for _, other := range c[1:] {
		free(t, takeQuickly(t, other, "m"))
	}
	l, err := c[2].atHome(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiter := &rowClaim{c: c[2], r: mutexRequest("m"), name: "m", key: mustKey(t, "m"), kind: driver.Mutex, weigh: 1, released: make(chan struct{})}
	wq := c[2].enter(waiter.key)
	queueAlone(t, l, waiter)
	l.setEasy(waiter.key, true) // as for somebody who looked before
	for _, other := range c {
		if _, err := other.Acquire(t.Context(), tryRequest("m", driver.Mutex)); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("somebody who came later overtook the waiter: %v", err)
		}
	}
	c[2].leave(wq)
	c[2].forget(waiter)
	within(t, "nobody waits any more, and the name is not taken quickly again", func() bool {
		cl := take(t, c[1], mutexRequest("m"))
		defer free(t, cl)
		return cl.rowless.Load()
	})
}

func mustKey(t *testing.T, name string) Key {
	t.Helper()
	k, err := ParseKey(name, true)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// queueAlone puts a claim into the queue although the lock is free, and does not
// have it wait.
func queueAlone(t *testing.T, l *pgLink, cl *rowClaim) {
	t.Helper()
	q := &arrival{l: l, cl: cl, session: l.c.sessionOn(l, cl.r)}
	j := l.start(time.Minute, func(ctx context.Context) error {
		before := l.held[cl.key]
		l.held[cl.key] = tally{writers: 1}
		q.ask = q
		l.askAll(ctx, []*job{&q.job})
		if l.held[cl.key] = before; before == (tally{}) {
			delete(l.held, cl.key)
		}
		return q.err
	})
	if <-j.done; j.err != nil || q.a.state != "queued" {
		t.Fatalf("the claim is %q, %v", q.a.state, j.err)
	}
}

// TestQuickWatch: a watcher is told of every grant and release from then on,
// of a hold that had no row and of its own program's.
func TestQuickWatch(t *testing.T) {
	c := quickClients(t, 2)
	for _, watching := range c {
		before := takeQuickly(t, c[0], "m")
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan driver.Event, 100)
		over := make(chan struct{})
		go func() {
			defer close(over)
			for ev, err := range watching.Watch(ctx, &driver.WatchRequest{Prefix: "m"}) {
				if err != nil {
					t.Error(err)
				}
				events <- ev
			}
		}()
		expect := func(verb string, token driver.Token) {
			t.Helper()
			select {
			case ev := <-events:
				if ev.Verb != verb || ev.Token != token {
					t.Fatalf("the next event is %s of %d; want %s of %d", ev.Verb, ev.Token, verb, token)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("no event; want %s of %d", verb, token)
			}
		}
		expect(driver.VerbReady, 0)
		free(t, before)
		expect("released", before.token)
		for range 3 {
			cl := take(t, c[0], mutexRequest("m"))
			free(t, cl)
			expect("acquired", cl.token)
			expect("released", cl.token)
		}
		cancel()
		<-over
	}
}

// TestQuickRowFollows: a quick hold that lasts gets its row by itself, which goes
// with it.
func TestQuickRowFollows(t *testing.T) {
	c := quickClients(t, 1)[0]
	count := func() (rows int) {
		if err := c.pool.QueryRow(t.Context(), "select count(*) from holdfast.claim").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	cl := takeQuickly(t, c, "m")
	within(t, "a quick hold that lasts gets no row", func() bool { return count() == 1 })
	free(t, cl)
	if rows := count(); rows != 0 {
		t.Errorf("%d rows are left", rows)
	}
}

// TestLongAnswer: an answer that takes longer than a caller waits for is read by
// the link's own goroutine, whatever else is asked meanwhile, and the link goes on.
func TestLongAnswer(t *testing.T) {
	c := quickClients(t, 1)[0]
	l := home(t, c)
	for _, seconds := range []float64{0, 10 * grace.Seconds(), 0, 10 * grace.Seconds()} { // the first makes the statement known
		var n int64
		awaken(t, l)
		q := &asking{sql: "select 7 from pg_sleep($1)", args: []any{seconds}, to: []any{&n}, then: func() {}}
		j := l.ask(&q.job, q)
		within(t, "the question is not answered", func() bool {
			l.start(time.Minute, func(context.Context) error { return nil })
			return j.isOver()
		})
		if j.err != nil || n != 7 {
			t.Errorf("a question of %v s is answered with %d, %v", seconds, n, j.err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	awaken(t, l)
	q := &asking{sql: "select 7 from pg_sleep($1)", args: []any{60.0}, to: []any{new(int64)}, then: func() {}}
	j := l.ask(&q.job, q)
	within(t, "the question is not asked", func() bool { return j.state.Load() == running })
	cancel()
	if j.wait(ctx) {
		t.Errorf("the caller does not get away: %v", j.err)
	}
	l.fail(errUnused)
	if <-j.done; j.err == nil {
		t.Error("a question on a dead link was answered")
	}
}

// awaken makes sure that the link is free, and does not read.
func awaken(t *testing.T, l *pgLink) {
	t.Helper()
	within(t, "the link is not free", func() bool {
		<-l.start(time.Minute, func(context.Context) error { return nil }).done
		return l.have()
	})
	l.let()
}
