package redishold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestRepeatedRequestsCountOnce: a request with an answer that was lost is repeated,
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

// TestCancelledOnItsWay: an Acquire with a caller that gave up before the server heard
// of it leaves nothing taken; that it was not done is said when the server has confirmed it.
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
	if _, err := d.Acquire(short, mutex(name)); !errors.Is(err, context.DeadlineExceeded) || holdfast.NotDone(err) {
		t.Fatalf("through a cut link: %v; NotDone is %t", err, holdfast.NotDone(err))
	}
	link.Heal()
	eventually(t, "the name stays taken", func() bool {
		h, err := other.Mutex(name).TryAcquire(t.Context())
		return err == nil && h.Release() == nil
	})
	hold, err := other.Mutex(name).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keep(t, hold)
	eventually(t, "NotDone is false of each wait", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := d.Acquire(short, mutex(name))
		return holdfast.NotDone(err)
	})
}
