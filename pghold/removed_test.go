package pghold_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pghold"
)

// everything are the statements that remove the rows of all tables.
const everything = `truncate holdfast.revision, holdfast.claim, holdfast.resource, holdfast.session, holdfast.counter, holdfast.sequence,
holdfast.limiter, holdfast.usage, holdfast.done, holdfast.kv, holdfast.watcher, holdfast.event restart identity`

// remove runs what somebody does to the tables.
func remove(t *testing.T, look *pgx.Conn, sql string) {
	t.Helper()
	_, err := look.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	check(t, err)
}

// lookingOften is a Space that soon sees what is gone.
func lookingOften(t *testing.T, url string, scope pghold.Scope) *holdfast.Space {
	t.Helper()
	return open(t, url+"&holdfast_keepalive=50ms&holdfast_scope="+string(scope))
}

// TestRowsAreRemoved: after somebody has truncated every table the next calls are answered, with tokens and revisions
// beyond those of before, and holders of what was nothing but a row are told.
func TestRowsAreRemoved(t *testing.T) {
	for _, scope := range []pghold.Scope{pghold.SessionScope, pghold.TransactionScope} {
		t.Run(string(scope), func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), database(t)
			s, look := lookingOften(t, url, scope), connect(t, url)
			place := must(s.Semaphore("s", 1).Acquire(ctx, 1))(t)
			leads := must(s.Election("e").Campaign(ctx, []byte("a")))(t)
			ses := must(s.Session(ctx))(t)
			rev := must(s.KV().Put(ctx, "k", nil))(t)

			remove(t, look, everything)
			next := must(s.KV().Put(ctx, "k", nil))(t)
			if next <= rev {
				t.Errorf("the next revision is %d after %d", next, rev)
			}
			again := must(s.Semaphore("s", 1).Acquire(ctx, 1))(t)
			if again.Token() <= place.Token() {
				t.Errorf("the next token is %d after %d", again.Token(), place.Token())
			}
			lost(t, place)
			lost(t, leads.Hold)
			eventually(t, "the session goes on", func() bool { return ses.Err() != nil })
			refused(t, ses.Err(), holdfast.ErrLost)
			refused(t, place.Release(), holdfast.ErrLost)
			check(t, again.Err())
			check(t, must(s.Election("e").Campaign(ctx, []byte("b")))(t).Resign())

			remove(t, look, everything)
			must(s.Inspect(ctx, "s"))(t)
			lost(t, again)
			check(t, must(s.Session(ctx))(t).Revoke())
		})
	}
}

// TestRowsAreRemoved_Locks: a lock is held by more than its row, and goes on; Inspect and ForceRelease find it.
func TestRowsAreRemoved_Locks(t *testing.T) {
	for _, scope := range []pghold.Scope{pghold.SessionScope, pghold.TransactionScope} {
		t.Run(string(scope), func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), database(t)
			s, look := lookingOften(t, url, scope), connect(t, url)
			m := must(s.Mutex("m").Acquire(ctx))(t)
			r := must(s.RWMutex("rw").Reader().Acquire(ctx))(t)
			wait := waiting(t, lookingOften(t, url, scope), "m")
			remove(t, look, "delete from holdfast.claim")
			for name, h := range map[string]*holdfast.Hold{"m": m, "rw": r} {
				eventually(t, name+" has no row", func() bool {
					res, err := s.Inspect(ctx, name)
					check(t, err)
					return len(res.Holders) == 1 && res.Holders[0].Token == h.Token()
				})
				check(t, h.Err())
				check(t, h.Release())
			}
			check(t, granted(t, wait).Release())
			var rows int
			if scan(t, look, &rows, "select count(*) from holdfast.claim"); rows != 0 {
				t.Errorf("%d rows are left", rows)
			}
		})
	}
}

// TestRowsAreRemoved_WhileOneWaits: a waiter for a semaphore or latch that is gone is served, or told.
func TestRowsAreRemoved_WhileOneWaits(t *testing.T) {
	for _, sql := range []string{"delete from holdfast.resource", "truncate holdfast.resource, holdfast.claim", "delete from holdfast.claim where token = 0"} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), database(t)
			s, look := lookingOften(t, url, pghold.SessionScope), connect(t, url)
			h := must(s.Semaphore("s", 1).Acquire(ctx, 1))(t)
			waits, got := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := s.Semaphore("s", 1, holdfast.OnWait(func(int) { close(waits) })).Acquire(context.Background(), 1)
				got <- err
			}()
			<-waits
			remove(t, look, sql)
			if err := h.Release(); err != nil {
				refused(t, err, holdfast.ErrLost)
			}
			select {
			case err := <-got:
				check(t, err)
			case <-time.After(patience):
				t.Fatal("the waiter is not granted")
			}
		})
	}
}

// TestRowsAreRemoved_Watched: a watch tells that it has missed something, and goes on; also of keys that expire when
// the row of revisions is gone.
func TestRowsAreRemoved_Watched(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), database(t)
	s, look := lookingOften(t, url, pghold.SessionScope), connect(t, url)
	events := make(chan holdfast.Event, 64)
	go func() {
		defer close(events)
		for ev, err := range s.Watch(ctx, "", 0) {
			if err != nil {
				return
			}
			events <- ev
		}
	}()
	next := func(want string) (ev holdfast.Event) {
		t.Helper()
		for {
			select {
			case ev = <-events:
			case <-time.After(patience):
				t.Fatal("the watch does not tell", want)
			}
			if ev.String() == want {
				return ev
			}
		}
	}
	ready := next("watch:ready")
	must(s.KV().Put(ctx, "expires", nil, holdfast.Expire(100*time.Millisecond)))(t)
	remove(t, look, "truncate holdfast.revision")
	if ev := next("kv:delete"); ev.Revision <= ready.Revision {
		t.Errorf("the end of a key is told with revision %d after %d", ev.Revision, ready.Revision)
	}
	remove(t, look, everything)
	next("watch:resync")
	must(s.KV().Put(ctx, "after", nil))(t)
	next("kv:put")
}

// TestSchemaIsDropped_UnderHolders: holders of what was nothing but a row are told, and others wait no longer for it
// than until then.
func TestSchemaIsDropped_UnderHolders(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), database(t)
	s, look := lookingOften(t, url, pghold.SessionScope), connect(t, url)
	place := must(s.Semaphore("s", 1).Acquire(ctx, 1))(t)
	ses := must(s.Session(ctx))(t)
	m := must(s.Mutex("m").Acquire(ctx))(t)
	remove(t, look, "drop schema holdfast cascade")
	lost(t, place)
	eventually(t, "the session goes on", func() bool { return ses.Err() != nil })
	check(t, m.Err())
}

// TestSchemaIsDropped_Release: a lock is given back at once, although its row has gone with the table.
func TestSchemaIsDropped_Release(t *testing.T) {
	for _, scope := range []pghold.Scope{pghold.SessionScope, pghold.TransactionScope} {
		t.Run(string(scope), func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), database(t)
			s, look := open(t, url+"&holdfast_scope="+string(scope)), connect(t, url)
			m := must(s.Mutex("00000000000000aa").Acquire(ctx))(t) // Single(0xaa)
			r := must(s.RWMutex("00000000000000bb").Reader().Acquire(ctx))(t)
			remove(t, look, "drop schema holdfast cascade")
			check(t, m.Release())
			check(t, r.Release())
			eventually(t, "a lock stays", func() (free bool) {
				scan(t, look, &free, "select pg_try_advisory_lock(x'aa'::bigint) and pg_try_advisory_lock(x'bb'::bigint)")
				return free
			})
		})
	}
}

// TestSchemaIsDropped_Watched: a watch, and Observe, end with an error that says what to do.
func TestSchemaIsDropped_Watched(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), database(t)
	s, look := lookingOften(t, url, pghold.SessionScope), connect(t, url)
	must(s.Election("e").Campaign(ctx, nil))(t)
	begun, ended := make(chan struct{}, 2), make(chan error, 2)
	go follow(s.Watch(ctx, "", 0), begun, ended)
	go follow(s.Election("e").Observe(ctx), begun, ended)
	<-begun
	<-begun
	remove(t, look, "drop schema holdfast cascade")
	for range 2 {
		select {
		case err := <-ended:
			refused(t, err, holdfast.ErrUnavailable)
			if !strings.Contains(err.Error(), "open it anew") {
				t.Errorf("it does not say what to do: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("it goes on without the schema")
		}
	}
}

// follow reads until the end, and tells the first of what comes.
func follow[T any](seq iter.Seq2[T, error], begun chan<- struct{}, ended chan<- error) {
	first := true
	for _, err := range seq {
		if err != nil {
			ended <- err
			return
		}
		if first {
			first = false
			begun <- struct{}{}
		}
	}
	ended <- nil
}
