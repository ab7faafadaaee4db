package pghold_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/pghold"
)

// watched are the events of a watch that has begun.
func watched(t *testing.T, s *holdfast.Space) <-chan holdfast.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events, over := make(chan holdfast.Event, 100), make(chan struct{})
	t.Cleanup(func() { cancel(); <-over })
	go func() {
		defer close(over)
		for ev, err := range s.Watch(ctx, "", 0) {
			if err != nil {
				t.Errorf("the watch ended: %v", err)
				return
			}
			events <- ev
		}
	}()
	if ev := next(t, events); ev.Verb != "ready" {
		t.Fatalf("a watch begins with %s:%s", ev.Kind, ev.Verb)
	}
	return events
}

func next(t *testing.T, events <-chan holdfast.Event) holdfast.Event {
	t.Helper()
	select {
	case ev := <-events:
		return ev
	case <-time.After(patience):
		t.Fatal("nothing is told")
		return holdfast.Event{}
	}
}

// TestEndOfAHolderIsTold: watches are told that holders have ended, although nobody takes the names.
func TestEndOfAHolderIsTold(t *testing.T) {
	url := database(t)
	dies, look := open(t, url+"&application_name=dies"), connect(t, url)
	events := watched(t, open(t, url))
	ctx := t.Context()
	missing := map[string]holdfast.Token{
		"lock m":      must(dies.Mutex("m").Acquire(ctx))(t).Token(),
		"election e":  must(dies.Election("e").Campaign(ctx, nil))(t).Token(),
		"semaphore s": must(dies.Semaphore("s", 2).Acquire(ctx, 1))(t).Token(),
	}
	must(look.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'dies'"))(t)
	for len(missing) > 0 {
		ev := next(t, events)
		if name := ev.Kind + " " + ev.Name; ev.Verb == "expired" && missing[name] == ev.Token {
			delete(missing, name)
		} else if ev.Verb != "acquired" {
			t.Errorf("told: %+v; missing: %v", ev, missing)
		}
	}
}

// TestEndOfAHolderIsToldByDelete: also if the first that comes by removes what it held a part of.
func TestEndOfAHolderIsToldByDelete(t *testing.T) {
	url := database(t)
	d := must(driver.Open(t.Context(), url+"&application_name=dies"))(t)
	t.Cleanup(func() { check(t, d.Close(context.Background())) })
	s, look := open(t, url), connect(t, url)
	events := watched(t, s)
	must(look.Exec(t.Context(), "select pg_advisory_lock(5209599041173340520)"))(t) // nobody sweeps
	hold := must(d.Acquire(t.Context(), &driver.Request{Wants: []driver.Want{{Name: "s", Kind: driver.Semaphore, Weight: 1, Limit: 2}}}))(t)
	must(look.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'dies'"))(t)
	eventually(t, "a semaphore of the dead cannot be deleted", func() bool {
		err := s.Semaphore("s", 2).Delete(t.Context())
		return err == nil || !errors.Is(err, holdfast.ErrHeld)
	})
	if ev := next(t, events); ev.Verb != "acquired" {
		t.Fatalf("told: %+v", ev)
	}
	if ev := next(t, events); ev.Verb != "expired" || ev.Token != hold.Token {
		t.Errorf("of the end of a hold is told: %+v", ev)
	}
}

// TestEndOfAKeyIsTold, also if it was not yet removed when it was put anew or deleted.
func TestEndOfAKeyIsTold(t *testing.T) {
	url := database(t)
	s, look := open(t, url), connect(t, url)
	events := watched(t, s)
	over := func(key string) {
		must(s.KV().Put(t.Context(), key, nil, holdfast.Expire(time.Millisecond)))(t)
		eventually(t, "a key does not expire", func() (over bool) {
			scan(t, look, &over, "select not exists (select from holdfast.kv where key = $1 and expires > clock_timestamp())", key)
			return over
		})
	}
	over("put")
	must(s.KV().Put(t.Context(), "put", []byte("anew")))(t)
	over("deleted")
	if n := must(s.KV().DeleteRange(t.Context(), "deleted"))(t); n != 0 {
		t.Errorf("%d keys were there after their time", n)
	}
	must(s.KV().Put(t.Context(), "last", nil))(t)
	for _, want := range []string{"put put", "delete put timeout", "put put", "put deleted", "delete deleted timeout", "put last"} {
		ev := next(t, events)
		got := ev.Verb + " " + ev.Name
		if ev.Verb == "delete" {
			got += " " + ev.Reason
		}
		if got != want {
			t.Errorf("told: %q; want %q", got, want)
		}
	}
}

const manyKeys = `insert into holdfast.kv (key, value, created, modified, version, lease, nonce, expires)
	select %s || i, '', 1, 1, 1, %s, %s, %s from generate_series(1, 2500) i`

// TestKeysEndPageByPage: no transaction removes any number of keys, in which nobody else could
// write one.
func TestKeysEndPageByPage(t *testing.T) {
	url := database(t)
	d := must(driver.Open(t.Context(), url))(t)
	t.Cleanup(func() { check(t, d.Close(context.Background())) })
	session, look := withKey(t, d, "k"), connect(t, url)
	for what, run := range map[string]struct {
		insert []any // of keys
		end    func() error
	}{
		"that are deleted": {[]any{"'p'", "null", "null", "null"}, func() error {
			n, err := must(holdfast.New(d))(t).KV().DeleteRange(t.Context(), "p")
			if n != 2500 {
				t.Errorf("%d keys were deleted", n)
			}
			return err
		}},
		"that have expired": {[]any{"'e'", "null", "null", "now() - interval '1 second'"}, sweepOf(t, d)},
		"of a dead program": {[]any{"'d'", "gen_random_uuid()", "4711", "null"}, sweepOf(t, d)},
		"of a session that ended": {[]any{"'s'", "'" + session.ID.String() + "'", "(select nonce from holdfast.session)", "null"},
			func() error { return d.EndSession(t.Context(), session) }},
	} {
		must(look.Exec(t.Context(), fmt.Sprintf(manyKeys, run.insert...)))(t)
		before := revision(t, look)
		check(t, run.end())
		if pages := revision(t, look) - before; pages < 3 {
			t.Errorf("2500 keys %s were removed in %d transactions", what, pages)
		}
		var left int
		if scan(t, look, &left, "select count(*) from holdfast.kv where key not in ('k')"); left > 0 {
			t.Errorf("%d keys %s are left", left, what)
		}
	}
}

func sweepOf(t *testing.T, d driver.Driver) func() error {
	return func() error {
		_, err := d.Sweep(t.Context(), &driver.SweepRequest{})
		return err
	}
}

func revision(t *testing.T, look *pgx.Conn) (n int64) {
	t.Helper()
	scan(t, look, &n, "select n from holdfast.revision")
	return n
}

// TestWatchBesideALongTransaction: a watch that cannot begin yet, since others' transactions are
// not over, costs no hold, and does not keep others from locks for long; it begins when it can.
func TestWatchBesideALongTransaction(t *testing.T) {
	t.Parallel()
	url := database(t)
	s := openPool(t, url, &pghold.Options{Timeout: 3 * time.Second})
	h := must(s.Mutex("m").Acquire(t.Context()))(t)
	long := must(connect(t, url).Begin(t.Context()))(t)
	must(long.Exec(t.Context(), "select pg_advisory_xact_lock_shared(5209599041173340519)"))(t)
	for _, err := range s.Watch(t.Context(), "", 0) {
		refused(t, err, holdfast.ErrUnavailable)
	}
	check(t, h.Err())
	began := make(chan error, 1)
	go func() {
		for {
			for _, err := range s.Watch(context.Background(), "", 0) {
				if !errors.Is(err, holdfast.ErrUnavailable) { // it waits no longer than Timeout
					began <- err
					return
				}
			}
		}
	}()
	look := connect(t, url)
	waits := func(yes bool) func() bool {
		return func() (is bool) {
			scan(t, look, &is, "select exists (select from pg_locks where not granted and locktype = 'advisory' and database = (select oid from pg_database where datname = current_database()))")
			return is == yes
		}
	}
	eventually(t, "the watch does not wait", waits(true))
	eventually(t, "the watch lets nobody pass", waits(false))
	check(t, long.Rollback(t.Context()))
	check(t, <-began)
	check(t, h.Release())
}

// TestMissingEvent: a large event that is no longer kept is told as a resync, and what follows is told.
func TestMissingEvent(t *testing.T) {
	url := database(t)
	s, look := open(t, url), connect(t, url)
	events := watched(t, s)
	must(look.Exec(t.Context(), "select pg_notify('holdfast_event', '@1')"))(t)
	if ev := next(t, events); ev.Kind != "watch" || ev.Verb != "resync" || int64(ev.Revision) <= revision(t, look) {
		t.Errorf("told: %+v", ev)
	}
	put := must(s.KV().Put(t.Context(), "k", make([]byte, 10_000)))(t)
	if ev := next(t, events); ev.Verb != "put" || ev.Revision != put || len(ev.KV.Value) != 10_000 {
		t.Errorf("told: %+v", ev)
	}
}
