package pghold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// lost waits until the hold is known to be lost.
func lost(t testing.TB, h *holdfast.Hold) {
	t.Helper()
	select {
	case <-h.Done():
	case <-time.After(patience):
		t.Fatal("the loss was not noticed")
	}
	refused(t, h.Err(), holdfast.ErrLost)
}

// freed waits until what a killed backend had can be taken: the server says
// that it ends before it has given its locks back.
func freed(t testing.TB, try func() (*holdfast.Hold, error)) {
	t.Helper()
	eventually(t, "what a killed backend had stays taken", func() bool {
		h, err := try()
		if errors.Is(err, holdfast.ErrHeld) {
			return false
		}
		check(t, err)
		check(t, h.Release())
		return true
	})
}

// TestKilledBackend: a holder whose server process is killed knows it by the end
// of the connection, long before a keepalive; all that was on the connection is
// lost, nothing else is, and the next call works.
func TestKilledBackend(t *testing.T) {
	url := database(t)
	a, b, look := openPool(t, url, &pghold.Options{Keepalive: time.Hour}), open(t, url), connect(t, url)
	m, n := must(a.Mutex("m").Acquire(t.Context()))(t), must(a.Semaphore("s", 2).Acquire(t.Context(), 2))(t)
	ses := must(a.Session(t.Context()))(t)
	must(a.KV().Put(t.Context(), "k", []byte("v"), holdfast.Under(ses)))(t)
	other := must(b.Mutex("other").Acquire(t.Context()))(t)
	var killed bool
	scan(t, look, &killed, "select pg_terminate_backend($1)", holderOf(t, look, "m"))
	lost(t, m)
	lost(t, n)
	eventually(t, "the session goes on", func() bool { return ses.Err() != nil })
	refused(t, ses.Err(), holdfast.ErrLost)
	if !strings.Contains(m.Err().Error(), "connection") {
		t.Errorf("the error does not say why: %v", m.Err())
	}
	check(t, other.Err())
	refused(t, m.Release(), holdfast.ErrLost)
	freed(t, func() (*holdfast.Hold, error) { return b.Mutex("m").TryAcquire(t.Context()) })
	freed(t, func() (*holdfast.Hold, error) { return b.Semaphore("s", 2).TryAcquire(t.Context(), 2) })
	_, err := b.KV().Get(t.Context(), "k")
	refused(t, err, fs.ErrNotExist)
	check(t, must(a.Mutex("m").Acquire(t.Context()))(t).Release())
}

// TestKilledWaiter: a wait whose connection is killed goes on, on another.
func TestKilledWaiter(t *testing.T) {
	url := database(t)
	a, b, look := open(t, url), open(t, url), connect(t, url)
	h := must(a.Mutex("m").Acquire(t.Context()))(t)
	wait := waiting(t, b, "m")
	for range 3 {
		var pid int
		eventually(t, "nobody waits in the server", func() bool {
			scan(t, look, &pid, "select coalesce(max(pid), 0) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())")
			return pid != 0
		})
		var killed bool
		scan(t, look, &killed, "select pg_terminate_backend($1)", pid)
		eventually(t, "the killed wait is still there", func() bool {
			var n int
			scan(t, look, &n, "select count(*) from pg_stat_activity where pid = $1", pid)
			return n == 0
		})
	}
	check(t, h.Release())
	check(t, granted(t, wait).Release())
}

// TestSilentCut: a cut that no packet tells of is noticed by the keepalive, and
// what was held is lost.
func TestSilentCut(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	way := services.Proxy(t, pg.Addr())
	s := openPool(t, way.URL(pg.URL(pg.CreateDatabase(t))), &pghold.Options{Keepalive: 100 * time.Millisecond, Timeout: 3 * time.Second})
	h := must(s.Mutex("m").Acquire(t.Context()))(t)
	way.Cut()
	defer way.Heal()
	lost(t, h)
	refused(t, h.Release(), holdfast.ErrLost)
}

// TestSilentCut_OfASemaphore: the keepalive is due however often the program looks which waiters' locks
// it needs.
func TestSilentCut_OfASemaphore(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	way := services.Proxy(t, pg.Addr())
	s := openPool(t, way.URL(pg.URL(pg.CreateDatabase(t))), &pghold.Options{Keepalive: time.Second, Timeout: 3 * time.Second})
	h := must(s.Semaphore("s", 2).Acquire(t.Context(), 1))(t)
	way.Cut()
	defer way.Heal()
	lost(t, h)
}

// TestBusyConnectionIsNotLost: a connection that is in use all the time outlives
// its keepalive.
func TestBusyConnectionIsNotLost(t *testing.T) {
	s := openPool(t, database(t), &pghold.Options{Keepalive: 5 * time.Millisecond})
	h := must(s.Mutex("m").Acquire(t.Context()))(t)
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		check(t, must(s.Mutex("n").Acquire(t.Context()))(t).Release())
	}
	check(t, h.Err())
	check(t, h.Release())
}

// TestForceNowEndsTheDeaf: a holder that cannot hear is cut off by ForceRelease
// with Now.
func TestForceNowEndsTheDeaf(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	way := services.Proxy(t, pg.Addr())
	deaf, b := openPool(t, way.URL(url), nil), openPool(t, url, &pghold.Options{Timeout: 3 * time.Second})
	h := must(deaf.Mutex("m").Acquire(t.Context()))(t)
	way.Cut()
	defer way.Heal()
	must(b.ForceRelease(t.Context(), "m", h.Token(), holdfast.ForceNow()))(t)
	next := must(b.Mutex("m").TryAcquire(t.Context()))(t)
	if next.Token() <= h.Token() {
		t.Errorf("the next token is %d after %d", next.Token(), h.Token())
	}
	way.Heal()
	lost(t, h)
	check(t, next.Err())
}

// TestServerRestart: a restart in the middle of everything loses every hold
// loudly, ends no program, and all works again afterwards; tokens go on.
func TestServerRestart(t *testing.T) {
	pg := services.PostgreSQL(t)
	ignore := goleak.IgnoreCurrent()
	url := pg.URL(pg.CreateDatabase(t))
	a := must(holdfast.Open(t.Context(), url))(t)
	h := must(a.Mutex("m").Acquire(t.Context()))(t)
	must(a.Counter("c").Add(t.Context(), 7))(t)
	must(a.KV().Put(t.Context(), "k", []byte("v")))(t)
	watched := make(chan string, 64)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ev, err := range a.Watch(ctx, "", 0) {
			if err != nil {
				t.Errorf("the watch ended: %v", err)
				return
			}
			watched <- ev.String() + " " + ev.Name
		}
	}()
	if got := <-watched; got != "watch:ready " {
		t.Fatalf("the watch begins with %s", got)
	}
	wait := make(chan error, 1)
	waits := make(chan struct{})
	go func() {
		got, err := a.Mutex("m", holdfast.OnWait(func(int) { close(waits) })).Acquire(t.Context())
		if err == nil {
			err = got.Release()
		}
		wait <- err
	}()
	<-waits
	pg.Kill()
	lost(t, h)
	pg.Restart()
	select {
	case err := <-wait:
		if err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("the waiter got %v", err)
		}
	case <-time.After(patience):
		t.Fatal("a waiter hangs after a restart")
	}
	eventually(t, "nothing works after a restart", func() bool {
		next, err := a.Mutex("m").Acquire(t.Context())
		if err != nil {
			return false
		}
		defer next.Release()
		if next.Token() <= h.Token() {
			t.Errorf("after the restart the token is %d, before it was %d", next.Token(), h.Token())
		}
		return true
	})
	if n := must(a.Counter("c").Load(t.Context()))(t); n != 7 {
		t.Errorf("after the restart the counter is %d", n)
	}
	if v := must(a.KV().Get(t.Context(), "k"))(t); string(v.Value) != "v" {
		t.Errorf("after the restart the key is %+v", v)
	}
	for resync := false; !resync; {
		select {
		case got := <-watched:
			resync = got == "watch:resync "
		case <-time.After(patience):
			t.Fatal("the watch does not tell of its gap")
		}
	}
	must(a.KV().Put(t.Context(), "after", nil))(t)
	for got := ""; got != "kv:put after"; {
		select {
		case got = <-watched:
		case <-time.After(patience):
			t.Fatal("the watch tells nothing after a restart")
		}
	}
	cancel()
	<-ended
	check(t, a.Close())
	serves := goleak.IgnoreAnyFunction("github.com/holdfast-io/holdfast/internal/services.spawn.func1")
	eventually(t, "goroutines are left", func() bool { return goleak.Find(ignore, serves) == nil })
}

// TestNothingIsLeft: a closed Space leaves no connection, row or goroutine, and
// a pool of the caller's goes on.
func TestNothingIsLeft(t *testing.T) {
	url := database(t)
	look := connect(t, url)
	pool := must(pgxpool.New(t.Context(), url))(t)
	defer pool.Close()
	check(t, pool.Ping(t.Context()))
	ignore := goleak.IgnoreCurrent()
	s := must(holdfast.New(must(pghold.New(pool, nil))(t)))(t)
	other := open(t, url)
	must(other.Mutex("busy").Acquire(t.Context()))(t)
	for _, name := range names("n", 10) {
		must(s.Mutex(name).Acquire(t.Context()))(t)
	}
	must(s.Semaphore("s", 3).Acquire(t.Context(), 2))(t)
	wait := waiting(t, s, "busy")
	check(t, s.Close())
	if h := granted(t, wait); h != nil {
		t.Error("a wait of a closed Space was granted")
	}
	check(t, other.Close())
	check(t, pool.Ping(t.Context()))
	eventually(t, "connections are left", func() bool { return connections(t, look) == 0 })
	var rows int
	if scan(t, look, &rows, "select count(*) from holdfast.claim"); rows != 0 {
		t.Errorf("%d claims are left", rows)
	}
	pool.Reset()
	eventually(t, "goroutines are left", func() bool { return goleak.Find(ignore) == nil })
}

// TestBadServers: a caller that cannot connect is told operation, cause and what to do,
// and never the password.
func TestBadServers(t *testing.T) {
	hba := filepath.Join(t.TempDir(), "pg_hba.conf")
	check(t, os.WriteFile(hba, []byte("host all limited all scram-sha-256\nhost all all all trust\nlocal all all trust\n"), 0o644))
	for _, dir := range []string{filepath.Dir(hba), filepath.Dir(filepath.Dir(hba))} {
		check(t, os.Chmod(dir, 0o755)) // the server has a user of its own
	}
	pg := services.PostgreSQL(t, services.Setting("hba_file", hba))
	db := pg.CreateDatabase(t)
	admin := connect(t, pg.URL(db))
	_, err := admin.Exec(t.Context(), "create role limited login password 'secret-of-the-role'")
	check(t, err)
	as := func(user, database string) string {
		return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", user, pg.Addr(), database)
	}
	for what, c := range map[string]struct {
		url   string
		kind  error
		parts []string
	}{
		"unreachable":    {"postgres://u:hidden@127.0.0.1:1/db?sslmode=disable&connect_timeout=2", holdfast.ErrUnavailable, []string{"acquire", `"m"`, "127.0.0.1:1", "try again"}},
		"wrong password": {as("limited:hidden", db), fs.ErrPermission, []string{"acquire", "password"}},
		"wrong database": {as("holdfast", "nowhere"), holdfast.ErrUnavailable, []string{"nowhere", "no such database"}},
		"no right":       {as("limited:secret-of-the-role", db), fs.ErrPermission, []string{"GRANT CREATE ON DATABASE", db, "limited", "pghold.Schema"}},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := open(t, c.url).Mutex("m").Acquire(t.Context())
			refused(t, err, c.kind)
			if !holdfast.NotDone(err) || !containsAll(err.Error(), c.parts...) {
				t.Errorf("NotDone is %v, the text %q; want %q in it", holdfast.NotDone(err), err, c.parts)
			}
			if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "secret-of-the-role") {
				t.Errorf("the text has the password: %v", err)
			}
		})
	}
	t.Run("granted", func(t *testing.T) {
		must(open(t, pg.URL(db)).Mutex("m").Acquire(t.Context()))(t)
		limited := as("limited:secret-of-the-role", db)
		_, err := open(t, limited).Counter("c").Add(t.Context(), 1)
		refused(t, err, fs.ErrPermission)
		if !containsAll(err.Error(), "pghold.Grants", "USAGE") {
			t.Errorf("the text does not name the grant: %v", err)
		}
		_, err = admin.Exec(t.Context(), pghold.Grants("limited"), pgx.QueryExecModeSimpleProtocol)
		check(t, err)
		s := open(t, limited)
		check(t, must(s.Mutex("n").Acquire(t.Context()))(t).Release())
		must(s.Counter("c").Add(t.Context(), 1))(t)
		must(s.KV().Put(t.Context(), "k", nil))(t)
		check(t, must(s.Semaphore("s", 2).Acquire(t.Context(), 1))(t).Release())
	})
}

// TestBadURLs are refused before anything is opened.
func TestBadURLs(t *testing.T) {
	for _, url := range []string{
		"postgres://u:hidden@h/db?holdfast_scope=other", "postgres://u:hidden@h/db?holdfast_keepalive=5",
		"postgresql://u:hidden@h/db?holdfast_waits=-1", "postgres://u:hidden@h/db?sslmode=none", "postgres://u:hidden@h/db?holdfast_hashing=perhaps",
	} {
		_, err := holdfast.Open(t.Context(), url)
		refused(t, err, fs.ErrInvalid)
		if strings.Contains(err.Error(), "hidden") {
			t.Errorf("the text has the password: %v", err)
		}
	}
	_, err := pghold.New(nil, nil)
	refused(t, err, fs.ErrInvalid)
}

// TestSchemaAtOnce: many programs may make the schema at the same time; one of
// them makes it, and the others leave it alone.
func TestSchemaAtOnce(t *testing.T) {
	url := database(t)
	watcher := connect(t, url)
	first := connect(t, url)
	_, err := first.Exec(t.Context(), "select pg_advisory_lock(5209599041173340518)") // schemaLock
	check(t, err)
	errs := make(chan error, 8)
	for range cap(errs) {
		s := open(t, url)
		go func() {
			_, err := s.Counter("c").Add(t.Context(), 1)
			errs <- err
		}()
	}
	eventually(t, "the programs do not all wait to make the schema", func() bool {
		var n int
		scan(t, watcher, &n, "select count(*) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())")
		return n == cap(errs)
	})
	check(t, first.Close(t.Context()))
	for range cap(errs) {
		check(t, <-errs)
	}
	var makers int
	scan(t, watcher, &makers, `select count(distinct made) from (
select xmin::text from pg_proc where pronamespace = 'holdfast_v10'::regnamespace
union select xmin::text from pg_namespace where nspname in ('holdfast', 'holdfast_v10')) x (made)`)
	if makers != 1 {
		t.Errorf("%d transactions made the schema", makers)
	}
}

// TestSchemaCanBeRepeated: "It can be repeated, also under programs that use it":
// every function stays the one that it is, and nobody who writes is waited for.
func TestSchemaCanBeRepeated(t *testing.T) {
	url := database(t)
	_ = must(open(t, url).Counter("c").Add(t.Context(), 1))(t)
	conn := connect(t, url)
	functions := func() (list string) {
		scan(t, conn, &list, "select string_agg(oid::text || ' ' || proname, ',' order by oid) from pg_proc where pronamespace = 'holdfast_v10'::regnamespace")
		return list
	}
	before := functions()
	writer := must(connect(t, url).Begin(t.Context()))(t)
	for _, table := range []string{"claim", "kv", "resource", "session", "counter", "sequence", "done", "revision", "watcher", "event"} {
		_, err := writer.Exec(t.Context(), "delete from holdfast."+table+" where false")
		check(t, err)
	}
	errs := make(chan error, 4)
	for range cap(errs) {
		admin := connect(t, url)
		go func() {
			_, err := admin.Exec(t.Context(), "set lock_timeout = 10000; "+pghold.Schema, pgx.QueryExecModeSimpleProtocol)
			errs <- err
		}()
	}
	for range cap(errs) {
		check(t, <-errs)
	}
	check(t, writer.Rollback(t.Context()))
	if after := functions(); after != before {
		t.Errorf("the functions are %s, they were %s", after, before)
	}
}

// TestForceWithoutAnAnswer: a ForceRelease whose answer is lost, and whose repetition finds
// nobody since the holder has obeyed, is done.
func TestForceWithoutAnAnswer(t *testing.T) {
	pg := services.PostgreSQL(t)
	at := pg.URL(pg.CreateDatabase(t))
	b, look, watch := openPool(t, at, nil), connect(t, at), connect(t, at)
	check(t, released(b.Mutex("schema").Acquire(t.Context())))
	force := func(t *testing.T, a, b *holdfast.Space, n string) {
		h := must(b.Mutex(n).Acquire(t.Context()))(t)
		if _, err := a.ForceRelease(t.Context(), n, h.Token()); !tolerable(err) {
			t.Errorf("%s: %v", n, err)
		}
		_ = h.Release() // it may have been forced
	}
	s := scenario{"force", force, func(context.Context, *holdfast.Space, string) error { return nil }}
	p := newTripProxy(t, pg, 0, mishap{})
	runThrough(t, p, at, b, look, s, "count")
	trips, _ := p.seen()
	for n := range trips {
		name := fmt.Sprint("trip ", n)
		obeyed := mishap{"cut when it is obeyed", true, true, func(c *tripConn, unit []byte, _ bool) bool {
			c.mute()
			c.ask(unit)
			for marked := true; marked; {
				scan(t, watch, &marked, "select exists (select from holdfast.claim where name = $1 and revoked)", name)
			}
			return false
		}}
		runThrough(t, newTripProxy(t, pg, n+1, obeyed), at, b, look, s, name)
	}
}

// TestSchemaIsDropped: calls say what has happened, and a Space that is opened then makes what is missing.
func TestSchemaIsDropped(t *testing.T) {
	url := database(t)
	for name, drop := range map[string]string{"functions": "drop schema holdfast_v10 cascade", "tables": "drop schema holdfast cascade"} {
		s := open(t, url)
		check(t, released(s.Mutex("m").Acquire(t.Context())))
		must(s.KV().Put(t.Context(), "k", nil))(t)
		must(connect(t, url).Exec(t.Context(), drop))(t)
		_, put := s.KV().Put(t.Context(), "k", nil)
		_, get := s.KV().Get(t.Context(), "k")
		_, inspect := s.Inspect(t.Context(), "m")
		_, place := s.Semaphore("s", 1).TryAcquire(t.Context(), 1)
		calls := map[string]error{"inspect": inspect, "place": place}
		if name == "tables" {
			calls["put"], calls["get"] = put, get
		}
		for what, err := range calls {
			if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), "open it anew") {
				t.Errorf("%s without the %s: %v", what, name, err)
			}
		}
		check(t, s.Close())
		fresh := open(t, url)
		check(t, released(fresh.Semaphore("s", 1).TryAcquire(t.Context(), 1)))
		must(fresh.KV().Put(t.Context(), "k", nil))(t)
	}
}
