//go:build unix

package pghold_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// A session that could not be ended in time is ended later, although its program lives on
// and its pool stays busy: its keys are gone for others.
func TestEndOfASessionGoesOn(t *testing.T) {
	at := database(t)
	cfg := must(pgxpool.ParseConfig(at))(t)
	cfg.MaxConns = 1
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)
	d := must(pghold.New(pool, nil))(t)
	t.Cleanup(func() { check(t, d.Close(context.Background())) })
	session := must(d.OpenSession(t.Context(), driver.Spec{}))(t)
	must(d.Txn(t.Context(), &driver.TxnRequest{ID: [16]byte{1}, Then: []driver.Op{{Kind: driver.OpPut, Key: "service", Session: session}}}))(t)
	b := open(t, at)
	must(b.KV().Get(t.Context(), "service"))(t)
	busy := must(pool.Acquire(t.Context()))(t)
	defer busy.Release()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.EndSession(short, session); err == nil {
		t.Error("a session is ended over a pool that is busy")
	}
	eventually(t, "a key of a session that was ended stays", func() bool {
		_, err := b.KV().Get(t.Context(), "service")
		return errors.Is(err, holdfast.ErrNotFound)
	})
}

// A caller of AcquireAll that leaves does not wait for what it has to be given back.
func TestAcquireAllLeaves(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	at := pg.URL(pg.CreateDatabase(t))
	link := services.Proxy(t, must(url.Parse(at))(t).Host)
	a, b := openPool(t, link.URL(at), &pghold.Options{Timeout: time.Minute}), open(t, at)
	first, second := inOrder(t, "a", "b")
	h := must(b.Mutex(second).Acquire(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan error, 1)
	go func() {
		_, err := a.AcquireAll(ctx, a.Mutex(first).Want(), a.Mutex(second).Want())
		over <- err
	}()
	eventually(t, "AcquireAll does not wait", func() bool {
		r, err := b.Inspect(t.Context(), second)
		return err == nil && len(r.Waiters) == 1
	})
	link.Cut()
	began := time.Now()
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) || time.Since(began) > 20*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	link.Heal()
	check(t, h.Release())
}

// TestEndOfASessionLeavesOthers: the keys of other sessions of the program stay, although the
// end of one had to go over the connection that all of them live by.
func TestEndOfASessionLeavesOthers(t *testing.T) {
	at := database(t)
	cfg := must(pgxpool.ParseConfig(at))(t)
	cfg.MaxConns = 1
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)
	d := must(pghold.New(pool, &pghold.Options{Timeout: 3 * time.Second}))(t)
	t.Cleanup(func() { check(t, d.Close(context.Background())) })
	ends, lives := withKey(t, d, "ends"), withKey(t, d, "lives")
	busy := must(pool.Acquire(t.Context()))(t)
	defer busy.Release()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.EndSession(short, ends); err == nil {
		t.Error("a session is ended over a pool that is busy")
	}
	look := connect(t, at)
	left := func(key string) (n int) {
		scan(t, look, &n, "select count(*) from holdfast.kv where key = $1", key)
		return n
	}
	eventually(t, "a key of a session that was ended stays", func() bool { return left("ends") == 0 })
	if left("lives") != 1 || lives.Err() != nil {
		t.Errorf("the end of a session ended another (%v), or its key", lives.Err())
	}
}

// TestEndOfASessionBesideAPut: a key that is being put when its session ends is gone with it.
func TestEndOfASessionBesideAPut(t *testing.T) {
	at := database(t)
	d := must(driver.Open(t.Context(), at))(t)
	t.Cleanup(func() { check(t, d.Close(context.Background())) })
	session, look := withKey(t, d, "before"), connect(t, at)
	put := must(connect(t, at).Begin(t.Context()))(t)
	must(put.Exec(t.Context(), "update holdfast.revision set n = n + 1"))(t)
	must(put.Exec(t.Context(), "select holdfast_v10.kv_put('late', '', $1, null, 0)", session.ID.String()))(t)
	must(look.Exec(t.Context(), "delete from holdfast.kv where key = 'before'"))(t) // so that nothing of it is to be seen
	ended := make(chan error, 1)
	go func() { ended <- d.EndSession(context.Background(), session) }()
	eventually(t, "the end of the session is neither over nor waits", func() (waits bool) {
		scan(t, look, &waits, "select exists (select from pg_locks where not granted)")
		return waits || len(ended) > 0
	})
	check(t, put.Commit(t.Context()))
	check(t, <-ended)
	var left int
	scan(t, look, &left, "select count(*) from holdfast.kv")
	if left != 0 {
		t.Errorf("%d keys of a session that has ended are left", left)
	}
}

// withKey is a session with a key.
func withKey(t *testing.T, d driver.Driver, key string) *driver.Session {
	t.Helper()
	session := must(d.OpenSession(t.Context(), driver.Spec{}))(t)
	must(d.Txn(t.Context(), &driver.TxnRequest{ID: [16]byte{1}, Then: []driver.Op{{Kind: driver.OpPut, Key: key, Session: session}}}))(t)
	return session
}
