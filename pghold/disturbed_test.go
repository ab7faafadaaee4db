package pghold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestForeignNotifications: what others say on the channel of events, as every user of the database may, ends no
// watch.
func TestForeignNotifications(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	s, other := open(t, url), connect(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	foreign := []string{"", "garbage", "{}", "null", "[1]", `{"r":"x"}`, "@", "@x", "@99"}
	for ev, err := range s.Watch(ctx, "", 0) {
		switch {
		case err != nil:
			t.Fatalf("the watch ends: %v", err)
		case ev.Verb == driver.VerbReady:
			for _, text := range foreign {
				must(other.Exec(ctx, "select pg_notify('holdfast_event', $1)", text))(t)
			}
			must(s.KV().Put(ctx, "key", []byte("value")))(t)
		case ev.Verb == driver.VerbResync: // the put may be among what is missing
			must(s.KV().Put(ctx, "key", []byte("value")))(t)
		case ev.KV == nil || ev.KV.Key != "key":
			t.Errorf("an event that did not happen: %+v", ev)
		default:
			return
		}
	}
	t.Fatal("the put was not told")
}

// tripping opens a driver, with what disturbs its round trips.
func tripping(t *testing.T, pg *services.PostgreSQLServer, url string) (driver.Driver, *kthPath) {
	t.Helper()
	p := &kthPath{newTripProxy(t, pg, 0, mishap{}), url}
	d, err := p.Open(t.Context())
	check(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d, p
}

// TestInspectAgain: an Inspect with a connection that breaks in the middle tells a name once, with its holders.
func TestInspectAgain(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	must(open(t, url).Semaphore("s", 2).Acquire(t.Context(), 1))(t)
	d, p := tripping(t, pg, url)
	for k, struck := 1, true; struck; k++ {
		must(d.Inspect(t.Context(), &driver.InspectRequest{Name: "s"}))(t)
		p.Arm(k, "cut before")
		reply, err := d.Inspect(t.Context(), &driver.InspectRequest{Name: "s"})
		if struck = p.Disarm(); err == nil && (len(reply.Resources) != 1 || len(reply.Resources[0].Holders) != 1) {
			t.Errorf("cut at trip %d: one name with one holder is told as %+v", k, reply.Resources)
		}
	}
}

// TestTableLocked: while another program has a table of ours locked as a whole, for longer than a connection may be
// silent, calls are refused and no hold is lost.
func TestTableLocked(t *testing.T) {
	t.Parallel()
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	const timeout = 3 * time.Second // no connection is silent for so long on a busy machine
	s, other := open(t, fmt.Sprintf("%s&holdfast_timeout=%s&holdfast_keepalive=500ms", url, timeout)), open(t, url)
	home := must(s.RWMutex("home").Writer().Acquire(t.Context()))(t)
	first := must(other.Mutex("awaited").Acquire(t.Context()))(t)
	got := waiting(t, s, "awaited")
	check(t, first.Release())
	awaited := granted(t, got)
	tx := must(connect(t, url).Begin(t.Context()))(t)
	must(tx.Exec(t.Context(), "lock table holdfast.claim in access exclusive mode"))(t)
	for end := time.Now().Add(5 * timeout / 4); time.Now().Before(end); {
		_, err := s.RWMutex("new").Writer().TryAcquire(t.Context())
		if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
			t.Fatalf("an acquire while the table is locked: %v", err)
		}
	}
	freed := make(chan error, 1)
	go func() { freed <- awaited.Release() }()
	select {
	case <-home.Done():
		t.Errorf("a hold was lost: %v", home.Err())
	case <-time.After(5 * timeout / 4):
	}
	check(t, tx.Rollback(t.Context()))
	if err := <-freed; err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("the release of a hold that had waited: %v", err)
	}
	check(t, released(other.Mutex("awaited").Acquire(t.Context())))
	check(t, home.Release())
	check(t, released(s.RWMutex("new").Writer().Acquire(t.Context())))
}

// TestTryBehindASilentServer: a try that has waited behind another call, which the server does not answer, says so;
// connections are free.
func TestTryBehindASilentServer(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	check(t, released(open(t, url).Mutex("m").Acquire(t.Context())))
	s := open(t, url+"&holdfast_scope=transaction&holdfast_timeout=1s")
	tx := must(connect(t, url).Begin(t.Context()))(t)
	must(tx.Exec(t.Context(), "lock table holdfast.claim in access exclusive mode"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := make(chan struct{})
	go func() { close(began); _, _ = s.Mutex("m").Acquire(ctx) }()
	<-began
	eventually(t, "no try waited behind the other call", func() bool {
		_, err := s.Mutex("m").TryAcquire(t.Context())
		if errors.Is(err, holdfast.ErrExhausted) {
			t.Fatalf("7 of 8 connections are free: %v", err)
		}
		return errors.Is(err, holdfast.ErrUnavailable) && strings.Contains(err.Error(), "another call")
	})
	cancel()
	check(t, tx.Rollback(t.Context()))
}

// TestSweepThatFails: a sweep that fails tells what it has removed, and no more.
func TestSweepThatFails(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	d, p := tripping(t, pg, url)
	failed := 0
	for k, struck := 1, true; struck; k++ {
		must(d.Inspect(t.Context(), &driver.InspectRequest{Name: "s"}))(t) // a connection of the pool is open
		p.Arm(k, "57014")
		reply, err := d.Sweep(t.Context(), &driver.SweepRequest{Limits: true})
		if struck = p.Disarm(); reply.Removed != 0 {
			t.Errorf("refused at trip %d (%v): %d names are told as removed, and there was none", k, err, reply.Removed)
		}
		if err != nil {
			failed++
		}
	}
	if failed < 3 {
		t.Errorf("%d sweeps failed", failed)
	}
}
